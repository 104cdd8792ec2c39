"""ALBERT: one set of parameters for all layers, and embeddings that are narrower than the layers.

Differs from BERT in
    layers          all layers compute with the same parameters (or with those of a few groups)
    embeddings      128 wide; one linear map widens them to the layers, and the decoder narrows them again
    activation      the tanh form of GELU
    pretraining     masked n-grams of 1 to 3 words, and sentence order: are two sentences swapped?

The gradient of a shared parameter is the sum of the gradients of all layers that use it. A base model has 12 million
parameters instead of 110, and computes as much as BERT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, SHARED_RULES, Family, register_family
from glassbert.checkpoints.fields import MISSING, Rule, activation, falls_back, follows, same
from glassbert.checkpoints.names import one, stacked
from glassbert.errors import ConfigError
from glassbert.families.bert import BERT_WORDS, SPAN, BertWithHead
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class AlbertConfig(EncoderConfig):
    """ALBERT: factorised embeddings and shared layers. The default is the xxlarge size, as in transformers."""

    family: str = "albert"
    vocab_size: int = 30_000
    hidden_size: int = 4_096
    num_attention_heads: int = 64
    intermediate_size: int = 16_384
    type_vocab_size: int = 2
    embedding_size: int | None = 128
    layer_groups: int | None = 1
    activation: str = "gelu_tanh"
    classifier_dropout: float = 0.1
    pooler: bool = True

    def __post_init__(self) -> None:
        if self.series is None and self.embedding_size in (None, self.hidden_size):
            raise ConfigError(
                f"an ALBERT projects its embeddings to another width: embedding_size must differ from hidden_size "
                f"{self.hidden_size}"
            )
        super().__post_init__()

    @classmethod
    def get_base_config(cls) -> AlbertConfig:
        return cls(hidden_size=768, num_attention_heads=12, intermediate_size=3_072)

    @classmethod
    def get_large_config(cls) -> AlbertConfig:
        return cls(hidden_size=1_024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4_096)


ALBERT_MINI_CONFIG = AlbertConfig(
    vocab_size=8_192,
    hidden_size=192,
    embedding_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
    classifier_dropout=0.0,
)


class AlbertCore(Model):
    """An ALBERT encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or AlbertConfig.get_base_config(), **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return AlbertCore if head is None else BertWithHead


def layer_groups() -> Rule:
    """Their number of groups; ours may be None, which is one for each layer."""

    def read(fields: Any) -> Any:
        return fields.get("num_hidden_groups", MISSING)

    def write(config: EncoderConfig) -> dict[str, Any]:
        return {"num_hidden_groups": config.layer_groups or config.num_hidden_layers}

    return Rule("layer_groups", ("num_hidden_groups",), read, write)


LAYER = "{core}encoder.albert_layer_groups.{layer}.albert_layers.0."
MLM = {
    "head.transform.{part}": one("predictions.dense.{part}"),
    "head.norm.{part}": one("predictions.LayerNorm.{part}"),
}
TIED = {
    **MLM,
    "embeddings.token": one(BERT_WORDS, tied=("predictions.decoder.weight",)),
    "head.decoder.bias": one("predictions.bias", tied=("predictions.decoder.bias",)),
}
UNTIED = {
    **MLM,
    "head.decoder.weight": one("predictions.decoder.weight"),
    "head.decoder.bias": one("predictions.decoder.bias", copies=("predictions.bias",)),
}
ORDER = {"head.pair.classifier.{part}": one("sop_classifier.classifier.{part}")}

