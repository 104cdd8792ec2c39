"""DeBERTa v2 and v3: disentangled attention over relative positions, a mask decoder, and for v3 ELECTRA's objective.

Differs from BERT in
    positions       relative, in logarithmic buckets; a table of embeddings of distances that all layers share
    attention       a score has three terms: content to content, content to position, position to content
    convolution     v2 may add one beside the first layer
    mask decoder    a masked language model gets absolute positions at its last layer alone, which runs twice
    classifiers     dense and GELU before the classifier of a sequence; no pooler in the bare encoder; no token types
    pretraining     v2: masked words; v3: replaced-token detection with gradient-disentangled embeddings

transformers 5, which the key map follows: `DebertaV2ForMaskedLM` has no mask decoder, so a model with one is saved in
our own layout. Its legacy head (`cls.predictions`) and its other head (`lm_predictions`, in published files) compute
the same: both are read, and the legacy names are written. It has no class for the discriminator of v3; files may hold
its head (`mask_predictions`), and load(..., head="discriminator") opens it. Buckets are computed in float32, as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, SHARED_RULES, Family, register_family
from glassbert.checkpoints.fields import (
    MISSING,
    Fields,
    Rule,
    activation,
    falls_back,
    follows,
    named_activation,
    same,
    translated,
)
from glassbert.checkpoints.names import one, stacked
from glassbert.errors import CheckpointError, ConfigError
from glassbert.families.bert import BertWithHead
from glassbert.layers.disentangled import TERMS
from glassbert.models.config import EncoderConfig, activations
from glassbert.models.model import Model

# ---- config ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DebertaConfig(EncoderConfig):
    """DeBERTa v3, base size. `position_buckets` 0: a row for every distance up to `max_relative_positions`."""

    family: str = "deberta"
    vocab_size: int = 128_100
    layer_norm_eps: float = 1e-7
    positions: str = "relative"
    attention: str = "disentangled"
    pos_att_type: tuple[str, ...] = TERMS
    share_att_key: bool = True
    position_buckets: int = 256
    max_relative_positions: int = -1  # -1: max_position_embeddings
    relative_norm: bool = True
    conv_kernel_size: int = 0
    conv_activation: str = "tanh"
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    classifier_dropout: float = 0.1
    pooler: bool = True
    pooler_activation: str = "gelu"
    pooler_of_head: bool = True
    generator_width: float = 1.0
    generator_depth: float = 0.5
    generator_embeddings: str = "disentangled"
    discriminator_norm: bool = True

    def __post_init__(self) -> None:
        given: Any = self.pos_att_type
        terms = [given] if isinstance(given, str) else list(given)
        wrong = [term for term in terms if term not in TERMS]
        if wrong:
            raise ConfigError(f"pos_att_type has the terms {' and '.join(map(repr, TERMS))}, got {wrong[0]!r}")
        object.__setattr__(self, "pos_att_type", tuple(term for term in TERMS if term in terms))
        super().__post_init__()
        for name, least in (("position_buckets", 0), ("max_relative_positions", -1), ("conv_kernel_size", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} must be an integer of at least {least}, got {value!r}")
        if self.attention == "disentangled":
            if not self.pos_att_type:
                raise ConfigError("disentangled attention needs a pos_att_type: 'c2p', 'p2c' or both")
            half = self.position_buckets // 2
            if self.position_buckets and (half < 2 or self.furthest - 1 <= half < self.max_position_embeddings - 1):
                raise ConfigError(
                    f"position_buckets {self.position_buckets} must be at least 4, and half of it below the furthest "
                    f"distance of {self.furthest - 1} (max_relative_positions - 1) where rows may be longer"
                )
        elif self.position_buckets or self.pos_att_type or self.max_relative_positions > 0:
            raise ConfigError(
                f"position_buckets, max_relative_positions and pos_att_type belong to attention='disentangled', and "
                f"attention is {self.attention!r}; set them to 0, -1 and ()"
            )
        if self.conv_activation not in activations():
            raise ConfigError(
                f"conv_activation must be one of {', '.join(activations())}, got {self.conv_activation!r}"
            )
        if self.conv_kernel_size and (self.conv_kernel_size % 2 == 0 or self.norm_position != "post_convolution"):
            raise ConfigError(
                f"a convolution needs an odd conv_kernel_size and norm_position='post_convolution', got "
                f"{self.conv_kernel_size} and {self.norm_position!r}"
            )

    @property
    def furthest(self) -> int:
        """Distances count up to here, and the table has a row for each without buckets."""
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings

    @property
    def position_span(self) -> int:
        """The rows of the table for either sign."""
        return self.position_buckets or self.furthest

    @classmethod
    def get_base_config(cls) -> DebertaConfig:
        return cls()


DEBERTA_MINI_CONFIG = DebertaConfig(
    vocab_size=8_192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
    position_buckets=32,
    mask_decoder=True,
    generator_width=0.5,
    generator_depth=1.0,
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    classifier_dropout=0.0,
)
XLARGE = DebertaConfig(
    hidden_size=1_536,
    num_hidden_layers=24,
    num_attention_heads=24,
    intermediate_size=6_144,
    conv_kernel_size=3,
    conv_activation="gelu",
    norm_position="post_convolution",
)


class DebertaCore(Model):
    """A DeBERTa encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or DebertaConfig(), **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return DebertaCore if head is None else BertWithHead


