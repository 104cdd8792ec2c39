"""BERT: learned positions, token types, post-norm blocks, exact GELU, biases everywhere, a pooler.

Other families are described by their differences from this one. Mini-BERT and Larger-BERT are configs of this family:
no token types, ReLU, a norm after the last block instead of after the embeddings, and an untied decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, SHARED_RULES, Family, register_family
from glassbert.checkpoints.fields import activation, falls_back, follows, same
from glassbert.checkpoints.names import one, stacked
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """Classic BERT: learned positions, token types, post-norm, exact GELU, biases everywhere, a pooler."""

    family: str = "bert"
    type_vocab_size: int = 2
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    classifier_dropout: float = 0.1
    pooler: bool = True

    @classmethod
    def get_base_config(cls) -> BertConfig:
        return cls()

    @classmethod
    def get_large_config(cls) -> BertConfig:
        return cls(hidden_size=1_024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4_096)


MINI_BERT_CONFIG = BertConfig(
    vocab_size=8_192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
    type_vocab_size=0,
    embedding_norm=False,
    final_norm=True,
    layer_norm_eps=1e-5,
    activation="relu",
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    classifier_dropout=0.0,
    tie_word_embeddings=False,
    head_transform=False,
    pooler=False,
)

LARGER_BERT_CONFIG = MINI_BERT_CONFIG.replace(
    vocab_size=50_000,
    hidden_size=384,
    num_hidden_layers=6,
    num_attention_heads=8,
    intermediate_size=1_536,
    max_position_embeddings=128,
    embedding_dropout=0.1,
    attention_dropout=0.1,
    hidden_dropout=0.1,
    classifier_dropout=0.1,
    initializer="depth_scaled",
)


class BertCore(Model):
    """A classic BERT encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or BertConfig.get_base_config(), **options)


class BertWithHead(Model):
    """Any encoder with a head: "mlm", "binary", "multiclass", "token", "span", "embedding", ... (`head_names()`)."""

    def __init__(
        self, config: EncoderConfig | None = None, head_type: str = "mlm", num_labels: int = 0, **options: Any
    ):
        head = options.pop("head", head_type)
        super().__init__(config or BertConfig.get_base_config(), head, num_labels, **options)


class MiniBERT(BertWithHead):
    """3 layers of 192: small enough to train on a laptop in minutes."""

    def __init__(self, config: EncoderConfig = MINI_BERT_CONFIG, **options: Any):
        super().__init__(config, "mlm", **options)


