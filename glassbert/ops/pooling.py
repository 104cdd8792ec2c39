"""Pooling: one vector for a whole sequence.

cls:        the first token's vector
mean:       the mean over real tokens          x [B, T, H]; mask [B, T]; y [B, H]
max:        the largest value of every feature among the real tokens
attention:  a mean weighted by softmax(x · q / √H) over the real tokens, with a learned query q [H]

A row that is all padding gives zeros, apart from its first token's vector.
"""

from __future__ import annotations

from glassbert.engines.namespace import Array, namespace
from glassbert.ops.attention import FORBIDDEN
from glassbert.ops.losses import in_full
from glassbert.ops.registry import op
from glassbert.ops.softmax import softmax, softmax_backward


@op
def cls_pool(x: Array, mask: Array | None = None) -> tuple[Array, None]:
    return x[:, 0], None


@op
def cls_pool_backward(dy: Array, shape: tuple[int, ...], cache: None = None) -> Array:
    """Only the first token was looked at."""
    xp = namespace(dy)
    rest = xp.zeros((shape[0], shape[1] - 1, shape[2]), dtype=dy.dtype)
    return xp.concatenate([dy[:, None], rest], 1)


@op
def mean_pool(x: Array, mask: Array | None = None) -> tuple[Array, Array]:
    xp = namespace(x)
    if mask is None:
        weights = xp.full((x.shape[0], x.shape[1]), 1.0 / x.shape[1], dtype=x.dtype)
    else:
        real = (mask != 0).astype(x.dtype)  # [B, T]
        weights = real / xp.maximum(real.sum(-1, keepdims=True), 1)
    return (weights[:, None] @ x)[:, 0], weights  # [B, 1, T] @ [B, T, H]


@op
def mean_pool_backward(dy: Array, shape: tuple[int, ...], weights: Array) -> Array:
    """Every real token had the same small share of the mean."""
    return weights[:, :, None] * dy[:, None]


@op
def max_pool(x: Array, mask: Array | None = None) -> tuple[Array, tuple[Array, Array | None]]:
    xp = namespace(x)
    real = None if mask is None else (mask != 0)[:, :, None]  # [B, T, 1]
    seen = x if real is None else xp.where(real, x, xp.array(FORBIDDEN, dtype=x.dtype))
    y, winner = seen.max(1), seen.argmax(1)  # [B, H]
    anybody = None if real is None else real.any(1)  # [B, 1]
    return y if anybody is None else xp.where(anybody, y, 0).astype(x.dtype), (winner, anybody)


@op
def max_pool_backward(dy: Array, shape: tuple[int, ...], cache: tuple[Array, Array | None]) -> Array:
    """Each feature's gradient goes to the one token that won it; the others did not matter."""
    winner, anybody = cache
    xp = namespace(dy)
    dy = dy if anybody is None else dy * anybody
    return (xp.arange(shape[1])[None, :, None] == winner[:, None]) * dy[:, None]


@op
def attention_pool(x: Array, mask: Array | None, query: Array) -> tuple[Array, tuple[Array, Array]]:
    xp = namespace(x)
    scores = (x @ query) * x.shape[-1] ** -0.5  # [B, T]
    if mask is not None:
        scores = xp.where(mask != 0, scores, xp.array(FORBIDDEN, dtype=scores.dtype))
    weights = softmax(in_full(scores)).astype(x.dtype)
    if mask is not None:  # a row of padding alone would spread its weight evenly
        weights = weights * (mask != 0)
    return (weights[:, None] @ x)[:, 0], (x, weights)


@op
def attention_pool_backward(dy: Array, cache: tuple[Array, Array], query: Array) -> tuple[Array, Array]:
    """A token matters twice: by its vector, and by how much attention it drew.

        dw = x dy              dscores = softmax'(dw)
        dx = w dyᵀ + dscores qᵀ / √H          dq = Σ x · dscores / √H

    Gives dx and dq.
    """
    x, weights = cache
    scale = x.shape[-1] ** -0.5
    dscores = softmax_backward((x @ dy[:, :, None])[:, :, 0], weights) * scale  # [B, T]
    dx = weights[:, :, None] * dy[:, None] + dscores[:, :, None] * query
    return dx, dscores.reshape(-1) @ x.reshape(-1, x.shape[-1])
