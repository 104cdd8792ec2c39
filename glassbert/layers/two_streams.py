"""Two streams of hidden states, distances in place of positions, and a memory of earlier segments (XLNet).

In pretraining every token has a content vector h_i, which sees the token itself, and a predicted token also has a query
vector g_i, which sees its position and what was predicted before it. Both are side by side on the token axis,
[B, T + P, H]. With query i of T after M tokens in the memory, and R_n the sinusoid of distance n:

    score(i, j) = ((q_i + u) k_j + (q_i + w) W_r R_(i-j) + (q_i + s) e_[part(i) != part(j)]) / sqrt(d)
    content stream:  q from h_i;   attends to j = i, to what is given, and to what is predicted before i
    query stream:    q from g_i;   the same without j = i; keys and values always come from the content stream

Nobody reads the content stream after the last layer, so the last layer computes the query stream alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.errors import InputError
from glassbert.layers.attention import (
    QUERIES,
    AttentionContext,
    SelfAttention,
    heads_first,
    join_qkv,
    merge_heads,
)
from glassbert.layers.block import PostNormBlock
from glassbert.layers.embeddings import TokenEmbeddings
from glassbert.layers.positions import Positions
from glassbert.layers.registry import ATTENTIONS, BLOCKS, EMBEDDINGS, POSITIONS
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.ops import AttentionPattern
from glassbert.ops.attention import split_heads

ORDER, MEMORY_SEGMENTS = "prediction_order", "memory_segment_ids"
MULTIPLE = 8  # the number of predicted tokens of a row is padded to it, so that few shapes are compiled


# ---- positions -------------------------------------------------------------------------------------------------------


@POSITIONS.register("distances")
class Distances(Positions):
    """A sinusoid for every distance, from the key farthest to the left to the one farthest to the right."""

    relative = True
    limited = False

    def on_host(self, positions: np.ndarray, dtype: np.dtype) -> Any:
        """R [1, (M + T) + T, H]; the first position is the length M of the memory."""
        xp, length = namespace(positions), positions.shape[1]
        past = int(positions[0, 0]) if is_numpy(positions) else 0  # a recorded graph has no memory
        if is_numpy(positions) and not (positions == np.arange(past, past + length)).all():
            raise InputError("this model has distances in place of positions; leave position_ids out")
        distance = (past + length - xp.arange(past + 2 * length)).astype(np.float64)  # [R]
        size = self.config.hidden_size
        angles = distance[:, None] / 10_000.0 ** (np.arange(0, size, 2.0) / size)  # [R, H/2]
        return (np.concatenate([np.sin(angles), np.cos(angles)], -1)[None, :, :size].astype(dtype),)


# ---- embeddings ------------------------------------------------------------------------------------------------------


@EMBEDDINGS.register("two_streams")
class TwoStreams(TokenEmbeddings):
    """The content stream begins with the tokens; the query stream with one learned vector for all of its positions.

    The streams are side by side on the token axis: [B, T + P, H].
    """

    finishes = True

    def input_parameters(self) -> list[Parameter]:
        width = self.config.embedding_width
        token = Parameter("token", (self.config.vocab_size, width), "embedding")
        return [token, Parameter("query", (1, 1, width), "embedding")]

    def forward(self, batch: Any, scope: Scope) -> Array:
        x = scope.run("embedding", "token", scope.parameter("token"), batch.ids, self.frozen_id)
        scope.record("tokens", x)  # [B, T, H]
        queries = batch.more.get(QUERIES)
        if queries is not None:
            xp = namespace(x)
            g = xp.broadcast_to(scope.parameter("query"), (*queries.shape, x.shape[-1]))  # [B, P, H]
            x = xp.concatenate([x, g], 1)
        return self.after_sum(x, scope)

    def backward(self, dx: Array, batch: Any, scope: Scope) -> None:
        dx = self.after_sum_backward(dx, scope)
        length = batch.ids.shape[1]
        scope.add_rows("token", *scope.run_backward("token", dx[:, :length]))
        if QUERIES in batch.more:
            scope.add("query", dx[:, length:].sum((0, 1))[None, None])

    def finish(self, x: Array, batch: Any, scope: Scope) -> Array:
        """Dropout of what the last layer returns: the query stream, where there is one."""
        return scope.dropout(x, "output_dropout", self.config.hidden_dropout)

    def finish_backward(self, dx: Array, batch: Any, scope: Scope) -> Array:
        return scope.dropout_backward(dx, "output_dropout")


# ---- attention -------------------------------------------------------------------------------------------------------


@ATTENTIONS.register("two_streams")
class TwoStreamAttention(SelfAttention):
    """Content, distance and part of the text in the scores; one or two streams; a memory of hidden states."""

    memory_names = ("content",)
    memory_axis = 1
    masks_with_memory = True
    leaves_out_padding = False
    inputs = (ORDER, MEMORY_SEGMENTS)

    def parameters(self) -> list[Parameter]:
        size, vector = self.config.hidden_size, (self.heads, self.config.head_size)
        return [
            *super().parameters(),
            *linear_parameters("position", size, size, False),
            *(Parameter(name, vector, "weight") for name in ("content_query", "position_query", "segment_query")),
            Parameter("segment", (2, *vector), "weight"),  # in the same part of the text, in another one
        ]

    @classmethod
    def memory_shape(cls, config: Any, rows: int, length: Any) -> tuple[Any, ...]:
        return (rows, length, config.hidden_size)

    @classmethod
    def more_inputs(
        cls, config: Any, head: str | None, given: Mapping[str, Any], checked: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """`prediction_order` [B, T]: 0 for tokens that are given, n > 0 for tokens that see those before the n-th."""
        found = {}
        if given.get(ORDER) is not None:
            order = np.asarray(given[ORDER])
            if order.shape != checked["ids"].shape or order.dtype.kind not in "iu" or order.min() < 0:
                raise InputError(
                    f"{ORDER} must be whole numbers of at least 0 in the shape of input_ids, "
                    f"{list(checked['ids'].shape)}, got {order.dtype} {list(order.shape)}"
                )
            found = {ORDER: order.astype(np.int64), QUERIES: predicted_positions(order)}
        if given.get(MEMORY_SEGMENTS) is not None:
            wanted = (len(checked["ids"]), int(checked["positions"][0, 0]))
            documents = np.asarray(given[MEMORY_SEGMENTS])
            if documents.shape != wanted or documents.dtype.kind not in "iu":
                raise InputError(
                    f"{MEMORY_SEGMENTS} must be whole numbers in the shape of the memory, {list(wanted)}, "
                    f"got {documents.dtype} {list(documents.shape)}"
                )
            found[MEMORY_SEGMENTS] = documents.astype(np.int64)
        return found

    @classmethod
    def inputs_for_missing(cls, missing: np.ndarray) -> dict[str, np.ndarray]:
        """They are predicted by the query stream, each from the given tokens alone."""
        return {ORDER: missing.astype(np.int64)}

    @classmethod
    def full_inputs(cls, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Two parts of the text."""
        half = np.arange(ids.shape[1]) >= ids.shape[1] // 2
        return {"token_type_ids": np.broadcast_to(half, ids.shape).astype(np.int64)}

    def forward(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        xp, batch = namespace(x), context.batch
        scope.record("input", x)
        length = batch.ids.shape[1]  # T; x is [B, T + P, H]
        rows = x if context.memory is None else xp.concatenate([context.memory[0], x], 1)  # [B, M + T + P, H]
        past, keys = rows.shape[1] - x.shape[1], rows.shape[1] - x.shape[1] + length  # M, M + T
        first = left_out(context)
        kept = self.config.memory_length or keys
        scope.store("content", rows[:, max(0, keys - kept) : keys])
        q, k, v = split_heads(scope.linear(rows, "qkv"), self.heads)
        q, k, v = heads_first(q[:, past + first :]), heads_first(k[:, :keys]), heads_first(v[:, :keys])
        bias = self.distance_scores(q, keys, scope, batch)
        if batch.types is not None:
            bias = bias + self.part_scores(q, past, scope, batch)
        bias = bias * self.factor
        q = q + scope.parameter("content_query")[None, :, None]
        q, k, v = (scope.store(name, x, token_axes=(2,)) for name, x in (("q", q), ("k", k), ("v", v)))
        out = self.attend(q, k, v, bias, scope, AttentionPattern(mask=visible(batch, past, first, xp)))
        merged = scope.record("merged", merge_heads(out))  # [B, T + P, H], in the last layer [B, P, H]
        return scope.record("output", scope.linear(merged, "output"))

    def take_read(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        """[B, T + P, H], in the last layer [B, P, H]"""
        return x[:, left_out(context) :]

    def take_read_backward(self, dx: Array, scope: Scope, context: AttentionContext) -> Array:
        return padded(dx, left_out(context), 0)

    @property
    def factor(self) -> float:
        return self.config.head_size**-0.5 if self.scale is None else self.scale

    def distance_scores(self, q: Array, keys: int, scope: Scope, batch: Any) -> Array:
        """(q_i + w) W_r R_(i - j), [B, heads, Tq, Tk]"""
        terms = batch.position_terms[0]  # float32; products of it with 16-bit weights would be float32 from here on
        terms = terms if terms.dtype == q.dtype else terms.astype(q.dtype)
        table = scope.linear(terms, "position")  # [1, R, H]
        r = heads_first(table.reshape(1, -1, self.heads, self.config.head_size))  # [1, heads, R, d]
        asked = q + scope.parameter("position_query")[None, :, None]
        scope.save("distances", (asked, r))
        start = first_distance(batch, namespace(q))
        start = start[:, start.shape[1] - q.shape[2] :]
        return scope.run("relative_shift", "shift", asked @ r.swapaxes(-1, -2), start, keys)

    def distance_scores_backward(self, dscores: Array, scope: Scope) -> Array:
        """Adds to the gradients of W_r and w; returns what the term adds to that of q."""
        asked, r = scope.saved("distances")
        dshifted = scope.run_backward("shift", dscores)  # [B, heads, Tq, R]
        dasked = dshifted @ r  # [B, heads, Tq, d]
        dr = (dshifted.swapaxes(-1, -2) @ asked).sum(0, keepdims=True)  # [1, heads, R, d]
        scope.linear_backward(merge_heads(dr), "position")
        scope.add("position_query", dasked.sum((0, 2)))
        return dasked

    def part_scores(self, q: Array, past: int, scope: Scope, batch: Any) -> Array:
        """(q_i + s) e_[part(i) != part(j)], [B, heads, Tq, Tk]; the memory is in part 0"""
        xp = namespace(q)
        asked = q + scope.parameter("segment_query")[None, :, None]
        both = asked @ scope.parameter("segment").transpose(1, 2, 0)[None]  # [B, heads, Tq, 2]
        of_key = xp.concatenate([xp.zeros((batch.size, past), dtype=batch.types.dtype), batch.types], 1)
        of_query = at_rows(batch.types, batch, xp)
        of_query = of_query[:, of_query.shape[1] - q.shape[2] :]
        other = (of_query[:, :, None] != of_key[:, None])[:, None]  # [B, 1, Tq, Tk]
        scope.save("parts", (asked, other))
        return xp.where(other, both[..., 1:], both[..., :1])

    def part_scores_backward(self, dscores: Array, scope: Scope) -> Array:
        asked, other = scope.saved("parts")
        xp = namespace(dscores)
        dother = (dscores * other).sum(-1, keepdims=True)
        dboth = xp.concatenate([dscores.sum(-1, keepdims=True) - dother, dother], -1)  # [B, heads, Tq, 2]
        dasked = dboth @ scope.parameter("segment").transpose(1, 0, 2)[None]  # [B, heads, Tq, d]
        scope.add("segment", (dboth.swapaxes(-1, -2) @ asked).sum(0).transpose(1, 0, 2))
        scope.add("segment_query", dasked.sum((0, 2)))
        return dasked

    def backward(self, dy: Array, scope: Scope, context: AttentionContext) -> Array:
        """`forward` from its last line to its first. The memory gets no gradient."""
        scope.record("d_output", dy)
        dmerged = scope.linear_backward(dy, "output")
        size, queries = self.config.head_size, dmerged.shape[1]
        dcontext = heads_first(dmerged.reshape(dmerged.shape[0], queries, self.heads, size))
        scope.record("d_context", dcontext, token_axes=(2,))
        dq, dk, dv, dbias = scope.run_backward("attention", dcontext)
        if scope.cache.trace:
            scope.record("d_weights", self.weight_gradient(dcontext, scope), token_axes=(2, 3))
        scope.add("content_query", dq.sum((0, 2)))
        dbias = dbias * self.factor
        dq = dq + self.distance_scores_backward(dbias, scope)
        if context.batch.types is not None:
            dq = dq + self.part_scores_backward(dbias, scope)
        for name, value in (("d_q", dq), ("d_k", dk), ("d_v", dv)):
            scope.record(name, value, token_axes=(2,))
        length, first = context.batch.ids.shape[1], left_out(context)
        past, predicted = dk.shape[2] - length, first + queries - length
        dq = padded(heads_first(dq), past + first, 0)  # [B, M + T + P, heads, d]
        dk, dv = padded(heads_first(dk), 0, predicted), padded(heads_first(dv), 0, predicted)
        drows = scope.linear_backward(join_qkv(scope, dq, dk, dv), "qkv")
        return scope.record("d_input", drows[:, past:])

    @classmethod
    def more_flops(cls, config: Any, batch: int, length: int, layers: int, pairs: int) -> dict[str, int]:
        """The table of 2T distances through W_r, and every query against it."""
        layers, size = config.num_hidden_layers, config.hidden_size
        return {
            "attention.position": layers * 2 * 2 * length * size * size,
            "attention.distance scores": layers * 2 * batch * length * 2 * length * size,
        }

    @classmethod
    def more_numbers(cls, config: Any, length: int) -> float:
        """Two queries with their learned parts, and the bias of the scores."""
        return 2 * config.hidden_size + 2 * config.num_attention_heads * length


BLOCKS.register("post_two_streams")(PostNormBlock)  # its name in files of earlier versions


# ---- rows of both streams --------------------------------------------------------------------------------------------


def predicted_positions(order: np.ndarray) -> np.ndarray:
    """The positions [B, P] of tokens with an order above 0, from left to right, and -1 where a row has fewer."""
    most = max(1, int((order > 0).sum(1).max()))
    width = min(-(-most // MULTIPLE) * MULTIPLE, max(order.shape[1], most))
    place = np.arange(order.shape[1])
    first = np.argsort(np.where(order > 0, place, order.shape[1] + place), axis=1)[:, :width]
    return np.where(np.take_along_axis(order, first, 1) > 0, first, -1)


def at_rows(values: Array, batch: Any, xp: Any) -> Array:
    """Values [B, T] of tokens at the rows of both streams, [B, T + P]."""
    queries = batch.more.get(QUERIES)
    if queries is None:
        return values
    return xp.concatenate([values, xp.take_along_axis(values, xp.maximum(queries, 0), 1)], 1)


def first_distance(batch: Any, xp: Any) -> Array:
    """Where the distances of every row begin in the table, [B or 1, T + P]: at T - i for a token at i."""
    length = batch.ids.shape[1]
    start = length - xp.arange(length)[None]  # [1, T]
    queries = batch.more.get(QUERIES)
    if queries is None:
        return start
    return xp.concatenate([xp.broadcast_to(start, batch.ids.shape), length - xp.maximum(queries, 0)], 1)


def left_out(context: AttentionContext) -> int:
    """How many rows the output of a layer does not have: in the last one the content stream, beside a query stream."""
    return int(context.batch.ids.shape[1]) if context.last and QUERIES in context.batch.more else 0


def visible(batch: Any, past: int, first: int, xp: Any) -> Array | None:
    """Which keys the rows of both streams from `first` on attend to, [B or 1, T + P, M + T]; None: to all.

    A content row always attends to itself. A query row does not, unless the token is given.
    """
    length = batch.ids.shape[1]
    whole = slice(0, length)
    keys = AttentionPattern(batch.mask, batch.segments).allowed(xp, slice(0, batch.size), whole, whole)
    allowed = None if keys is None else xp.broadcast_to(keys[:, 0], (batch.size, length, length))
    order = batch.more.get(ORDER)
    if order is not None:
        before = order[:, None, :] < xp.maximum(order, 1)[:, :, None]  # [B, T, T]
        allowed = before if allowed is None else allowed & before
    if past and allowed is not None:
        earlier = xp.ones((batch.size, length, past), dtype=allowed.dtype)
        if batch.more.get(MEMORY_SEGMENTS) is not None and batch.segments is not None:
            earlier = batch.segments[:, :, None] == batch.more[MEMORY_SEGMENTS][:, None]
        allowed = xp.concatenate([earlier, allowed], 2)
    if batch.pairs is not None:
        allowed = batch.pairs != 0 if allowed is None else allowed & (batch.pairs != 0)
    if allowed is None:
        return None
    itself = xp.arange(length)[:, None] + past == xp.arange(past + length)[None]  # [T, M + T]
    content = allowed | itself[None]
    queries = batch.more.get(QUERIES)
    if queries is None:
        return content
    index = xp.broadcast_to(xp.maximum(queries, 0)[:, :, None], (*queries.shape, past + length))
    asking = xp.take_along_axis(allowed, index, 1)
    return asking if first else xp.concatenate([content, asking], 1)


def padded(x: Array, before: int, after: int) -> Array:
    """[B, T, ...] with so many zeros on the token axis."""
    if not before and not after:
        return x
    xp = namespace(x)

    def zeros(count: int) -> Array:
        return xp.zeros((x.shape[0], count, *x.shape[2:]), dtype=x.dtype)

    return xp.concatenate([zeros(before), x, zeros(after)], 1)
