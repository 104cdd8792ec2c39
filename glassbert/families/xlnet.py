"""XLNet: permutation language modelling by two streams, relative positions, and a memory of earlier segments.

Differs from BERT in
    attention       scores have three terms: content, distance and whether two tokens are in the same part of the text
    positions       sinusoids of the distance, projected in every layer; no limit of the length
    streams         in pretraining every token has a content vector, which sees the token itself, and a predicted token
                    also has a query vector, which sees its position and what was predicted before it
    memory          the hidden states of earlier segments are keys and values for later ones; they get no gradient
    token types     only their equality counts, and 0 to 4 are used (3 and 4 for <cls> and padding)
    biases          none in the attention but three learned queries
    head            tied, with a bias, without transform; sequences are classified by their last token
    padding         its tokenizer pads on the left, so that the last token is the last of the text

The formulas, with query i of T after M tokens in the memory, and R_n the sinusoid of distance n:

    score(i, j) = ((q_i + u) k_j + (q_i + w) W_r R_(i-j) + (q_i + s) e_[part(i) != part(j)]) / sqrt(d)
    content stream:  q from h_i;   attends to j = i, to what is given, and to what is predicted before i
    query stream:    q from g_i;   the same without j = i; keys and values always come from the content stream
"""

from __future__ import annotations

from dataclasses import dataclass

from glassbert.checkpoints.family import COMMON_KEYS, Family, register_family
from glassbert.checkpoints.fields import activation, follows, same
from glassbert.checkpoints.names import by_heads, one
from glassbert.families.bert import BertWithHead
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class XLNetConfig(EncoderConfig):
    """XLNet: two-stream attention, distances, a memory of hidden states."""

    family: str = "xlnet"
    vocab_size: int = 32_000
    hidden_size: int = 1_024
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    intermediate_size: int = 4_096
    type_vocab_size: int = 5
    pad_token_id: int | None = 5
    frozen_padding: bool = False
    embeddings: str = "two_streams"
    positions: str = "distances"
    attention: str = "two_streams"
    attention_bias: bool = False
    embedding_norm: bool = False
    memory_length: int | None = 512
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    ffn_dropout: float = 0.1
    classifier_dropout: float = 0.1
    head_transform: bool = False
    pooler: bool = True
    pooler_of_head: bool = True
    classifier_pooling: str = "last"

    @classmethod
    def get_base_config(cls) -> XLNetConfig:
        return cls(
            hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3_072, memory_length=None
        )

    @classmethod
    def get_large_config(cls) -> XLNetConfig:
        return cls(memory_length=None)


XLNET_MINI = XLNetConfig(
    vocab_size=8_192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
    pad_token_id=0,
    memory_length=64,
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    ffn_dropout=0.0,
    classifier_dropout=0.0,
)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return Model if head is None else BertWithHead


LAYER = "{core}layer.{layer}."
WORDS = "{core}word_embedding.weight"
BIAS = {"head.decoder.bias": one("lm_loss.bias")}

