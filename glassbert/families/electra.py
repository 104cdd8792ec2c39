"""ELECTRA: a discriminator that finds replaced tokens, trained together with a small generator that replaces them.

Differs from BERT in
    embeddings      may be narrower than the layers; a projection widens them after the norm
    pretraining     replaced-token detection: a small generator fills the masks with samples of its own answers, and
                    the discriminator says for every token whether it is the original
    what is kept    the discriminator; it has learned from all tokens of a row, not only from the masked ones
    classifiers     dense and GELU before the classifier of a sequence; no pooler in the bare encoder

The generator is a masked language model. Both share their embeddings, which is why the projection exists: the generator
is narrower and has another one. The head "rtd" (`glassbert.models.heads.rtd`) holds both; a finished run saves the
discriminator, with the generator in a folder beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, SHARED_RULES, Family, register_family
from glassbert.checkpoints.fields import MISSING, Rule, activation, falls_back, follows, same
from glassbert.checkpoints.names import one
from glassbert.families.bert import BERT_ENCODER, BERT_WORDS, BertWithHead
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class ElectraConfig(EncoderConfig):
    """ELECTRA: BERT with narrower embeddings; the default is the small discriminator."""

    family: str = "electra"
    hidden_size: int = 256
    embedding_size: int | None = 128
    num_attention_heads: int = 4
    intermediate_size: int = 1_024
    type_vocab_size: int = 2
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    pooler_dropout: float = 0.1
    classifier_dropout: float = 0.1
    pooler: bool = True
    pooler_activation: str = "gelu"
    pooler_of_head: bool = True

    def __post_init__(self) -> None:
        if self.embedding_size is None:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        super().__post_init__()

    @classmethod
    def get_base_config(cls) -> ElectraConfig:
        return cls(
            hidden_size=768, embedding_size=768, num_attention_heads=12, intermediate_size=3_072, generator_width=1 / 3
        )

    @classmethod
    def get_large_config(cls) -> ElectraConfig:
        return cls(
            hidden_size=1_024, embedding_size=1_024, num_hidden_layers=24, num_attention_heads=16,
            intermediate_size=4_096,
        )  # fmt: skip


SMALL, BASE, LARGE = ElectraConfig(), ElectraConfig.get_base_config(), ElectraConfig.get_large_config()
GENERATOR = ElectraConfig(classifier_dropout=0.1)  # all published generators have layers of 256
ELECTRA_MINI_CONFIG = ElectraConfig(
    vocab_size=8_192,
    hidden_size=192,
    embedding_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    pooler_dropout=0.0,
    classifier_dropout=0.0,
)


class ElectraCore(Model):
    """An ELECTRA encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or ElectraConfig(), **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return ElectraCore if head is None else BertWithHead


MLM = {
    "head.transform.{part}": one("generator_predictions.dense.{part}"),
    "head.norm.{part}": one("generator_predictions.LayerNorm.{part}"),
    "head.decoder.bias": one("generator_lm_head.bias"),
}

ELECTRA = register_family(
    Family(
        name="electra",
        config_class=ElectraConfig,
        architectures={
            "core": "ElectraModel",
            "mlm": "ElectraForMaskedLM",
            "discriminator": "ElectraForPreTraining",
            "sequence": "ElectraForSequenceClassification",
            "token": "ElectraForTokenClassification",
            "span": "ElectraForQuestionAnswering",
        },
        core_prefix="electra.",
        core={**BERT_ENCODER, "embeddings.projection.{part}": one("{core}embeddings_project.{part}")},
        heads={
            "core": {},
            "mlm": {**MLM, "embeddings.token": one(BERT_WORDS, tied=("generator_lm_head.weight",))},
            "mlm_untied": {**MLM, "head.decoder.weight": one("generator_lm_head.weight")},
            "discriminator": {
                "head.transform.{part}": one("discriminator_predictions.dense.{part}"),
                "head.classifier.{part}": one("discriminator_predictions.dense_prediction.{part}"),
            },
            "sequence": {
                "pooler.{part}": one("classifier.dense.{part}"),
                "head.classifier.{part}": one("classifier.out_proj.{part}"),
            },
            "token": CLASSIFIER,
            "span": {"head.classifier.{part}": one("qa_outputs.{part}")},
        },
        rules=(
            *SHARED_RULES,
            Rule(
                "embedding_size",
                ("embedding_size",),
                lambda fields: fields.get("embedding_size", MISSING),
                lambda config: {"embedding_size": config.embedding_width},
            ),
            same("type_vocab_size"),
            same("layer_norm_eps"),
            activation("hidden_act"),
            same("hidden_dropout", "hidden_dropout_prob"),
            follows("embedding_dropout", "hidden_dropout_prob"),
            same("attention_dropout", "attention_probs_dropout_prob"),
            falls_back("classifier_dropout", "classifier_dropout", "hidden_dropout_prob"),
            falls_back("pooler_dropout", "classifier_dropout", "hidden_dropout_prob")._replace(write=lambda config: {}),
        ),
        supported_values={**COMMON_KEYS, "position_embedding_type": (None, "absolute")},
        # The head of the generator has a GELU, whatever the activation of the layers is.
        head_values={"mlm": {"hidden_act": (None, "gelu", "gelu_python")}},
        at_least={"type_vocab_size": 1},
        not_weights=("embeddings.position_ids", "embeddings.token_type_ids"),
        presets={
            "electra-mini": ELECTRA_MINI_CONFIG,
            "electra-small": SMALL,
            "electra-base": BASE,
            "electra-large": LARGE,
            "electra-small-generator": GENERATOR,
            "electra-base-generator": GENERATOR.replace(embedding_size=768),
            "electra-large-generator": GENERATOR.replace(embedding_size=1_024, num_hidden_layers=24),
        },
        title="ELECTRA",
        paper="Clark, Luong, Le and Manning, 2020: ELECTRA: Pre-training Text Encoders as Discriminators Rather Than "
        "Generators",
        differences={
            "embeddings": "may be narrower than the layers, with a projection; shared with the generator",
            "pretraining": "replaced-token detection: a small generator fills the masks with samples, and the "
            "discriminator says for every token whether it is the original",
            "learns from": "all tokens of a row, not only from the masked ones",
            "pooler": "none in the bare encoder; dense and GELU before the classifier of a sequence",
        },
        formulas="""\
generator        p(x_t | masked row) = softmax(E g_t + b)            masked words, as BERT
sampling         x̂_t ~ p(x_t | masked row) at the masked places      no gradient passes it
discriminator    D(x̂, t) = σ(v · act(W h_t + b) + c)                 was x̂_t replaced?
loss             MLM(generator) + 50 · BCE(D, x̂_t ≠ x_t)             the second over all tokens""",
        mini="electra-mini",
        objective="rtd",
        training={"mask_rate": 0.15, "final_mask_rate": None},
        class_for=class_for,
    )
)
