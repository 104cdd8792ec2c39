"""ModernBERT: rotary positions, pre-norm blocks, GeGLU, no biases, and local attention in two of three layers.

Differs from BERT in
    positions       rotary instead of learned; no token types
    blocks          the norm is before each branch and after the last block; the first has none before its attention
    feed-forward    GeGLU: one half of the hidden features gates the other
    attention       layers attend to 64 tokens on each side, every third layer attends to all tokens
    biases          none but that of the decoder
    classifiers     dense, activation and norm before the classifier; no pooler
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, SHARED_RULES, Family, register_family
from glassbert.checkpoints.fields import (
    GLOBAL,
    LOCAL,
    activation,
    global_attention_every,
    local_window,
    rope_theta,
    same,
)
from glassbert.checkpoints.names import one
from glassbert.families.bert import BertWithHead
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """ModernBERT: rotary positions, pre-norm, GeGLU, no biases, a window of 128 tokens in two of three layers."""

    family: str = "modernbert"
    vocab_size: int = 50_368
    num_hidden_layers: int = 22
    intermediate_size: int = 1_152
    max_position_embeddings: int = 8_192
    pad_token_id: int | None = 50_283
    positions: str = "rotary"
    norm_position: str = "pre"
    skip_first_norm: bool = True
    final_norm: bool = True
    layer_norm_eps: float = 1e-5
    feed_forward: str = "gated"
    attention_bias: bool = False
    ffn_bias: bool = False
    norm_bias: bool = False
    local_window: int | None = 64
    global_attention_every: int = 3
    initializer: str = "depth_scaled"
    head_bias: bool = False
    classifier_transform: bool = True
    span_dropout: bool = True

    @classmethod
    def get_base_config(cls) -> ModernBertConfig:
        return cls()

    @classmethod
    def get_large_config(cls) -> ModernBertConfig:
        return cls(hidden_size=1_024, num_hidden_layers=28, num_attention_heads=16, intermediate_size=2_624)


MODERNBERT_MINI_CONFIG = ModernBertConfig(
    vocab_size=8_192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=288,
    max_position_embeddings=64,
    pad_token_id=0,
)


class ModernBertCore(Model):
    """A ModernBERT encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or ModernBertConfig.get_base_config(), **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return ModernBertCore if head is None else BertWithHead


MODERN_LAYER = "{core}layers.{layer}."
MODERN_TRANSFORM = {"head.transform.{part}": one("head.dense.{part}"), "head.norm.{part}": one("head.norm.{part}")}
MODERN_WORDS = "{core}embeddings.tok_embeddings.weight"
MODERN_TIED = {
    **MODERN_TRANSFORM,
    "embeddings.token": one(MODERN_WORDS, tied=("decoder.weight",)),
    "head.decoder.bias": one("decoder.bias"),
}
MODERN_UNTIED = {**MODERN_TRANSFORM, "head.decoder.{part}": one("decoder.{part}")}

# attention_dropout: transformers applies it to the attention weights and to the attention's output, GlassBERT only to
# the weights. Our hidden_dropout also applies to the feed-forward output, so it is not translated.
MODERNBERT = register_family(
    Family(
        name="modernbert",
        config_class=ModernBertConfig,
        architectures={
            "core": "ModernBertModel",
            "mlm": "ModernBertForMaskedLM",
            "sequence": "ModernBertForSequenceClassification",
            "token": "ModernBertForTokenClassification",
            "span": "ModernBertForQuestionAnswering",
        },
        core_prefix="model.",
        core={
            "embeddings.token": one(MODERN_WORDS),
            "embeddings.norm.{part}": one("{core}embeddings.norm.{part}"),
            "layers.{layer}.attention.qkv.{part}": one(MODERN_LAYER + "attn.Wqkv.{part}"),
            "layers.{layer}.attention.output.{part}": one(MODERN_LAYER + "attn.Wo.{part}"),
            "layers.{layer}.attention.norm.{part}": one(MODERN_LAYER + "attn_norm.{part}"),
            "layers.{layer}.ffn.up.{part}": one(MODERN_LAYER + "mlp.Wi.{part}"),
            "layers.{layer}.ffn.down.{part}": one(MODERN_LAYER + "mlp.Wo.{part}"),
            "layers.{layer}.ffn.norm.{part}": one(MODERN_LAYER + "mlp_norm.{part}"),
            "final_norm.{part}": one("{core}final_norm.{part}"),
        },
        heads={
            "core": {},
            "mlm": MODERN_TIED,
            "mlm_untied": MODERN_UNTIED,
            "pretraining": MODERN_TIED,  # transformers has no class with a pair head: a file has only the MLM part
            "pretraining_untied": MODERN_UNTIED,
            "sequence": {**MODERN_TRANSFORM, **CLASSIFIER},
            "token": {**MODERN_TRANSFORM, **CLASSIFIER},
            "span": {**MODERN_TRANSFORM, **CLASSIFIER},
        },
        rules=(
            *SHARED_RULES,
            same("layer_norm_eps", "norm_eps"),
            same("norm_bias"),
            same("attention_bias"),
            same("ffn_bias", "mlp_bias"),
            same("head_bias", "classifier_bias"),
            same("decoder_bias"),
            same("classifier_pooling"),
            activation("hidden_activation", "classifier_activation"),
            same("embedding_dropout"),
            same("attention_dropout"),
            same("ffn_dropout", "mlp_dropout"),
            same("classifier_dropout"),
            local_window(),
            global_attention_every(),
            rope_theta("global_rope_theta", GLOBAL),
            rope_theta("local_rope_theta", LOCAL),
        ),
        # Published files have position_embedding_type "absolute", which transformers ignores for this family.
        supported_values={**COMMON_KEYS, "rope_scaling": (None, {}), "classifier_pooling": (None, "cls", "mean")},
        equal_keys=dict.fromkeys(
            ("mlm", "pretraining", "sequence", "token", "span"),
            ((("classifier_activation", "hidden_activation"), "gelu"),),
        ),
        token_ids={"bos_token_id": 50_281, "cls_token_id": 50_281, "eos_token_id": 50_282, "sep_token_id": 50_282},
        not_weights=("*rotary_emb*inv_freq",),
        presets={
            "modernbert-base": ModernBertConfig.get_base_config(),
            "modernbert-large": ModernBertConfig.get_large_config(),
            "modernbert-mini": MODERNBERT_MINI_CONFIG,
        },
        title="ModernBERT",
        paper="Warner, Chaffin, Clavié, Weller and others, 2024: Smarter, Better, Faster, Longer: A Modern "
        "Bidirectional Encoder",
        differences={
            "positions": "rotary: queries and keys are rotated by an angle that grows with the place; no token types",
            "attention": "64 tokens on each side; every third layer attends to all tokens",
            "blocks": "the norm is before each branch (pre-norm), GeGLU, no biases",
            "classifiers": "dense, GELU and norm before the classifier; no pooler",
            "pretraining": "masked words only, 30 % of them, rows of up to 8,192 tokens",
        },
        formulas="""\
rotary           q'_t = R(t θ) q_t,  k'_s = R(s θ) k_s               so q'_t · k'_s depends on t - s only
local            score(t, s) = -∞ where |t - s| > 64                 in two of three layers
GeGLU            W₂ (gelu(a) ⊙ g)                                    [a, g] = W₁ x
block            y = x + attention(LN(x));  z = y + GeGLU(LN(y))""",
        mini="modernbert-mini",
        class_for=class_for,
    )
)
