"""Dropout: a random share of the values is set to zero; the rest is scaled up, so that the expectation stays.

    y = x · mask / (1 - rate)          mask is 1 where a value is kept

The mask is an argument and not drawn here: forward, backward and a recomputation use the same mask.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array
from glassbert.ops.registry import operation


@operation
def dropout(x: Array, mask: Array | None, rate: float) -> tuple[Array, Any]:
    """Derivation: docs/derivations/08-dropout-and-pooling.md (8.1)."""
    if mask is None:
        return x, (None, rate)
    y = x * mask
    y *= 1.0 / (1.0 - rate)
    return y, (mask, rate)


@operation
def dropout_backward(dy: Array, state: Any) -> Array:
    """The gradient goes through the same mask and the same scale as the values.

    Derivation: docs/derivations/08-dropout-and-pooling.md (8.2)
    """
    return dropout(dy, *state)[0]
