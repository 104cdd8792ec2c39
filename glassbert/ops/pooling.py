"""Pooling: one vector for a whole sequence.

cls:   the first token's vector
mean:  the mean over real tokens          x [B, T, H]; mask [B, T]; y [B, H]
"""

from __future__ import annotations

from glassbert.engines.namespace import Array, namespace
from glassbert.ops.registry import op


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
