"""The relative shift: scores by distance become scores by key.

    x [B, heads, Tq, R]     x[i, r]: the score of query i at the r-th distance; distances fall from left to right
    y [B, heads, Tq, Tk]    y[i, j] = x[i, start_i + j]

A table of distances begins with the largest one. For a query one place further right the same key is one place further
away, so its part of the table begins one entry earlier: start_i = T - i for query i of T. Transformer-XL shifts the
whole matrix by a reshape, which needs queries in order; with `start` [B or 1, Tq] the queries may be at any position.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.registry import operation


@operation
def relative_shift(x: Array, start: Array, keys: int) -> tuple[Array, Any]:
    """The entries start_i, ..., start_i + keys - 1 of every row i.

    Derivation: docs/derivations/15-parts-of-families.md (15.7)
    """
    xp = namespace(x)
    index = start[:, None, :, None] + xp.arange(keys)  # [B or 1, 1, Tq, Tk]
    index = xp.broadcast_to(index, (*x.shape[:3], keys))
    return xp.take_along_axis(x, index, -1), (index, x.shape)


@operation
def relative_shift_backward(dy: Array, state: Any) -> Array:
    """Every entry of x was read at most once: its gradient is put back where it was read, and is zero elsewhere.

    Derivation: docs/derivations/15-parts-of-families.md (15.8)
    """
    index, shape = state
    xp = namespace(dy)
    dx = xp.zeros(shape, dtype=dy.dtype)
    placed = xp.put_along_axis(dx, index, dy, -1)
    return dx if placed is None else placed  # NumPy writes into dx
