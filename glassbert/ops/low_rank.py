"""A matrix plus a change of low rank: what fine-tuning teaches a matrix rarely needs more than a few directions.

    W' = W + s B A          W, W' [O, I]; A [r, I]; B [O, r]; s a number

A looks at the input from r directions, B says what follows from each. Together they have r (O + I) numbers where W has
O · I. With B zero the change begins as nothing. W stands still, so it has no gradient here.
"""

from __future__ import annotations

from glassbert.engines.namespace import Array
from glassbert.ops.registry import op


@op
def low_rank(weight: Array, a: Array, b: Array, scale: float) -> Array:
    return weight + scale * (b @ a)


@op
def low_rank_backward(dy: Array, x: Array, a: Array, b: Array, scale: float) -> tuple[Array, Array]:
    """From the gradient of y = x W'ᵀ, with rows of tokens: dy [N, O], x [N, I].

    The gradient of W' is dyᵀ x, and by the chain rule

        dA = s Bᵀ (dyᵀ x) = s (dy B)ᵀ x          dB = s (dyᵀ x) Aᵀ = s dyᵀ (x Aᵀ)

    On the right nothing is wider than r, and the large product dyᵀ x is never formed.
    """
    da = (scale * (dy @ b)).T @ x  # [r, I]
    db = dy.T @ (scale * (x @ a.T))  # [O, r]
    return da, db
