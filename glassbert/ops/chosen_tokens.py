"""Some tokens of every row, taken out and put back.

    take    y[b, g] = x[b, index_g]                                  x [B, T, ...]; y [B, G, ...]
    put     z[b, t] = y[b, slot_t] where t is chosen, else x[b, t]

index [B, G] has the positions of the chosen tokens, and -1 where a row has fewer; slot [B, T] has the place of a token
among them, and -1 for all others. Each is the inverse of the other, so both directions only look up: taking passes its
gradient on by `slot`, putting by `index`.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.registry import operation


@operation
def take_tokens(x: Array, index: Array, slot: Array) -> tuple[Array, Any]:
    """The chosen tokens [B, G, ...]; zeros where a row has fewer.

    Derivation: docs/derivations/15-parts-of-families.md (15.9)
    """
    return look_up(x, index), slot


@operation
def take_tokens_backward(dy: Array, slot: Array) -> Array:
    """A chosen token was read once, any other never. Derivation: docs/derivations/15-parts-of-families.md (15.9)."""
    return look_up(dy, slot)


@operation
def put_tokens(x: Array, y: Array, index: Array, slot: Array) -> tuple[Array, Any]:
    """x with y in the place of the chosen tokens. Derivation: docs/derivations/15-parts-of-families.md (15.10)."""
    chosen = widened(slot >= 0, x)
    return namespace(x).where(chosen, look_up(y, slot), x), (index, chosen)


@operation
def put_tokens_backward(dz: Array, state: Any) -> tuple[Array, Array]:
    """A place that was overwritten passes nothing to x. Returns dx and dy.

    Derivation: docs/derivations/15-parts-of-families.md (15.10)
    """
    index, chosen = state
    xp = namespace(dz)
    return xp.where(chosen, xp.zeros_like(dz), dz), look_up(dz, index)


def look_up(x: Array, index: Array) -> Array:
    """x[b, index], and zeros where the index is -1."""
    xp = namespace(x)
    places = xp.broadcast_to(widened(xp.maximum(index, 0), x), (*index.shape, *x.shape[2:]))
    found = xp.take_along_axis(x, places, 1)
    return xp.where(widened(index >= 0, x), found, xp.zeros_like(found))


def widened(values: Array, x: Array) -> Array:
    """[B, N] with the axes of x: [B, N, 1, ...]"""
    return values.reshape(*values.shape, *[1] * (x.ndim - 2))
