"""Scaled dot-product attention: every token looks at every token it may see.

    scores  = q kᵀ / √d                  q, k, v [B, heads, T, d]; scores, weights [B, heads, T, T]
    weights = softmax(scores)            over the keys a query may see
    context = weights v                  [B, heads, T, d]

`AttentionPattern` says who may see whom. A query that may see nobody gets zeros, and gives zero gradients.
This file keeps all weights and is meant for short sequences; `tiled_attention` computes the same in linear memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.engines.namespace import Array, namespace
from glassbert.ops.dropout import dropout, dropout_backward
from glassbert.ops.registry import op
from glassbert.ops.softmax import softmax, softmax_backward

FORBIDDEN = -1e30  # finite: infinities turn into NaN as soon as a whole row is forbidden


@dataclass(frozen=True)
class AttentionPattern:
    """Who may see whom. All conditions that are given must hold.

    keys      [B, T], non-zero where a token may be seen: padding is 0
    segments  [B, T], the document a token belongs to, from 1; nobody sees across documents, 0 is padding
    window    a query at i sees keys at j with |i - j| <= window
    causal    a query at i sees keys at j <= i
    """

    keys: Array | None = None
    segments: Array | None = None
    window: int | None = None
    causal: bool = False

    def allowed(self, xp: Any, rows: slice, queries: slice, keys: slice) -> Array | None:
        """A boolean array that broadcasts to [rows, 1, queries, keys], or None where everything is allowed."""
        result = None
        if self.keys is not None:
            result = (self.keys[rows, keys] != 0)[:, None, None, :]
        if self.segments is not None:
            of_query = self.segments[rows, queries][:, None, :, None]
            of_key = self.segments[rows, keys][:, None, None, :]
            same = (of_query == of_key) & (of_key != 0)
            result = same if result is None else result & same
        if self.window is not None or self.causal:
            i = xp.arange(queries.start, queries.stop)[:, None]
            j = xp.arange(keys.start, keys.stop)[None, :]
            near = None
            if self.window is not None and not (
                queries.stop - 1 - keys.start <= self.window and keys.stop - 1 - queries.start <= self.window
            ):
                near = (i - j <= self.window) & (j - i <= self.window)
            if self.causal and keys.stop - 1 > queries.start:
                near = j <= i if near is None else near & (j <= i)
            if near is not None:
                near = near[None, None]
                result = near if result is None else result & near
        return result


def whole(length: int) -> slice:
    return slice(0, length)


def attention_weights(q: Array, k: Array, pattern: AttentionPattern) -> Array:
    """The weights [B, heads, T, T] alone, however the context was computed."""
    xp = namespace(q)
    scores = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2)  # [B, heads, T, T]
    allowed = pattern.allowed(xp, whole(q.shape[0]), whole(q.shape[2]), whole(k.shape[2]))
    if allowed is None:
        return softmax(scores)
    weights = softmax(xp.where(allowed, scores, xp.array(FORBIDDEN, dtype=scores.dtype)))
    return weights * allowed.any(-1, keepdims=True)  # who may see nobody sees nothing


@op
def attention(
    q: Array,
    k: Array,
    v: Array,
    pattern: AttentionPattern,
    keep: Array | None = None,
    rate: float = 0.0,
    forget: bool = False,
) -> tuple[Array, Array]:
    """The context, and the state that backward takes up again: here the weights, in a kernel what it likes to keep.

    With `forget` no backward will follow, and a kernel need not keep anything.
    """
    weights = attention_weights(q, k, pattern)
    context = dropout(weights, keep, rate) @ v  # [B, heads, T, d]
    return context, weights


@op
def attention_backward(
    dcontext: Array,
    q: Array,
    k: Array,
    v: Array,
    context: Array,
    weights: Array,
    keep: Array | None = None,
    rate: float = 0.0,
) -> tuple[Array, Array, Array]:
    """The forward read from the bottom up: context was weights v, weights was softmax(scores), scores was q kᵀ / √d.

    A forbidden pair has weight 0, and softmax_backward multiplies by the weight: no mask is needed here.
    """
    dv = dropout(weights, keep, rate).swapaxes(-1, -2) @ dcontext  # [B, heads, T, d]
    dweights = dropout_backward(dcontext @ v.swapaxes(-1, -2), keep, rate)  # [B, heads, T, T]
    dscores = softmax_backward(dweights, weights)
    dscores *= q.shape[-1] ** -0.5
    return dscores @ k, dscores.swapaxes(-1, -2) @ q, dv