# ---- their config.json -----------------------------------------------------------------------------------------------


def _relative(fields: Fields) -> bool:
    return fields.get("relative_attention", False) is True


def _read_positions(fields: Fields) -> str:
    learned = fields.get("position_biased_input", True)
    if _relative(fields):
        return "relative_learned" if learned else "relative"
    return "learned" if learned else "none"


def _write_positions(config: Any) -> dict[str, Any]:
    relative = config.attention == "disentangled"
    return {"relative_attention": relative, "position_biased_input": config.positions.endswith("learned")}


def _read_terms(fields: Fields) -> Any:
    given = fields.get("pos_att_type") or ()
    given = tuple(term.strip() for term in given.lower().split("|")) if isinstance(given, str) else tuple(given)
    if given and not _relative(fields):
        raise CheckpointError(
            "pos_att_type is set although relative_attention is false; transformers scales the scores by it all the "
            "same, which GlassBERT does not; remove it from config.json"
        )
    return given


def _number(key: str, missing: int) -> Any:
    """A number that is only read with relative attention; other values than a positive number mean `missing`."""

    def read(fields: Fields) -> Any:
        value = fields.get(key, -1)
        return value if _relative(fields) and isinstance(value, int) and value > 0 else missing

    return read


def _read_norm(fields: Fields) -> bool:
    kinds = [kind.strip() for kind in str(fields.get("norm_rel_ebd", "none")).lower().split("|")]
    return "layer_norm" in kinds


def _read_kernel(fields: Fields) -> int:
    return max(fields.get("conv_kernel_size") or 0, 0)


def _same_as_hidden(key: str) -> Rule:
    """A key of theirs that must repeat another one."""

    def read(fields: Fields) -> Any:
        hidden, heads = fields.get("hidden_size", 1_536), fields.get("num_attention_heads", 24)
        wanted = hidden // heads if key == "attention_head_size" else hidden
        if fields.get(key, wanted) not in (wanted, None):
            raise CheckpointError(f"{key} is {fields[key]!r}; GlassBERT supports only {wanted}")
        return MISSING

    return Rule(key, (key,), read, _nothing)


def _nothing(config: EncoderConfig) -> dict[str, Any]:
    return {}


LAYER = "{core}encoder.layer.{layer}."
WORDS = "{core}embeddings.word_embeddings.weight"
MLM = {
    "head.transform.{part}": one("cls.predictions.transform.dense.{part}"),
    "head.norm.{part}": one("cls.predictions.transform.LayerNorm.{part}"),
}
LM_HEAD = "lm_predictions.lm_head."

