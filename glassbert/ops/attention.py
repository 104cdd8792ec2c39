"""Softmax and scaled dot-product attention.

    softmax(x)_i = exp(x_i - max x) / Σ_j exp(x_j - max x)          along the last axis

    scores  = scale · q kᵀ + bias        q [B, heads, Tq, d]; k, v [B, heads, Tk, d]; scores [B, heads, Tq, Tk]
    weights = softmax(scores)            over the keys that a query attends to
    context = weights v                  [B, heads, Tq, d]

    joined  = [q, k, v]                  side by side, q, k, v [B, T, heads, d]; joined [B, T, 3H] with H = heads · d

`AttentionPattern` defines which keys a query attends to. A query without any key gets zeros, and gives zero gradients.
This file keeps all weights and suits short sequences; `tiled_attention` computes the same in linear memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.dropout import dropout, dropout_backward
from glassbert.ops.registry import operation

FORBIDDEN = -1e30  # finite: with infinities a row without any key would become NaN


@operation
def softmax(x: Array) -> tuple[Array, Array]:
    """Subtracting the maximum changes nothing in exact arithmetic and keeps exp from overflowing.

    Derivation: docs/derivations/05-attention.md (5.1)
    """
    y = namespace(x).exp(x - x.max(-1, keepdims=True))
    y /= y.sum(-1, keepdims=True)
    return y, y


@operation
def softmax_backward(dy: Array, y: Array) -> Array:
    """∂y_i/∂x_j = y_i (δ_ij - y_j), so the gradient is dy, less its mean under y, weighted by y:

    dx = y · (dy - Σ_j dy_j y_j)

    Derivation: docs/derivations/05-attention.md (5.2), (5.3)
    """
    return y * (dy - (dy * y).sum(-1, keepdims=True))


@dataclass(frozen=True)
class AttentionPattern:
    """Which keys a query attends to. All conditions that are given must hold.

    keys      [B, Tk], non-zero for real tokens, 0 for padding
    segments  [B, Tk], the document of a token, counted from 1; 0 is padding. No attention across documents
    window    a query at position i attends to keys at j with |i - j| <= window
    causal    a query at position i attends to keys at j <= i
    mask      [B, Tq, Tk], non-zero where a query attends to a key
    offset    the position of the first query among the keys, where the first keys come from a memory
    always    so many of the first keys are in the window of every query
    plans     what a kernel has prepared for this pattern, for the other layers that have it
    """

    keys: Array | None = None
    segments: Array | None = None
    window: int | None = None
    causal: bool = False
    mask: Array | None = None
    offset: int = 0
    always: int = 0
    plans: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def allowed(self, xp: Any, rows: slice, queries: slice, keys: slice) -> Array | None:
        """A boolean array that broadcasts to [rows, 1, queries, keys], or None where everything is allowed.

        Derivation: docs/derivations/05-attention.md (5.5)
        """
        result = None
        first, last = queries.start + self.offset, queries.stop + self.offset  # positions of the queries
        if self.keys is not None:
            result = (self.keys[rows, keys] != 0)[:, None, None, :]
        if self.segments is not None:
            of_query = self.segments[rows, first:last][:, None, :, None]
            of_key = self.segments[rows, keys][:, None, None, :]
            same = (of_query == of_key) & (of_key != 0)
            result = same if result is None else result & same
        if self.mask is not None:
            given = (self.mask[rows, queries, keys] != 0)[:, None]
            result = given if result is None else result & given
        if self.window is not None or self.causal:
            i = xp.arange(first, last)[:, None]
            j = xp.arange(keys.start, keys.stop)[None, :]
            near = None
            if self.window is not None and not (
                last - 1 - keys.start <= self.window and keys.stop - 1 - first <= self.window
            ):
                near = (i - j <= self.window) & (j - i <= self.window)
                if keys.start < self.always:
                    near = near | (j < self.always)
            if self.causal and keys.stop - 1 > first:
                near = j <= i if near is None else near & (j <= i)
            if near is not None:
                near = near[None, None]
                result = near if result is None else result & near
        return result


def whole(length: int) -> slice:
    return slice(0, length)


def scale_of(q: Array, scale: float | None) -> float:
    """1/√d unless a scale is given."""
    return q.shape[-1] ** -0.5 if scale is None else scale


def attention_weights(
    q: Array, k: Array, pattern: AttentionPattern, bias: Array | None = None, scale: float | None = None
) -> Array:
    """The weights [B, heads, Tq, Tk] before dropout. Derivation: docs/derivations/05-attention.md (5.4), (5.6)."""
    xp = namespace(q)
    scores = (q * scale_of(q, scale)) @ k.swapaxes(-1, -2)  # [B, heads, Tq, Tk]
    if bias is not None:
        scores = scores + bias
    allowed = pattern.allowed(xp, whole(q.shape[0]), whole(q.shape[2]), whole(k.shape[2]))
    if allowed is None:
        return softmax(scores)[0]
    weights, _ = softmax(xp.where(allowed, scores, xp.array(FORBIDDEN, dtype=scores.dtype)))
    return weights * allowed  # zeros for a query without any key


@operation
def attention(
    q: Array,
    k: Array,
    v: Array,
    pattern: AttentionPattern,
    bias: Array | None = None,
    scale: float | None = None,
    dropout_mask: Array | None = None,
    dropout_rate: float = 0.0,
) -> tuple[Array, Any]:
    """The context [B, heads, Tq, d]. `bias` broadcasts to [B, heads, Tq, Tk]; `scale` is 1/√d unless given.

    Derivation: docs/derivations/05-attention.md (5.7)
    """
    weights = attention_weights(q, k, pattern, bias, scale)
    dropped, drop_state = weights, None
    if dropout_mask is not None:
        dropped, drop_state = dropout(weights, dropout_mask, dropout_rate)
    context = dropped @ v  # [B, heads, Tq, d]
    return context, (q, k, v, weights, dropped, drop_state, scale_of(q, scale), None if bias is None else bias.shape)


@operation
def attention_backward(dcontext: Array, state: Any) -> tuple[Array, Array, Array, Array | None]:
    """The forward from its last line to its first: context was weights v, weights was softmax(scores), and so on.

    A pair that is not allowed has weight 0, and softmax_backward multiplies by the weight: no mask is needed here.
    Returns the gradients of q, k, v and of the bias.

    Derivation: docs/derivations/05-attention.md (5.8), (5.9), (5.10), (5.11), (5.12), (5.13), (5.14)
    """
    q, k, v, weights, dropped, drop_state, scale, bias_shape = state
    dv = dropped.swapaxes(-1, -2) @ dcontext  # [B, heads, Tk, d]
    dweights = dcontext @ v.swapaxes(-1, -2)  # [B, heads, Tq, Tk]
    if drop_state is not None:
        dweights = dropout_backward(dweights, drop_state)
    dscores = softmax_backward(dweights, weights)
    dbias = None if bias_shape is None else sum_to(dscores, bias_shape)
    dscores = dscores * scale
    return dscores @ k, dscores.swapaxes(-1, -2) @ q, dv, dbias


def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an array of this shape that was broadcast to the shape of x."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and x.shape[axis] != 1)
    return x.sum(axes, keepdims=True) if axes else x


@operation
def join_heads(q: Array, k: Array, v: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/05-attention.md (5.15)."""
    batch, length, heads, size = q.shape
    return namespace(q).stack([q, k, v], 2).reshape(batch, length, 3 * heads * size), heads


@operation
def join_heads_backward(dy: Array, heads: int) -> tuple[Array, Array, Array]:
    """Numbers that were only moved are moved back. Derivation: docs/derivations/05-attention.md (5.15)."""
    return split_heads(dy, heads)


def split_heads(qkv: Array, heads: int) -> tuple[Array, Array, Array]:
    """[B, T, 3H] -> q, k, v, each [B, T, heads, d], without copying."""
    batch, length, width = qkv.shape
    parts = qkv.reshape(batch, length, 3, heads, width // (3 * heads))
    return parts[:, :, 0:1].squeeze(2), parts[:, :, 1:2].squeeze(2), parts[:, :, 2:3].squeeze(2)  # MLX copies for [0]
