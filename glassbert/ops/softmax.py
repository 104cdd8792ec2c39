"""Softmax: scores to weights that are positive and sum to one.

    y_i = exp(x_i - max x) / sum_j exp(x_j - max x)          along the last axis

Subtracting the maximum changes nothing in exact arithmetic and keeps exp from overflowing.
"""

from __future__ import annotations

from glassbert.engines.namespace import Array, namespace
from glassbert.ops.registry import op


@op
def softmax(x: Array) -> Array:
    xp = namespace(x)
    y = xp.exp(x - x.max(-1, keepdims=True))
    y /= y.sum(-1, keepdims=True)
    return y


@op
def softmax_backward(dy: Array, y: Array) -> Array:
    """∂y_i/∂x_j = y_i (δ_ij - y_j), so the gradient is dy, less its mean under y, weighted by y:

    dx = y · (dy - Σ_j dy_j y_j)
    """
    return y * (dy - (dy * y).sum(-1, keepdims=True))
