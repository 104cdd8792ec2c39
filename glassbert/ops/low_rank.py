"""A matrix plus a change of low rank, as in LoRA fine-tuning.

    W' = W + s B A          W, W' [O, I]; A [r, I]; B [O, r]; s a number

A and B have r (O + I) numbers, W has O · I. B is initialised with zeros, so that W' is W at first. W is frozen and has
no gradient here.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array
from glassbert.ops.registry import operation


@operation
def low_rank(weight: Array, a: Array, b: Array, scale: float) -> tuple[Array, Any]:
    """Derivation: docs/derivations/02-linear.md (2.9)."""
    return weight + scale * (b @ a), (a, b, scale)


@operation
def low_rank_backward(factors: tuple[Array, Array], state: Any) -> tuple[Array, Array]:
    """The gradient of W' in y = x W'ᵀ is dyᵀ x, given as its two factors dy [N, O] and x [N, I]. By the chain rule

        dA = s Bᵀ (dyᵀ x) = s (dy B)ᵀ x          dB = s (dyᵀ x) Aᵀ = s dyᵀ (x Aᵀ)

    The right-hand forms multiply only matrices with one side r; the large product dyᵀ x is never formed.

    Derivation: docs/derivations/02-linear.md (2.10), (2.11)
    """
    (dy, x), (a, b, scale) = factors, state
    da = (scale * (dy @ b)).T @ x  # [r, I]
    db = dy.T @ (scale * (x @ a.T))  # [O, r]
    return da, db
