"""GPT-2: an encoder that reads from left to right and predicts the next token.

Differs from BERT in
    attention       causal: a token attends to itself and to earlier tokens
    blocks          the norm is before each branch and after the last block, none after the embeddings
    activation      the tanh form of GELU
    embeddings      no token types; the embedding of padding is trained like any other
    head            scores for the next token, tied to the embeddings, without transform and without bias
    sequences       the last real token is classified: it is the only one that has seen all others
    files           matrices are stored as [input, output]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import COMMON_KEYS, Family, register_family
from glassbert.checkpoints.fields import MISSING, Fields, Rule, activation, falls_back, same
from glassbert.checkpoints.names import one, transposed
from glassbert.families.bert import BertWithHead
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class Gpt2Config(EncoderConfig):
    """GPT-2: causal, pre-norm, learned positions, the next token as objective."""

    family: str = "gpt2"
    vocab_size: int = 50_257
    max_position_embeddings: int = 1_024
    pad_token_id: int | None = None
    frozen_padding: bool = False
    causal: bool = True
    norm_position: str = "pre"
    embedding_norm: bool = False
    final_norm: bool = True
    layer_norm_eps: float = 1e-5
    activation: str = "gelu_tanh"
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    classifier_dropout: float = 0.1
    initializer: str = "depth_scaled"
    head_transform: bool = False
    decoder_bias: bool = False
    classifier_pooling: str = "last"
    sequence_bias: bool = False

    @classmethod
    def get_base_config(cls) -> Gpt2Config:
        return cls()


def sized(layers: int, width: int, heads: int) -> Gpt2Config:
    return Gpt2Config(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width
    )


GPT2_MINI = sized(3, 192, 4).replace(
    vocab_size=8_192,
    max_position_embeddings=64,
    pad_token_id=0,
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    classifier_dropout=0.0,
)


def inner_size() -> Rule:
    """n_inner is null where it is four times the width."""

    def read(fields: Fields) -> Any:
        inner, width = fields.get("n_inner"), fields.get("n_embd", fields.get("hidden_size"))
        return (MISSING if width is None else 4 * width) if inner is None else inner

    def write(config: EncoderConfig) -> dict[str, Any]:
        inner = config.intermediate_size
        return {"n_inner": None if inner == 4 * config.hidden_size else inner}

    return Rule("intermediate_size", ("n_inner",), read, write)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return Model if head is None else BertWithHead


LAYER = "{core}h.{layer}."
WORDS = "{core}wte.weight"
TIED = {"embeddings.token": one(WORDS, tied=("lm_head.weight",))}
UNTIED = {"head.decoder.weight": one("lm_head.weight")}

GPT2 = register_family(
    Family(
        name="gpt2",
        config_class=Gpt2Config,
        architectures={
            "core": "GPT2Model",
            "causal": "GPT2LMHeadModel",
            "sequence": "GPT2ForSequenceClassification",
            "token": "GPT2ForTokenClassification",
            "span": "GPT2ForQuestionAnswering",
        },
        core_prefix="transformer.",
        core={
            "embeddings.token": one(WORDS),
            "embeddings.position": one("{core}wpe.weight"),
            "layers.{layer}.attention.norm.{part}": one(LAYER + "ln_1.{part}"),
            "layers.{layer}.attention.qkv.{part}": transposed(LAYER + "attn.c_attn.{part}"),
            "layers.{layer}.attention.output.{part}": transposed(LAYER + "attn.c_proj.{part}"),
            "layers.{layer}.ffn.norm.{part}": one(LAYER + "ln_2.{part}"),
            "layers.{layer}.ffn.up.{part}": transposed(LAYER + "mlp.c_fc.{part}"),
            "layers.{layer}.ffn.down.{part}": transposed(LAYER + "mlp.c_proj.{part}"),
            "final_norm.{part}": one("{core}ln_f.{part}"),
        },
        heads={
            "core": {},
            "causal": TIED,
            "causal_untied": UNTIED,
            "sequence": {"head.classifier.{part}": one("score.{part}")},
            "token": {"head.classifier.{part}": one("classifier.{part}")},
            "span": {"head.classifier.{part}": one("qa_outputs.{part}")},
        },
        rules=(
            same("vocab_size"),
            same("hidden_size", "n_embd"),
            same("num_hidden_layers", "n_layer"),
            same("num_attention_heads", "n_head"),
            inner_size(),
            same("max_position_embeddings", "n_positions"),
            same("pad_token_id"),
            same("initializer_range"),
            same("tie_word_embeddings"),
            same("layer_norm_eps", "layer_norm_epsilon"),
            activation("activation_function"),
            same("embedding_dropout", "embd_pdrop"),
            same("attention_dropout", "attn_pdrop"),
            same("hidden_dropout", "resid_pdrop"),
            falls_back("classifier_dropout", "classifier_dropout", "hidden_dropout"),
        ),
        supported_values={
            **COMMON_KEYS,
            "scale_attn_weights": (None, True),
            "scale_attn_by_inverse_layer_idx": (None, False),
        },
        token_ids={"bos_token_id": 50_256, "eos_token_id": 50_256},
        not_weights=("h.*.attn.bias", "h.*.attn.masked_bias"),
        presets={
            "gpt2": Gpt2Config.get_base_config(),
            "gpt2-medium": sized(24, 1_024, 16),
            "gpt2-large": sized(36, 1_280, 20),
            "gpt2-xl": sized(48, 1_600, 25),
            "gpt2-mini": GPT2_MINI,
        },
        title="GPT-2",
        paper="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
        differences={
            "attention": "causal: a token attends to itself and to earlier tokens",
            "blocks": "pre-norm, a norm after the last block, none after the embeddings",
            "activation": "GELU by tanh",
            "embeddings": "no token types",
            "head": "the next token, tied, without transform and bias",
            "sequences": "the last real token is classified",
        },
        formulas="""\
loss = - mean over t of log softmax(x_t E^T)[token_(t+1)]      E: the token embeddings
scores(i, j) = q_i k_j / sqrt(d)   for j <= i, none for j > i
x = x + attention(norm(x));  x = x + ffn(norm(x));  output = norm(x)
With a cache, token t computes q_t, k_t, v_t alone and attends to the stored k_1..k_t, v_1..v_t.""",
        mini="gpt2-mini",
        objective="clm",
        head="causal",
        tokenizer="bpe",
        class_for=class_for,
    )
)
