"""The Huber loss: squared for small errors, linear for large ones, so that outliers do not dominate.

huber(d) = d² / 2                   where |d| ≤ δ
           δ · (|d| - δ / 2)        otherwise: the tangent of the parabola at δ         d = output - target
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.losses import IGNORED, as_dtype, in_full
from glassbert.ops.registry import operation


@operation
def huber_loss(outputs: Array, targets: Array, delta: float = 1.0) -> tuple[Array, Any]:
    """The mean over the targets that are not -100. Derivation: docs/derivations/09-losses.md (9.13)."""
    xp = namespace(outputs)
    outputs = in_full(outputs)
    valid = targets != IGNORED
    count = xp.maximum(valid.sum(), 1)
    difference = xp.where(valid, outputs - targets.astype(outputs.dtype), 0)
    near = xp.clip(difference, -delta, delta)
    # d·n - n²/2 with n = clip(d): the parabola where n = d, the line where n = ±δ
    each = near * (difference - 0.5 * near)
    return (each.sum() / count).astype(outputs.dtype), (near, count)


@operation
def huber_loss_backward(dloss: Array, state: Any) -> Array:
    """The slope is the clipped error, clip(d, -δ, δ). Derivation: docs/derivations/09-losses.md (9.14)."""
    near, count = state
    return near * as_dtype(dloss / count, near)
