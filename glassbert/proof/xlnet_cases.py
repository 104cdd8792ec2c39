"""Cases and planted faults of XLNet: the relative shift, two streams, parts of the text, and the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.engines.kernels import backward
from glassbert.families.xlnet import XLNetConfig
from glassbert.layers import two_streams
from glassbert.layers.attention import QUERIES, AttentionContext
from glassbert.layers.block import PostNormBlock
from glassbert.layers.two_streams import (
    Distances,
    TwoStreamAttention,
    TwoStreams,
    predicted_positions,
)
from glassbert.models.encoder import Batch
from glassbert.ops import AttentionPattern, relative_shift_backward
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import (
    DROPOUT,
    IDS,
    MASK,
    NO_DROPOUT,
    SEGMENTS,
    TYPES,
    Rng,
    layer_fixture,
    tiny_tiles,
)
from glassbert.proof.model_cases import register
from glassbert.proof.mutants import wrong, wrong_in

TINY_XLNET = XLNetConfig(
    vocab_size=11, hidden_size=6, num_hidden_layers=2, num_attention_heads=2, intermediate_size=7,
    pad_token_id=None, memory_length=4, **NO_DROPOUT,
)  # fmt: skip
ORDER = np.array([[0, 2, 0, 1, 3], [0, 0, 0, 0, 0], [1, 0, 2, 0, 0]])  # rows with three, no and two predictions
LABELS = np.where(ORDER > 0, IDS, -100)
PADDED = {"attention_mask": MASK}
PAST = [(np.random.default_rng(5 + i).standard_normal((3, 2, 6)),) for i in range(2)]


# ---- the relative shift ----------------------------------------------------------------------------------------------


def shift_fixture(rng: Rng, start: Any, keys: int, distances: int, batch: int = 2, method: str = "central") -> Fixture:
    start = np.asarray(start)

    def function(engine, inputs):
        y, state = engine.ops.relative_shift(inputs["x"], engine.integers(start), keys)
        return y, lambda dy: {"x": backward(dy, state)}

    return Fixture({"x": rng.standard_normal((batch, 2, start.shape[1], distances))}, function, method=method)


@case("op", "relative_shift", "queries in order, a memory of two")
def _(rng):
    return shift_fixture(rng, [[3, 2, 1]], 5, 8)


@case("op", "relative_shift", "queries at any position, complex step")
def _(rng):
    return shift_fixture(rng, [[4, 3, 2, 1, 2, 4], [4, 3, 2, 1, 1, 1]], 4, 8, method="complex")


@case("op", "relative_shift", "one query, one key")
def _(rng):
    return shift_fixture(rng, [[1]], 1, 2, 1)


@wrong("relative_shift_backward", "relative shift: every query begins where the first does")
def _(dy, state):
    index, shape = state
    return relative_shift_backward(dy, (np.broadcast_to(index[:, :, :1], index.shape), shape))


@wrong("relative_shift_backward", "relative shift: one distance too far")
def _(dy, state):
    index, shape = state
    return np.roll(relative_shift_backward(dy, (index, shape)), 1, -1)


# ---- the layer -------------------------------------------------------------------------------------------------------


def batch_on(engine: Any, inputs: Mapping[str, Any]) -> Batch:
    """The inputs as a batch, with the table of distances after a memory of `past` tokens."""
    given = {name: engine.integers(np.asarray(values)) for name, values in inputs.items() if name != "past"}
    past = inputs.get("past", 0)
    positions = np.arange(past, past + 5)[None]
    table = engine.array(Distances(TINY_XLNET).on_host(positions, np.dtype("float64"))[0])
    more = {name: given.pop(name) for name in list(given) if name in ("prediction_order", QUERIES)}
    ids = engine.integers(np.asarray(IDS))
    return Batch(engine.integers(positions), ids, position_terms=(table,), more=more, **given)


def attention_fixture(rng: Rng, inputs: Mapping[str, Any], config: Any = TINY_XLNET, **options: Any) -> Fixture:
    layer = TwoStreamAttention(config)
    past = inputs.get("past", 0)
    memory = rng.standard_normal((3, past, 6))
    rows = 5 + (np.shape(inputs[QUERIES])[1] if QUERIES in inputs else 0)

    def context(engine):
        kept = (engine.array(memory),) if past else None
        return AttentionContext(AttentionPattern(), memory=kept, batch=batch_on(engine, inputs))

    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(x, scope, context(engine)),
        lambda engine, dy, scope: layer.backward(dy, scope, context(engine)),
        (3, rows, 6),
        **options,
    )


TWO: dict[str, Any] = {"prediction_order": ORDER, QUERIES: predicted_positions(ORDER)[:, :3]}
case("layer", "two_streams", "one stream, ragged")(lambda rng: attention_fixture(rng, {"mask": MASK}))
case("layer", "two_streams", "one stream, parts of the text, memory")(
    lambda rng: attention_fixture(rng, {"types": TYPES, "past": 2})
)
case("layer", "two_streams", "both streams, parts of the text, packed")(
    lambda rng: attention_fixture(rng, {**TWO, "types": TYPES, "segments": SEGMENTS})
)
case("layer", "two_streams", "both streams, memory, ragged, dropout")(
    lambda rng: attention_fixture(rng, {**TWO, "mask": MASK, "past": 3}, TINY_XLNET.replace(**DROPOUT), dropout=True)
)
case("layer", "two_streams", "both streams, tiled")(lambda rng: attention_fixture(rng, TWO, around=tiny_tiles))


def block_fixture(rng: Rng, inputs: Mapping[str, Any], last: bool) -> Fixture:
    """A whole layer. The last one returns the query stream alone, where there is one."""
    layer = PostNormBlock(TINY_XLNET, 0)
    rows = 5 + (np.shape(inputs[QUERIES])[1] if QUERIES in inputs else 0)

    def context(engine):
        return AttentionContext(AttentionPattern(), batch=batch_on(engine, inputs), last=last)

    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(x, scope, context(engine)),
        lambda engine, dy, scope: layer.backward(dy, scope, context(engine)),
        (3, rows, 6),
    )


case("layer", "block: two streams", "both streams")(lambda rng: block_fixture(rng, {**TWO, "types": TYPES}, False))
case("layer", "block: two streams", "both streams, the last layer")(
    lambda rng: block_fixture(rng, {**TWO, "mask": MASK}, True)
)
case("layer", "block: two streams", "one stream, the last layer")(lambda rng: block_fixture(rng, {"mask": MASK}, True))


def embeddings_fixture(rng: Rng, inputs: Mapping[str, Any], **options: Any) -> Fixture:
    """From ids to both streams, and through `finish` to the stream that counts."""
    config = TINY_XLNET.replace(**DROPOUT)
    scheme = Distances(config)
    layer = TwoStreams(config, scheme)

    def forward(engine, x, scope):
        batch = batch_on(engine, inputs)
        return layer.finish(layer.forward(batch, scope), batch, scope)

    def run_backward(engine, dy, scope):
        batch = batch_on(engine, inputs)
        layer.backward(layer.finish_backward(dy, batch, scope), batch, scope)
        scheme.embed_backward(dy, scope)  # distances have no parameters outside the attention

    return layer_fixture(rng, layer.parameters(), forward, run_backward, None, dropout=True, **options)


case("layer", "two_streams", "embeddings of one stream")(lambda rng: embeddings_fixture(rng, {}))
case("layer", "two_streams", "embeddings of both streams")(lambda rng: embeddings_fixture(rng, TWO))


# ---- models ----------------------------------------------------------------------------------------------------------

register("xlnet", "permutation, padded, parts of the text", TINY_XLNET, "mlm", labels=LABELS,
         inputs={**PADDED, "prediction_order": ORDER, "token_type_ids": TYPES})  # fmt: skip
register("xlnet", "permutation, memory, packed, two threads", TINY_XLNET, "mlm", labels=LABELS,
         inputs={"segment_ids": SEGMENTS, "prediction_order": ORDER, "memory": PAST,
                 "memory_segment_ids": [[1, 1], [0, 0], [2, 1]]}, threads=2)  # fmt: skip
register("xlnet", "permutation, dropout, checkpointing", TINY_XLNET.replace(**DROPOUT), "mlm", labels=LABELS,
         inputs={**PADDED, "prediction_order": ORDER}, training=True, checkpointing=True)  # fmt: skip
register("xlnet", "encoder, memory, a mask of pairs", TINY_XLNET,
         inputs={"memory": PAST, "attention_mask": np.tril(np.ones((3, 5, 7), int), 2)})  # fmt: skip
register("xlnet", "sequence, last token through the pooler", TINY_XLNET, "sequence", num_labels=3, labels=[2, 1, 0],
         inputs={"attention_mask": np.array(MASK)[:, ::-1]})  # fmt: skip
register("xlnet", "token labels, untied", TINY_XLNET.replace(tie_word_embeddings=False), "token", num_labels=3,
         labels=np.where(np.array(MASK) == 1, 1, -100), inputs=PADDED)  # fmt: skip

right_padded = two_streams.padded
right_distances: Any = TwoStreamAttention.distance_scores_backward
right_parts: Any = TwoStreamAttention.part_scores_backward
right_attention: Any = TwoStreamAttention.backward
right_embeddings: Any = TwoStreams.backward
right_take_read: Any = TwoStreamAttention.take_read_backward


class Silent:
    """A scope that loses the gradient of one parameter."""

    def __init__(self, scope, lost):
        self.scope, self.lost = scope, lost

    def add(self, name, value):
        if name != self.lost:
            self.scope.add(name, value)

    def __getattr__(self, name):
        return getattr(self.scope, name)


@wrong_in(
    {TwoStreamAttention: "distance_scores_backward"}, "two streams: distances give the query nothing", "two_streams"
)
def _(self, dscores, scope):
    return 0.0 * right_distances(self, dscores, scope)


@wrong_in(
    {TwoStreamAttention: "distance_scores_backward"}, "two streams: the query of distances gets no gradient",
    "two_streams",
)  # fmt: skip
def _(self, dscores, scope):
    return right_distances(self, dscores, Silent(scope, "position_query"))


@wrong_in(
    {TwoStreamAttention: "part_scores_backward"}, "two streams: both parts of the text get the same gradient",
    "two_streams: one stream, parts",
)  # fmt: skip
def _(self, dscores, scope):
    asked, other = scope.saved("parts")
    scope.save("parts", (asked, np.ones_like(other)))
    found = right_parts(self, dscores, scope)
    scope.save("parts", (asked, other))
    return found


@wrong_in(
    {TwoStreamAttention: "part_scores_backward"}, "two streams: the vectors of parts get no gradient",
    "two_streams: one stream, parts",
)  # fmt: skip
def _(self, dscores, scope):
    return right_parts(self, dscores, Silent(scope, "segment"))


@wrong_in(
    {two_streams: "padded"},
    "two streams: gradients of this segment are put on the memory",
    "two_streams: one stream, parts",
)
def _(x, before, after):
    return right_padded(x, after, before)


@wrong_in({TwoStreamAttention: "backward"}, "two streams: the query stream is a key as well", "two_streams: both")
def _(self, dy, scope, context):
    dx = right_attention(self, dy, scope, context)
    length = context.batch.ids.shape[1]
    return np.concatenate([dx[:, :length], dx[:, length:] + dx[:, : dx.shape[1] - length]], 1)


@wrong_in(
    {TwoStreams: "backward"}, "two streams: the first query vector gets no gradient", "two_streams: embeddings of both"
)
def _(self, dx, batch, scope):
    right_embeddings(self, dx, batch, Silent(scope, "query"))


@wrong_in(
    {TwoStreamAttention: "take_read_backward"},
    "two streams: the content stream gets the gradient of the query stream",
    "xlnet: permutation, padded",
)
def _(self, dx, scope, context):
    found = right_take_read(self, dx, scope, context)
    return np.roll(found, dx.shape[1], 1) if context.last else found


@wrong_in(
    {TwoStreamAttention: "take_read_backward"}, "two streams: the path beside the attention is lost",
    "xlnet: permutation, padded",
)  # fmt: skip
def _(self, dx, scope, context):
    return np.zeros_like(right_take_read(self, dx, scope, context))
