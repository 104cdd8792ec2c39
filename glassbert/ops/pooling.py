"""Pooling: one vector for a whole sequence.

cls:        the first token's vector
mean:       the mean over real tokens          x [B, T, H]; mask [B, T]; y [B, H]
max:        the largest value of every feature among the real tokens
last:       the vector of the last real token
attention:  a mean weighted by softmax(x · q / √H) over the real tokens, with a learned query q [H]

A row that is all padding gives zeros, apart from the first token's vector of cls and of last.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.attention import FORBIDDEN, softmax, softmax_backward
from glassbert.ops.losses import in_full
from glassbert.ops.registry import operation


@operation
def cls_pool(x: Array, mask: Array | None = None) -> tuple[Array, Any]:
    """Derivation: docs/derivations/08-dropout-and-pooling.md (8.3)."""
    return x[:, 0], x.shape


@operation
def cls_pool_backward(dy: Array, shape: tuple[int, ...]) -> Array:
    """Only the first token gets a gradient. Derivation: docs/derivations/08-dropout-and-pooling.md (8.4)."""
    xp = namespace(dy)
    rest = xp.zeros((shape[0], shape[1] - 1, shape[2]), dtype=dy.dtype)
    return xp.concatenate([dy[:, None], rest], 1)


@operation
def last_pool(x: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """Derivation: docs/derivations/15-parts-of-families.md (15.11)."""
    xp = namespace(x)
    place = xp.arange(x.shape[1])[None]  # [1, T]
    last = xp.array([[x.shape[1] - 1]]) if mask is None else ((mask != 0) * place).max(-1, keepdims=True)  # [B or 1, 1]
    chosen = xp.broadcast_to((place == last).astype(x.dtype), (x.shape[0], x.shape[1]))  # [B, T]
    return (chosen[:, None] @ x)[:, 0], chosen


@operation
def last_pool_backward(dy: Array, chosen: Array) -> Array:
    """Only the last real token gets a gradient. Derivation: docs/derivations/15-parts-of-families.md (15.11)."""
    return chosen[:, :, None] * dy[:, None]


@operation
def mean_pool(x: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """Derivation: docs/derivations/08-dropout-and-pooling.md (8.5)."""
    xp = namespace(x)
    if mask is None:
        weights = xp.full((x.shape[0], x.shape[1]), 1.0 / x.shape[1], dtype=x.dtype)
    else:
        real = (mask != 0).astype(x.dtype)  # [B, T]
        weights = real / xp.maximum(real.sum(-1, keepdims=True), 1)
    return (weights[:, None] @ x)[:, 0], weights  # [B, 1, T] @ [B, T, H]


@operation
def mean_pool_backward(dy: Array, weights: Array) -> Array:
    """Every real token has the same share of the mean. Derivation: docs/derivations/08-dropout-and-pooling.md (8.6)."""
    return weights[:, :, None] * dy[:, None]


@operation
def max_pool(x: Array, mask: Array | None = None) -> tuple[Array, Any]:
    """Derivation: docs/derivations/08-dropout-and-pooling.md (8.7)."""
    xp = namespace(x)
    real = None if mask is None else (mask != 0)[:, :, None]  # [B, T, 1]
    seen = x if real is None else xp.where(real, x, xp.array(FORBIDDEN, dtype=x.dtype))
    y, argmax = seen.max(1), seen.argmax(1)  # [B, H]
    has_tokens = None if real is None else real.any(1)  # [B, 1]
    return y if has_tokens is None else xp.where(has_tokens, y, 0).astype(x.dtype), (argmax, has_tokens, x.shape[1])


@operation
def max_pool_backward(dy: Array, state: Any) -> Array:
    """The gradient of each feature goes to the token with the maximum.

    Derivation: docs/derivations/08-dropout-and-pooling.md (8.8)
    """
    argmax, has_tokens, length = state
    xp = namespace(dy)
    dy = dy if has_tokens is None else dy * has_tokens
    return (xp.arange(length)[None, :, None] == argmax[:, None]) * dy[:, None]


@operation
def attention_pool(x: Array, mask: Array | None, query: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/08-dropout-and-pooling.md (8.9)."""
    xp = namespace(x)
    scores = (x @ query) * x.shape[-1] ** -0.5  # [B, T]
    if mask is not None:
        scores = xp.where(mask != 0, scores, xp.array(FORBIDDEN, dtype=scores.dtype))
    weights = softmax(in_full(scores))[0].astype(x.dtype)
    if mask is not None:  # otherwise a row of only padding would get equal weights
        weights = weights * (mask != 0)
    return (weights[:, None] @ x)[:, 0], (x, weights, query)


@operation
def attention_pool_backward(dy: Array, state: Any) -> tuple[Array, Array]:
    """A token contributes by its vector and by its weight:

        dw = x dy              dscores = softmax'(dw)
        dx = w dyᵀ + dscores qᵀ / √H          dq = Σ x · dscores / √H

    Returns dx and dq.

    Derivation: docs/derivations/08-dropout-and-pooling.md (8.10), (8.11)
    """
    x, weights, query = state
    scale = x.shape[-1] ** -0.5
    dscores = softmax_backward((x @ dy[:, :, None])[:, :, 0], weights) * scale  # [B, T]
    dx = weights[:, :, None] * dy[:, None] + dscores[:, :, None] * query
    return dx, dscores.reshape(-1) @ x.reshape(-1, x.shape[-1])