class LargerBERT(BertWithHead):
    """6 layers of 384, with dropout and a vocabulary of 50,000."""

    def __init__(self, config: EncoderConfig = LARGER_BERT_CONFIG, **options: Any):
        super().__init__(config, "mlm", **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    if head is None:
        return BertCore
    ready = ((MINI_BERT_CONFIG, MiniBERT), (LARGER_BERT_CONFIG, LargerBERT))
    return next((model for preset, model in ready if head == "mlm" and config == preset), BertWithHead)


BERT_LAYER = "{core}encoder.layer.{layer}."
BERT_MLM = {
    "head.transform.{part}": one("cls.predictions.transform.dense.{part}"),
    "head.norm.{part}": one("cls.predictions.transform.LayerNorm.{part}"),
}
BERT_WORDS = "{core}embeddings.word_embeddings.weight"
BERT_TIED = {
    **BERT_MLM,
    "embeddings.token": one(BERT_WORDS, tied=("cls.predictions.decoder.weight",)),
    "head.decoder.bias": one("cls.predictions.bias", tied=("cls.predictions.decoder.bias",)),
}
BERT_UNTIED = {
    **BERT_MLM,
    "head.decoder.weight": one("cls.predictions.decoder.weight"),
    # transformers 5 uses decoder.bias and ignores predictions.bias; in transformers 4 they are one tensor.
    "head.decoder.bias": one("cls.predictions.decoder.bias", copies=("cls.predictions.bias",)),
}
SPAN = {"head.classifier.{part}": one("qa_outputs.{part}")}
BERT_PAIR = {"head.pair.classifier.{part}": one("cls.seq_relationship.{part}")}

BERT_ENCODER = {
    "embeddings.token": one(BERT_WORDS),
    "embeddings.position": one("{core}embeddings.position_embeddings.weight"),
    "embeddings.token_type": one("{core}embeddings.token_type_embeddings.weight"),
    "embeddings.norm.{part}": one("{core}embeddings.LayerNorm.{part}"),
    "layers.{layer}.attention.qkv.{part}": stacked(
        BERT_LAYER + "attention.self.query.{part}",
        BERT_LAYER + "attention.self.key.{part}",
        BERT_LAYER + "attention.self.value.{part}",
    ),
    "layers.{layer}.attention.output.{part}": one(BERT_LAYER + "attention.output.dense.{part}"),
    "layers.{layer}.attention.norm.{part}": one(BERT_LAYER + "attention.output.LayerNorm.{part}"),
    "layers.{layer}.ffn.up.{part}": one(BERT_LAYER + "intermediate.dense.{part}"),
    "layers.{layer}.ffn.down.{part}": one(BERT_LAYER + "output.dense.{part}"),
    "layers.{layer}.ffn.norm.{part}": one(BERT_LAYER + "output.LayerNorm.{part}"),
}
BERT_CORE = {**BERT_ENCODER, "pooler.{part}": one("{core}pooler.dense.{part}")}
BERT_RULES = (
    *SHARED_RULES,
    same("type_vocab_size"),
    same("layer_norm_eps"),
    activation("hidden_act"),
    same("hidden_dropout", "hidden_dropout_prob"),
    follows("embedding_dropout", "hidden_dropout_prob"),
    same("attention_dropout", "attention_probs_dropout_prob"),
    falls_back("classifier_dropout", "classifier_dropout", "hidden_dropout_prob"),
)

BERT = register_family(
    Family(
        name="bert",
        config_class=BertConfig,
        architectures={
            "core": "BertModel",
            "mlm": "BertForMaskedLM",
            "sequence": "BertForSequenceClassification",
            "token": "BertForTokenClassification",
            "span": "BertForQuestionAnswering",
            "pretraining": "BertForPreTraining",
        },
        core_prefix="bert.",
        core=BERT_CORE,
        heads={
            "core": {},
            "mlm": BERT_TIED,
            "mlm_untied": BERT_UNTIED,
            "pretraining": {**BERT_TIED, **BERT_PAIR},
            "pretraining_untied": {**BERT_UNTIED, **BERT_PAIR},
            "sequence": CLASSIFIER,
            "token": CLASSIFIER,
            "span": SPAN,
        },
        rules=BERT_RULES,
        supported_values={**COMMON_KEYS, "position_embedding_type": (None, "absolute")},
        at_least={"type_vocab_size": 1},
        renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
        not_weights=("embeddings.position_ids", "embeddings.token_type_ids"),
        pretraining_only=("pooler.dense.{part}", "cls.seq_relationship.{part}"),
        inferred_from_tensor={"pooler": "pooler.dense.weight"},
        presets={
            "mini": MINI_BERT_CONFIG,
            "larger": LARGER_BERT_CONFIG,
            "bert-base": BertConfig.get_base_config(),
            "bert-large": BertConfig.get_large_config(),
        },
        title="BERT",
        paper="Devlin, Chang, Lee and Toutanova, 2019: BERT: Pre-training of Deep Bidirectional Transformers for "
        "Language Understanding",
        differences={
            "attention": "every token attends to every other, on both sides",
            "positions": "a learned vector for each of 512 places",
            "blocks": "the norm is after each branch (post-norm), GELU between two linear maps",
            "pretraining": "masked words and next-sentence prediction",
        },
        formulas="""\
embeddings       x = LN(token[id] + position[t] + type[s])
attention        a = softmax(q kᵀ / √d) v                            per head; q, k, v = x Wᵀ + b
block            y = LN(x + attention(x));  z = LN(y + W₂ gelu(W₁ y + b₁) + b₂)
masked words     p(x_t | masked row) = softmax(E LN(gelu(W h_t + b)) + c)
pair             p(second follows first) = softmax(V tanh(W h_[CLS] + b) + c)""",
        mini="mini",
        class_for=class_for,
    )
)