XLNET = register_family(
    Family(
        name="xlnet",
        config_class=XLNetConfig,
        architectures={
            "core": "XLNetModel",
            "mlm": "XLNetLMHeadModel",
            "sequence": "XLNetForSequenceClassification",
            "token": "XLNetForTokenClassification",
            "span": "XLNetForQuestionAnsweringSimple",
        },
        core_prefix="transformer.",
        core={
            "embeddings.token": one(WORDS),
            "embeddings.query": one("{core}mask_emb"),
            "layers.{layer}.attention.qkv.weight": by_heads(*(LAYER + f"rel_attn.{name}" for name in "qkv")),
            "layers.{layer}.attention.output.weight": by_heads(LAYER + "rel_attn.o", transposed=False),
            "layers.{layer}.attention.position.weight": by_heads(LAYER + "rel_attn.r"),
            "layers.{layer}.attention.content_query": one(LAYER + "rel_attn.r_w_bias"),
            "layers.{layer}.attention.position_query": one(LAYER + "rel_attn.r_r_bias"),
            "layers.{layer}.attention.segment_query": one(LAYER + "rel_attn.r_s_bias"),
            "layers.{layer}.attention.segment": one(LAYER + "rel_attn.seg_embed"),
            "layers.{layer}.attention.norm.{part}": one(LAYER + "rel_attn.layer_norm.{part}"),
            "layers.{layer}.ffn.up.{part}": one(LAYER + "ff.layer_1.{part}"),
            "layers.{layer}.ffn.down.{part}": one(LAYER + "ff.layer_2.{part}"),
            "layers.{layer}.ffn.norm.{part}": one(LAYER + "ff.layer_norm.{part}"),
        },
        heads={
            "core": {},
            "mlm": {"embeddings.token": one(WORDS, tied=("lm_loss.weight",)), **BIAS},
            "mlm_untied": {"head.decoder.weight": one("lm_loss.weight"), **BIAS},
            "sequence": {
                "pooler.{part}": one("sequence_summary.summary.{part}"),
                "head.classifier.{part}": one("logits_proj.{part}"),
            },
            "token": {"head.classifier.{part}": one("classifier.{part}")},
            "span": {"head.classifier.{part}": one("qa_outputs.{part}")},
        },
        rules=(
            same("vocab_size"),
            same("hidden_size", "d_model"),
            same("num_hidden_layers", "n_layer"),
            same("num_attention_heads", "n_head"),
            same("intermediate_size", "d_inner"),
            same("pad_token_id"),
            same("initializer_range"),
            same("tie_word_embeddings"),
            same("layer_norm_eps"),
            activation("ff_activation"),
            same("memory_length", "mem_len"),
            same("hidden_dropout", "dropout"),
            *(follows(name, "dropout") for name in ("embedding_dropout", "attention_dropout", "ffn_dropout")),
            same("classifier_dropout", "summary_last_dropout"),
        ),
        # The dropout of the table of distances, a tenth of its entries in transformers, is left out.
        supported_values={
            **COMMON_KEYS,
            "attn_type": (None, "bi"),
            "bi_data": (None, False),
            "clamp_len": (None, -1),
            "same_length": (None, False),
            "reuse_len": (None, 0),
            "summary_type": (None, "last"),
            "summary_use_proj": (None, True),
            "summary_activation": (None, "tanh"),
        },
        token_ids={"bos_token_id": 1, "eos_token_id": 2},
        presets={
            "xlnet-base": XLNetConfig.get_base_config(),
            "xlnet-large": XLNetConfig.get_large_config(),
            "xlnet-mini": XLNET_MINI,
        },
        title="XLNet",
        paper="Yang et al. 2019, XLNet: Generalized Autoregressive Pretraining for Language Understanding",
        differences={
            "objective": "tokens are predicted in a random order, each from those before it in that order",
            "attention": "two streams: content sees its token, the query stream only its position",
            "positions": "distances in every layer, no limit of the length",
            "memory": "hidden states of earlier segments as keys and values, without a gradient",
            "token types": "only whether two tokens are in the same part",
            "sequences": "the last token is classified",
        },
        formulas="""\
score(i, j) = ((q_i + u) k_j + (q_i + w) W_r R_(i-j) + (q_i + s) e_[part(i) != part(j)]) / sqrt(d)
h_i = attention(q from h_i; keys, values from memory and h_j with order_j < order_i or j = i)
g_i = attention(q from g_i; keys, values from memory and h_j with order_j < order_i)
loss = - mean over predicted i of log softmax(g_i E^T + b)[token_i]""",
        mini="xlnet-mini",
        objective="plm",
        tokenizer="unigram",
        training={"mask_rate": 1 / 6, "final_mask_rate": None, "segments": 2},
        class_for=class_for,
    )
)