ALBERT = register_family(
    Family(
        name="albert",
        config_class=AlbertConfig,
        architectures={
            "core": "AlbertModel",
            "mlm": "AlbertForMaskedLM",
            "pretraining": "AlbertForPreTraining",
            "sequence": "AlbertForSequenceClassification",
            "token": "AlbertForTokenClassification",
            "span": "AlbertForQuestionAnswering",
        },
        core_prefix="albert.",
        core={
            "embeddings.token": one(BERT_WORDS),
            "embeddings.position": one("{core}embeddings.position_embeddings.weight"),
            "embeddings.token_type": one("{core}embeddings.token_type_embeddings.weight"),
            "embeddings.norm.{part}": one("{core}embeddings.LayerNorm.{part}"),
            "embeddings.projection.{part}": one("{core}encoder.embedding_hidden_mapping_in.{part}"),
            "layers.{layer}.attention.qkv.{part}": stacked(
                LAYER + "attention.query.{part}", LAYER + "attention.key.{part}", LAYER + "attention.value.{part}"
            ),
            "layers.{layer}.attention.output.{part}": one(LAYER + "attention.dense.{part}"),
            "layers.{layer}.attention.norm.{part}": one(LAYER + "attention.LayerNorm.{part}"),
            "layers.{layer}.ffn.up.{part}": one(LAYER + "ffn.{part}"),
            "layers.{layer}.ffn.down.{part}": one(LAYER + "ffn_output.{part}"),
            "layers.{layer}.ffn.norm.{part}": one(LAYER + "full_layer_layer_norm.{part}"),
            "pooler.{part}": one("{core}pooler.{part}"),
        },
        heads={
            "core": {},
            "mlm": TIED,
            "mlm_untied": UNTIED,
            "pretraining": {**TIED, **ORDER},
            "pretraining_untied": {**UNTIED, **ORDER},
            "sequence": CLASSIFIER,
            "token": CLASSIFIER,
            "span": SPAN,
        },
        rules=(
            *SHARED_RULES,
            same("embedding_size"),
            layer_groups(),
            same("type_vocab_size"),
            same("layer_norm_eps"),
            activation("hidden_act"),
            same("hidden_dropout", "hidden_dropout_prob"),
            follows("embedding_dropout", "hidden_dropout_prob"),
            same("attention_dropout", "attention_probs_dropout_prob"),
            falls_back("classifier_dropout", "classifier_dropout_prob", "hidden_dropout_prob"),
        ),
        supported_values={**COMMON_KEYS, "inner_group_num": (None, 1), "position_embedding_type": (None, "absolute")},
        at_least={"type_vocab_size": 1},
        token_ids={"bos_token_id": 2, "eos_token_id": 3},
        not_weights=("embeddings.position_ids", "embeddings.token_type_ids"),
        pretraining_only=("pooler.{part}", "sop_classifier.classifier.{part}"),
        inferred_from_tensor={"pooler": "pooler.weight"},
        presets={
            "albert-mini": ALBERT_MINI_CONFIG,
            "albert-base": AlbertConfig.get_base_config(),
            "albert-large": AlbertConfig.get_large_config(),
            "albert-xlarge": AlbertConfig(
                hidden_size=2_048, num_hidden_layers=24, num_attention_heads=16, intermediate_size=8_192
            ),
            "albert-xxlarge": AlbertConfig(),
        },
        title="ALBERT",
        paper="Lan, Chen, Goodman, Gimpel, Sharma and Soricut, 2020: ALBERT: A Lite BERT for Self-supervised Learning "
        "of Language Representations",
        differences={
            "layers": "all compute with one set of parameters",
            "embeddings": "128 wide; a linear map widens them, and the decoder narrows them again",
            "activation": "the tanh form of GELU",
            "pretraining": "masked n-grams of 1 to 3 words, and sentence order instead of next sentence",
        },
        formulas="""\
embeddings       x = LN(token[id] + position[t] + type[s]) Pᵀ + p     token [V, E], P [H, E]; E < H
sharing          h_{i+1} = block(h_i; θ)                              one θ for all i
                 dθ = Σ_i ∂block(h_i; θ)/∂θ · dh_{i+1}                the gradients of all layers add up
masked words     p(x_t | masked row) = softmax(E LN(gelu(W h_t + b)) + c)      W [E, H]
masked n-grams   P(n) = (1/n) / Σ_k (1/k)                             n = 1, 2, 3 words
sentence order   p(swapped) = softmax(V tanh(W h_[CLS] + b) + c)""",
        mini="albert-mini",
        objective="mlm+sop",
        tokenizer="unigram",
        training={"masking": "ngrams"},
        class_for=class_for,
    )
)
