"""A convolution over the tokens of a row.

    y_t = Σ_j W_j x_{t + j - p} + b         x [B, T, I]; W [O, I, k], W_j = W[:, :, j]; p = (k - 1) / 2; y [B, T, O]

Beyond the ends of a row, and where `near` is 0, there is nothing: the term is left out.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.registry import operation


def moved(x: Array, places: int) -> Array:
    """Entry t is entry t + places of x along axis 1, and 0 beyond the ends."""
    if places == 0:
        return x
    rest = [(0, 0)] * (x.ndim - 2)
    if places > 0:
        return namespace(x).pad(x, [(0, 0), (0, places), *rest])[:, places:]
    return namespace(x).pad(x, [(0, 0), (-places, 0), *rest])[:, : x.shape[1]]


@operation
def convolution(x: Array, weight: Array, bias: Array, near: Array | None = None) -> tuple[Array, Any]:
    """`near` [B, T, k] says for each token which of its k neighbours count.

    Derivation: docs/derivations/15-parts-of-families.md (15.1)
    """
    width = weight.shape[2]
    columns = [moved(x, j - (width - 1) // 2) for j in range(width)]  # k times [B, T, I]
    if near is not None:
        columns = [column * near[:, :, j : j + 1].astype(x.dtype) for j, column in enumerate(columns)]
    stacked = namespace(x).concatenate(columns, -1)  # [B, T, k · I]
    matrix = weight.transpose(0, 2, 1).reshape(weight.shape[0], -1)  # [O, k · I]
    return stacked @ matrix.T + bias, (stacked, matrix, near, weight.shape)


@operation
def convolution_backward(dy: Array, state: Any) -> tuple[Array, Array, Array]:
    """A product backwards; then every column is moved back to where it came from, and all of them add up.

    Derivation: docs/derivations/15-parts-of-families.md (15.2), (15.3)
    """
    stacked, matrix, near, (outputs, inputs, width) = state
    rows = dy.reshape(-1, outputs)  # [B · T, O]
    dweight = rows.T @ stacked.reshape(-1, width * inputs)
    dweight = dweight.reshape(outputs, width, inputs).transpose(0, 2, 1)
    dstacked = dy @ matrix
    dx = None
    for j in range(width):
        column = dstacked[:, :, j * inputs : (j + 1) * inputs]
        if near is not None:
            column = column * near[:, :, j : j + 1].astype(dy.dtype)
        column = moved(column, (width - 1) // 2 - j)
        dx = column if dx is None else dx + column
    return dx, dweight, rows.sum(0)
