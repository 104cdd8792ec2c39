"""Layer normalisation: every row to mean 0 and variance 1, then scaled and shifted.

x̂ = (x - mean) · rstd        rstd = 1 / sqrt(var + eps)
y = gamma · x̂ + beta         x, y [..., H]; gamma, beta [H]; rstd [..., 1]
"""

from __future__ import annotations

from glassbert.engines.namespace import Array, namespace
from glassbert.ops.registry import op


@op
def layer_norm(
    x: Array, gamma: Array, beta: Array | None, eps: float, overwrite: bool = False, forget: bool = False
) -> tuple[Array, tuple[Array, Array]]:
    """With `overwrite` the caller gives x up, and a kernel may keep x̂ in its place; with `forget` as well, no backward
    will follow, and y itself may take its place.
    """
    xp = namespace(x)
    x_hat = x - x.mean(-1, keepdims=True)  # [..., H]
    rstd = (xp.mean(x_hat * x_hat, axis=-1, keepdims=True) + eps) ** -0.5  # [..., 1]
    x_hat *= rstd
    y = x_hat * gamma
    if beta is not None:
        y += beta
    return y, (x_hat, rstd)


@op
def layer_norm_backward(
    dy: Array,
    gamma: Array,
    cache: tuple[Array, Array],
    has_beta: bool = True,
    out: tuple[Array | None, Array | None] = (None, None),
) -> tuple[Array, Array, Array | None]:
    """Mean and variance depend on x as well, so dx has three terms:

        dx = rstd · (g - mean(g) - x̂ · mean(g · x̂))      with g = dy · gamma

    gamma belongs inside both means; outside them it is right only while gamma is 1.
    """
    xp = namespace(dy)
    x_hat, rstd = cache
    rows = tuple(range(dy.ndim - 1))
    dgamma = xp.sum(dy * x_hat, axis=rows)  # [H]
    dbeta = xp.sum(dy, axis=rows) if has_beta else None  # [H]
    g = dy * gamma  # [..., H]
    dx = g - g.mean(-1, keepdims=True)
    dx -= x_hat * xp.mean(g * x_hat, axis=-1, keepdims=True)
    dx *= rstd
    return dx, dgamma, dbeta
