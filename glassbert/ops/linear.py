"""The linear map, where nearly all of BERT's arithmetic happens.

    y = x Wᵀ + b          x [..., I]; W [O, I]; b [O]; y [..., O]

W is stored as [output, input], the layout of Hugging Face's files.
"""

from __future__ import annotations

from glassbert.engines.namespace import Array, is_numpy, namespace
from glassbert.ops.registry import op


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b, written straight into `out` where the engine has memory of its own to write into."""
    if out is not None and is_numpy(a):
        return namespace(a).matmul(a, b, out=out)
    return a @ b


@op
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    rows = x.reshape(-1, x.shape[-1])  # [N, I]
    y = rows @ weight.T  # [N, O]
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], weight.shape[0])


@op
def linear_backward(
    dy: Array, x: Array, weight: Array, has_bias: bool = True, out: tuple[Array | None, Array | None] = (None, None)
) -> tuple[Array, Array, Array | None]:
    """Each product's gradient is a product again, with the other factor transposed:

        dx = dy W        dW = dyᵀ x        db = sum of dy over the rows

    `out` may name arrays that receive dW and db.
    """
    dy_rows = dy.reshape(-1, dy.shape[-1])  # [N, O]
    x_rows = x.reshape(-1, x.shape[-1])  # [N, I]
    dx = (dy_rows @ weight).reshape(x.shape)  # [..., I]
    dweight = product(dy_rows.T, x_rows, out[0])  # [O, I]
    dbias = None
    if has_bias:
        dbias = dy_rows.sum(0) if out[1] is None else dy_rows.sum(0, out=out[1])  # [O]
    return dx, dweight, dbias
