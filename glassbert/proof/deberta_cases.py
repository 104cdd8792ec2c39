"""Cases of DeBERTa: disentangled attention, the convolution beside the first layer, the mask decoder."""

from __future__ import annotations

from typing import Any

from glassbert.families.deberta import DebertaConfig
from glassbert.layers.attention import AttentionContext
from glassbert.layers.convolution import ConvolutionBlock
from glassbert.layers.disentangled import DisentangledAttention
from glassbert.layers.scope import Parameter
from glassbert.proof.attention_cases import pattern_on
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import (
    DROPOUT,
    MASK,
    NO_DROPOUT,
    TYPES,
    Rng,
    embeddings_fixture,
    layer_fixture,
    tiny_tiles,
)
from glassbert.proof.model_cases import MLM_LABELS, PACKED, PADDED, TOKEN_LABELS, register

TINY_DEBERTA = DebertaConfig(
    vocab_size=11, hidden_size=6, num_hidden_layers=2, num_attention_heads=2, intermediate_size=7,
    max_position_embeddings=8, pad_token_id=None, position_buckets=4, **NO_DROPOUT,
)  # fmt: skip
DROPPED = TINY_DEBERTA.replace(**DROPOUT)
OWN_MAPS = TINY_DEBERTA.replace(share_att_key=False)
CONVOLUTION = TINY_DEBERTA.replace(conv_kernel_size=3, conv_activation="gelu", norm_position="post_convolution")
NO_EFFECT = "position_key.bias"  # it adds the same to all scores of a query, which softmax ignores
DECODER = TINY_DEBERTA.replace(mask_decoder=True)
THREADED: dict[str, Any] = {"training": True, "threads": 2}


def with_table(rng: Rng, config: DebertaConfig, layer: Any, **options: Any) -> Fixture:
    """An attention or a block; the table of distances is a parameter, whose gradient is accumulated under a name."""

    def context(engine: Any, scope: Any) -> AttentionContext:
        return AttentionContext(pattern_on(engine, keys=MASK), None, scope.parameter("table"), "positions.d_bias")

    def backward(engine: Any, dy: Any, scope: Any) -> Any:
        scope.cache.stored.pop("positions.d_bias", None)
        dx = layer.backward(dy, scope, context(engine, scope))
        scope.add("table", scope.cache["positions.d_bias"])
        return dx

    return layer_fixture(
        rng,
        [*layer.parameters(), Parameter("table", (2 * config.position_span, config.hidden_size), "weight")],
        lambda engine, x, scope: layer.forward(x, scope, context(engine, scope)),
        backward,
        (3, 5, config.hidden_size),
        **options,
    )


case("layer", "disentangled attention", "shared maps")(
    lambda rng: with_table(rng, TINY_DEBERTA, DisentangledAttention(TINY_DEBERTA))
)
case("layer", "disentangled attention", "dropout of the table")(
    lambda rng: with_table(rng, DROPPED, DisentangledAttention(DROPPED), dropout=True)
)
case("layer", "convolution layer", "first layer")(
    lambda rng: with_table(rng, CONVOLUTION, ConvolutionBlock(CONVOLUTION, 0))
)
case("layer", "convolution layer", "second layer, which has none")(
    lambda rng: with_table(rng, CONVOLUTION, ConvolutionBlock(CONVOLUTION, 1))
)
case("layer", "embeddings", "relative positions: tokens alone")(lambda rng: embeddings_fixture(rng, TINY_DEBERTA))
case("layer", "embeddings", "relative and learned positions")(
    lambda rng: embeddings_fixture(rng, TINY_DEBERTA.replace(positions="relative_learned"))
)

register("deberta", "encoder, shared maps, buckets, ragged", TINY_DEBERTA, inputs=PADDED)
register("deberta", "encoder, one token", TINY_DEBERTA, ids=[[3]])
register("deberta", "encoder, own maps, content to position, dropout, two threads",
         OWN_MAPS.replace(pos_att_type=("c2p",), **DROPOUT), inputs=PADDED, constant=NO_EFFECT, **THREADED)  # fmt: skip
register("deberta", "encoder, own maps, both terms, no norm of the table", OWN_MAPS.replace(relative_norm=False),
         inputs=PADDED, constant=NO_EFFECT)  # fmt: skip
register("deberta", "encoder, shared maps, position to content, a row for every distance up to 3",
         TINY_DEBERTA.replace(pos_att_type=("p2c",), position_buckets=0, max_relative_positions=3),
         inputs=PADDED)  # fmt: skip
register("deberta", "encoder, learned positions and token types as well",
         TINY_DEBERTA.replace(positions="relative_learned", type_vocab_size=2),
         inputs={**PADDED, "token_type_ids": TYPES})  # fmt: skip
register("deberta", "encoder, padding skipped, two threads", TINY_DEBERTA, inputs={**PADDED, "skip_padding": True},
         threads=2, on_mlx=False)  # fmt: skip
register("deberta", "encoder, tiled, packed", TINY_DEBERTA, inputs=PACKED, around=tiny_tiles)
register("deberta", "encoder, dropout, checkpointing", TINY_DEBERTA.replace(**DROPOUT), inputs=PADDED, training=True,
         checkpointing=True)  # fmt: skip
register("deberta", "mlm, tied", TINY_DEBERTA, "mlm", labels=MLM_LABELS, inputs=PADDED)
register("convolution layer", "encoder, ragged", CONVOLUTION, inputs=PADDED)
register("convolution layer", "token labels, packed, dropout, two threads", CONVOLUTION.replace(**DROPOUT), "token",
         num_labels=3, labels=TOKEN_LABELS, inputs=PACKED, **THREADED)  # fmt: skip
register("convolution layer", "encoder, padding skipped, checkpointing",
         CONVOLUTION.replace(conv_kernel_size=5, conv_activation="tanh"), inputs={**PADDED, "skip_padding": True},
         checkpointing=True, on_mlx=False)  # fmt: skip
register("mask decoder", "mlm, tied, ragged", DECODER, "mlm", labels=MLM_LABELS, inputs=PADDED)
register("mask decoder", "mlm, packed, dropout, two threads, checkpointing", DECODER.replace(**DROPOUT), "mlm",
         labels=MLM_LABELS, inputs=PACKED, checkpointing=True, **THREADED)  # fmt: skip
register("mask decoder", "mlm, one layer, untied", DECODER.replace(num_hidden_layers=1, tie_word_embeddings=False),
         "mlm", labels=MLM_LABELS, inputs=PADDED)  # fmt: skip
