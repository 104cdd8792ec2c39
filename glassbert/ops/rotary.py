"""Rotary positions: queries and keys are rotated by an angle that grows with the position.

A head's features are paired (i, i + d/2), and each pair is a point in a plane:

    y₁ = x₁ cos θ - x₂ sin θ          θ = position · base^(-2i/d)
    y₂ = x₂ cos θ + x₁ sin θ          x, y [B, T, heads, d]; cos, sin [B or 1, T, 1, d/2]

The dot product of two rotated vectors depends only on the difference of their positions. The angles are given per
token, so several documents packed into one row each begin at position 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.ops.registry import operation


def rotary_angles(positions: np.ndarray, head_size: int, base: float, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin [B or 1, T, 1, d/2] for positions [B or 1, T].

    In float32 the angle itself is rounded to float32: published weights were trained with that rounding.

    Derivation: docs/derivations/07-rotary.md (7.1)
    """
    if is_numpy(positions) and len(positions) > 1:  # the same few positions in every row
        cos, sin = rotary_angles(np.arange(positions.max() + 1)[None], head_size, base, dtype)
        return cos[0][positions], sin[0][positions]
    exponent = np.arange(0, head_size, 2, dtype=dtype) / dtype.type(head_size)
    frequency = (1.0 / base**exponent).astype(dtype)  # [d/2]
    angle = positions.astype(dtype)[:, :, None, None] * frequency
    return np.cos(angle), np.sin(angle)


@operation
def rotary(x: Array, cos: Array, sin: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/07-rotary.md (7.2), (7.4)."""
    xp = namespace(x)
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half], x[..., half:]
    y = xp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)
    return y if y.dtype == x.dtype else y.astype(x.dtype), (cos, sin)  # angles stay float32 where x has 16 bits


@operation
def rotary_backward(dy: Array, state: Any) -> Array:
    """The transpose of a rotation is its inverse, so the gradient is rotated by -θ.

    Derivation: docs/derivations/07-rotary.md (7.3)
    """
    cos, sin = state
    return rotary(dy, cos, -sin)[0]
