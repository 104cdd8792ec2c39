"""Layer normalisation: every row to mean 0 and variance 1, then scaled and shifted.

x̂ = (x - mean) · rstd        rstd = 1 / sqrt(var + eps)
y = gamma · x̂ + beta         x, y [..., H]; gamma, beta [H]; rstd [..., 1]
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array
from glassbert.ops.registry import operation


@operation
def layer_norm(x: Array, gamma: Array, beta: Array | None, eps: float) -> tuple[Array, Any]:
    """Derivation: docs/derivations/04-layer-norm.md (4.1), (4.2), (4.3)."""
    x_hat = x - x.mean(-1, keepdims=True)  # [..., H]
    rstd = ((x_hat * x_hat).mean(-1, keepdims=True) + eps) ** -0.5  # [..., 1]
    x_hat *= rstd
    y = x_hat * gamma
    if beta is not None:
        y += beta
    return y, (x_hat, rstd, gamma, beta is not None)


@operation
def layer_norm_backward(dy: Array, state: Any) -> tuple[Array, Array, Array | None]:
    """Mean and variance depend on x as well, so dx has three terms:

        dx = rstd · (g - mean(g) - x̂ · mean(g · x̂))      with g = dy · gamma

    gamma must be inside both means; outside it is correct only if gamma is 1.

    Derivation: docs/derivations/04-layer-norm.md (4.4), (4.5), (4.6), (4.7), (4.8)
    """
    x_hat, rstd, gamma, has_beta = state
    rows = tuple(range(dy.ndim - 1))
    dgamma = (dy * x_hat).sum(rows)  # [H]
    dbeta = dy.sum(rows) if has_beta else None  # [H]
    g = dy * gamma  # [..., H]
    dx = g - g.mean(-1, keepdims=True)
    dx -= x_hat * (g * x_hat).mean(-1, keepdims=True)
    dx *= rstd
    return dx, dgamma, dbeta