DEBERTA = register_family(
    Family(
        name="deberta",
        model_type="deberta-v2",
        config_class=DebertaConfig,
        architectures={
            "core": "DebertaV2Model",
            "mlm": "DebertaV2ForMaskedLM",
            "sequence": "DebertaV2ForSequenceClassification",
            "token": "DebertaV2ForTokenClassification",
            "span": "DebertaV2ForQuestionAnswering",
        },
        core_prefix="deberta.",
        core={
            "embeddings.token": one(WORDS),
            "embeddings.position": one("{core}embeddings.position_embeddings.weight"),
            "embeddings.token_type": one("{core}embeddings.token_type_embeddings.weight"),
            "embeddings.norm.{part}": one("{core}embeddings.LayerNorm.{part}"),
            "positions.relative": one("{core}encoder.rel_embeddings.weight"),
            "positions.norm.{part}": one("{core}encoder.LayerNorm.{part}"),
            "layers.0.convolution.{part}": one("{core}encoder.conv.conv.{part}"),
            "layers.0.convolution.norm.{part}": one("{core}encoder.conv.LayerNorm.{part}"),
            "layers.{layer}.attention.qkv.{part}": stacked(
                LAYER + "attention.self.query_proj.{part}",
                LAYER + "attention.self.key_proj.{part}",
                LAYER + "attention.self.value_proj.{part}",
            ),
            "layers.{layer}.attention.position_key.{part}": one(LAYER + "attention.self.pos_key_proj.{part}"),
            "layers.{layer}.attention.position_query.{part}": one(LAYER + "attention.self.pos_query_proj.{part}"),
            "layers.{layer}.attention.output.{part}": one(LAYER + "attention.output.dense.{part}"),
            "layers.{layer}.attention.norm.{part}": one(LAYER + "attention.output.LayerNorm.{part}"),
            "layers.{layer}.ffn.up.{part}": one(LAYER + "intermediate.dense.{part}"),
            "layers.{layer}.ffn.down.{part}": one(LAYER + "output.dense.{part}"),
            "layers.{layer}.ffn.norm.{part}": one(LAYER + "output.LayerNorm.{part}"),
        },
        heads={
            "core": {},
            "mlm": {
                **MLM,
                "embeddings.token": one(WORDS, tied=("cls.predictions.decoder.weight",)),
                "head.decoder.bias": one("cls.predictions.bias", tied=("cls.predictions.decoder.bias",)),
            },
            "mlm_untied": {
                **MLM,
                "head.decoder.weight": one("cls.predictions.decoder.weight"),
                "head.decoder.bias": one("cls.predictions.decoder.bias", copies=("cls.predictions.bias",)),
            },
            "discriminator": {
                "head.transform.{part}": one("mask_predictions.dense.{part}"),
                "head.norm.{part}": one("mask_predictions.LayerNorm.{part}"),
                "head.classifier.{part}": one("mask_predictions.classifier.{part}"),
            },
            "sequence": {**CLASSIFIER, "pooler.{part}": one("pooler.dense.{part}")},
            "token": CLASSIFIER,
            "span": {"head.classifier.{part}": one("qa_outputs.{part}")},
        },
        rules=(
            *SHARED_RULES,
            Rule("", ("legacy",), lambda fields: MISSING, lambda config: {"legacy": True}),
            same("type_vocab_size"),
            same("layer_norm_eps"),
            activation("hidden_act"),
            Rule("positions", ("relative_attention", "position_biased_input"), _read_positions, _write_positions),
            Rule("attention", (), lambda fields: "disentangled" if _relative(fields) else "self", _nothing),
            translated("pos_att_type", "pos_att_type", _read_terms, lambda terms: list(terms[::-1])),
            translated("share_att_key", "share_att_key", lambda fields: fields.get("share_att_key", False)),
            translated("position_buckets", "position_buckets", _number("position_buckets", 0), lambda n: n or -1),
            translated("max_relative_positions", "max_relative_positions", _number("max_relative_positions", -1)),
            translated("relative_norm", "norm_rel_ebd", _read_norm, lambda norm: "layer_norm" if norm else "none"),
            translated("conv_kernel_size", "conv_kernel_size", _read_kernel),
            Rule("norm_position", (), lambda fields: "post_convolution" if _read_kernel(fields) else "post", _nothing),
            named_activation("conv_activation", "conv_act", "tanh"),
            named_activation("pooler_activation", "pooler_hidden_act", "gelu"),
            same("pooler_dropout"),
            same("hidden_dropout", "hidden_dropout_prob"),
            follows("embedding_dropout", "hidden_dropout_prob"),
            same("attention_dropout", "attention_probs_dropout_prob"),
            falls_back("classifier_dropout", "cls_dropout", "hidden_dropout_prob"),
            *(_same_as_hidden(key) for key in ("embedding_size", "pooler_hidden_size", "attention_head_size")),
        ),
        supported_values={**COMMON_KEYS, "conv_groups": (None, 1)},
        renamed={
            **{f"{LM_HEAD}dense.{part}": f"cls.predictions.transform.dense.{part}" for part in ("weight", "bias")},
            **{
                f"{LM_HEAD}LayerNorm.{part}": f"cls.predictions.transform.LayerNorm.{part}"
                for part in ("weight", "bias")
            },
            f"{LM_HEAD}bias": "cls.predictions.bias",
        },
        # _weight is the Δ of v3, which word_embeddings.weight contains already.
        not_weights=("embeddings.position_ids", "embeddings.*._weight"),
        pretraining_only=(
            "embeddings.position_embeddings.weight",  # of the mask decoder
            "mask_predictions.dense.{part}",
            "mask_predictions.LayerNorm.{part}",
            "mask_predictions.classifier.{part}",
            "cls.predictions.transform.dense.{part}",
            "cls.predictions.transform.LayerNorm.{part}",
            "cls.predictions.bias",
        ),
        presets={
            "deberta-mini": DEBERTA_MINI_CONFIG,
            "deberta-v2-xlarge": XLARGE,
            "deberta-v3-xsmall": DebertaConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1_536),
            "deberta-v3-small": DebertaConfig(num_hidden_layers=6),
            "deberta-v3-base": DebertaConfig(),
            "deberta-v3-large": DebertaConfig(
                hidden_size=1_024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4_096
            ),
        },
        title="DeBERTa v2 / v3",
        paper="He, Liu, Gao and Chen, 2021: DeBERTa: Decoding-enhanced BERT with Disentangled Attention; He, Gao and "
        "Chen, 2023: DeBERTaV3: Improving DeBERTa using ELECTRA-Style Pre-Training with Gradient-Disentangled "
        "Embedding Sharing",
        differences={
            "positions": "relative, in logarithmic buckets; one table for all layers; no token types",
            "attention": "content to content, content to position and position to content; scale 1/√(3d)",
            "convolution": "v2-xlarge has one beside the first layer",
            "mask decoder": "absolute positions enter at the last layer of a masked language model, which runs twice",
            "pooler": "none in the bare encoder; dense and GELU before the classifier of a sequence",
            "pretraining": "v2: masked words; v3: replaced-token detection, where no gradient of the discriminator "
            "reaches the generator's embeddings",
        },
        formulas="""\
score(i, j)      (q_i · k_j + q_i · K_r[δ(i-j)] + k_j · Q_r[δ(i-j)]) / √(3d)
positions        K_r = P W_kᵀ, Q_r = P W_qᵀ         P: norm of the table of distances
buckets          δ(r) = r near, then half + ⌈log(|r| / half) / log((max - 1) / half) · (half - 1)⌉
mask decoder     z = h + absolute positions;  z = layer(queries z, keys and values h), twice
v3               E_discriminator = stop_gradient(E_generator) + Δ""",
        mini="deberta-mini",
        objective="rtd",
        training={"mask_rate": 0.15, "final_mask_rate": None},
        class_for=class_for,
    )
)
