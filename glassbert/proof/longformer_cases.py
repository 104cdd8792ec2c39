"""Cases and planted faults of Longformer: chosen tokens, windows with keys that are always in them, global tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.kernels import backward
from glassbert.families.longformer import INDEX, SLOT, LongformerConfig, WindowAndGlobalAttention
from glassbert.layers.attention import AttentionContext
from glassbert.models.encoder import Batch
from glassbert.ops import AttentionPattern, put_tokens_backward, take_tokens_backward, tiled_attention_backward
from glassbert.proof.attention_cases import BATCH, HEADS, LENGTH
from glassbert.proof.attention_cases import register as register_attention
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import DROPOUT, IDS, MASK, NO_DROPOUT, SEGMENTS, Rng, layer_fixture, tiny_tiles
from glassbert.proof.model_cases import MLM_LABELS, register
from glassbert.proof.mutants import wrong, wrong_in

TINY_LONGFORMER = LongformerConfig(
    vocab_size=11, hidden_size=6, num_hidden_layers=2, num_attention_heads=2, intermediate_size=7,
    max_position_embeddings=9, pad_token_id=2, sep_token_id=1, local_window=1, **NO_DROPOUT,
)  # fmt: skip
CHOSEN = np.array([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]])  # two global tokens, none, one
PLACES: dict[str, Any] = {
    INDEX: np.array([[0, 3], [-1, -1], [1, -1]]),
    SLOT: np.array([[0, -1, -1, 1, -1], [-1] * 5, [-1, 0, -1, -1, -1]]),
}


# ---- chosen tokens ---------------------------------------------------------------------------------------------------


def take_fixture(rng: Rng, shape: tuple[int, ...]) -> Fixture:
    def function(engine, inputs):
        index, slot = (engine.integers(PLACES[name]) for name in (INDEX, SLOT))
        y, state = engine.ops.take_tokens(inputs["x"], index, slot)
        return y, lambda dy: {"x": backward(dy, state)}

    return Fixture({"x": rng.standard_normal(shape)}, function)


def put_fixture(rng: Rng, rest: tuple[int, ...]) -> Fixture:
    def function(engine, inputs):
        index, slot = (engine.integers(PLACES[name]) for name in (INDEX, SLOT))
        z, state = engine.ops.put_tokens(inputs["x"], inputs["y"], index, slot)
        return z, lambda dz: dict(zip(("x", "y"), backward(dz, state), strict=True))

    return Fixture({"x": rng.standard_normal((3, 5, *rest)), "y": rng.standard_normal((3, 2, *rest))}, function)


case("op", "take_tokens", "two, none and one of a row")(lambda rng: take_fixture(rng, (3, 5, 4)))
case("op", "take_tokens", "heads of tokens")(lambda rng: take_fixture(rng, (3, 5, 2, 3)))
case("op", "put_tokens", "two, none and one of a row")(lambda rng: put_fixture(rng, (4,)))


@wrong("take_tokens_backward", "take tokens: the first token gets the gradient of rows that have fewer")
def _(dy, slot):
    return take_tokens_backward(dy, np.where(slot < 0, 0, slot))


@wrong("put_tokens_backward", "put tokens: what was overwritten gets a gradient as well")
def _(dz, state):
    _, dy = put_tokens_backward(dz, state)
    return dz, dy


@wrong("put_tokens_backward", "put tokens: what was put gets no gradient")
def _(dz, state):
    dx, dy = put_tokens_backward(dz, state)
    return dx, 0.0 * dy


# ---- windows with keys that are always in them -----------------------------------------------------------------------

# Seven queries at the end of nine keys: the first two keys are in every window, one of them is padding in a row.
KEYS = np.ones((BATCH, LENGTH + 2), int)
KEYS[0, 1] = KEYS[1, 6:] = KEYS[2, 3] = 0
_WIDE: dict[str, Any] = {"shape": (BATCH, HEADS, LENGTH, 4), "keys": LENGTH + 2}
register_attention("window and keys that are always in it", {"window": 1, "offset": 2, "always": 2}, **_WIDE)
register_attention(
    "window, keys that are always in it, padding", {"window": 1, "offset": 2, "always": 2, "keys": KEYS}, **_WIDE
)


@wrong(
    "tiled_attention_backward", "tiled attention: keys that are always in the window are left out in backward",
    "tiled_attention: window and keys",
)  # fmt: skip
def _(dcontext, state):
    q, k, v, context, lse, pattern, *rest = state
    alone = AttentionPattern(pattern.keys, pattern.segments, pattern.window, offset=pattern.offset)
    return tiled_attention_backward(dcontext, (q, k, v, context, lse, alone, *rest))


# ---- the layer -------------------------------------------------------------------------------------------------------


def attention_fixture(rng: Rng, config: Any = TINY_LONGFORMER, given: Any = PLACES, **options: Any) -> Fixture:
    layer = WindowAndGlobalAttention(config)
    inputs = options.pop("inputs", {"mask": MASK})

    def context(engine):
        arrays = {name: engine.integers(np.asarray(values)) for name, values in inputs.items()}
        more = {name: engine.integers(values) for name, values in given.items()}
        ids = engine.integers(np.asarray(IDS))
        batch = Batch(engine.integers(np.arange(5)[None]), ids, more=more, **arrays)
        pattern = AttentionPattern(arrays.get("mask"), arrays.get("segments"), config.local_window)
        return AttentionContext(pattern, batch=batch)

    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(x, scope, context(engine)),
        lambda engine, dy, scope: layer.backward(dy, scope, context(engine)),
        (3, 5, 6),
        **options,
    )


case("layer", "window_and_global", "ragged")(lambda rng: attention_fixture(rng))
case("layer", "window_and_global", "no global token")(lambda rng: attention_fixture(rng, given={}))
case("layer", "window_and_global", "tiled, packed")(
    lambda rng: attention_fixture(rng, inputs={"segments": SEGMENTS}, around=tiny_tiles)
)
case("layer", "window_and_global", "dropout, no biases")(
    lambda rng: attention_fixture(rng, TINY_LONGFORMER.replace(attention_bias=False, **DROPOUT), dropout=True)
)

right_global: Any = WindowAndGlobalAttention.global_queries_backward


@wrong_in(
    {WindowAndGlobalAttention: "global_queries_backward"}, "global tokens: their queries give x no gradient",
    "window_and_global",
)  # fmt: skip
def _(self, dcontext, scope):
    return 0.0 * right_global(self, dcontext, scope)


@wrong_in(
    {WindowAndGlobalAttention: "global_queries_backward"}, "global tokens: keys and values exchanged",
    "window_and_global",
)  # fmt: skip
def _(self, dcontext, scope):
    dq, dk, dv, _ = scope.run_backward("global", dcontext)
    dkv = np.stack([dv.transpose(0, 2, 1, 3), dk.transpose(0, 2, 1, 3)], 2)
    dx = scope.linear_backward(dkv.reshape(*dkv.shape[:2], -1), "global_kv")
    taken = dq.transpose(0, 2, 1, 3).reshape(dq.shape[0], dq.shape[2], -1)
    return dx + scope.run_backward("x_taken", scope.linear_backward(taken, "global_query"))


@wrong("take_tokens_backward", "global tokens: as keys of others they get no gradient", "window_and_global")
def _(dy, slot):
    return (0.0 if dy.ndim == 4 else 1.0) * take_tokens_backward(dy, slot)


# ---- models ----------------------------------------------------------------------------------------------------------

GLOBAL = {"attention_mask": MASK, "global_attention_mask": CHOSEN}
register("longformer", "mlm, global tokens", TINY_LONGFORMER, "mlm", labels=MLM_LABELS, inputs=GLOBAL)  # fmt: skip
register("longformer", "encoder, no global token, tiled", TINY_LONGFORMER, around=tiny_tiles,
         inputs={"attention_mask": MASK})  # fmt: skip
register("longformer", "sequence, first token global, dropout, two threads, checkpointing",
         TINY_LONGFORMER.replace(**DROPOUT), "sequence", num_labels=3, labels=[2, 1, 0],
         inputs={"attention_mask": MASK}, training=True, threads=2, checkpointing=True)  # fmt: skip
register("longformer", "spans, question global", TINY_LONGFORMER, "span",
         ids=[[3, 4, 1, 3, 5], [7, 1, 6, 1, 4], [9, 1, 1, 10, 10]], labels=[[3, 4], [2, 2], [-100, 2]],
         inputs={"attention_mask": [[1] * 5, [1] * 5, [1, 1, 1, 0, 0]]})  # fmt: skip
