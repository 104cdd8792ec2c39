"""The linear map, which takes nearly all of BERT's operations.

    y = x Wᵀ + b          x [..., I]; W [O, I]; b [O]; y [..., O]

W is stored as [output, input], the layout of Hugging Face's files.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array
from glassbert.ops.registry import operation


@operation
def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Any]:
    """Derivation: docs/derivations/02-linear.md (2.1)."""
    rows = x.reshape(-1, x.shape[-1])  # [N, I]
    y = rows @ weight.T  # [N, O]
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], weight.shape[0]), (x, weight, bias is not None)


@operation
def linear_backward(dy: Array, state: Any) -> tuple[Array, Array, Array | None]:
    """The gradient of each factor of a product is a product with the other factor, transposed:

    dx = dy W        dW = dyᵀ x        db = sum of dy over the rows

    Derivation: docs/derivations/02-linear.md (2.2), (2.3), (2.4)
    """
    x, weight, has_bias = state
    dy_rows = dy.reshape(-1, dy.shape[-1])  # [N, O]
    x_rows = x.reshape(-1, x.shape[-1])  # [N, I]
    dx = (dy_rows @ weight).reshape(x.shape)  # [..., I]
    dweight = dy_rows.T @ x_rows  # [O, I]
    dbias = dy_rows.sum(0) if has_bias else None  # [O]
    return dx, dweight, dbias
