"""Dropout: a random share of the values is set to zero, the rest grows so that the expectation stays.

    y = x · keep / (1 - rate)          keep is 1 where a value survives

The mask is given, not drawn here: the same mask serves forward, backward and a recomputation.
"""

from __future__ import annotations

from glassbert.engines.namespace import Array
from glassbert.ops.registry import op


@op
def dropout(x: Array, keep: Array | None, rate: float) -> Array:
    if keep is None:
        return x
    y = x * keep
    y *= 1.0 / (1.0 - rate)
    return y


@op
def dropout_backward(dy: Array, keep: Array | None, rate: float) -> Array:
    """What was dropped had no influence; what survived was scaled, and so is its gradient."""
    if keep is None:
        return dy
    dx = dy * keep
    dx *= 1.0 / (1.0 - rate)
    return dx
