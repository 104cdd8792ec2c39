"""NumPy kernels with bfloat16 products: the factors are rounded to bfloat16, the sums are float32.

    y = bf16(x) bf16(W)ᵀ + b          dx = bf16(dy) bf16(W)          dW = bf16(dy)ᵀ bf16(x)

Everything between products stays float32: parameters, biases, norms, softmax, activations, losses and gradients. A
forward keeps the rounded factors for its backward. Rounding the weights at every forward costs about one percent
of a step, and a changed weight can never be missed; read-only weights are rounded and packed once. What is not here
runs as in float32 (`numpy_kernels.py`).

oneDNN compiles a product for its number of rows. Rows are therefore filled up with zeros to a multiple of 16: batches
have different numbers of tokens and of scored rows, and few sizes remain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glassbert.engines import linear_kernels, numpy_kernels
from glassbert.engines.kernels import State, hints_of, register_in
from glassbert.engines.linear_kernels import packed
from glassbert.engines.numpy_kernels import _masked, _parts_of_product, _softmax, _softmax_backward, pieces, shares
from glassbert.engines.onednn import matmul, to_bfloat16
from glassbert.engines.threads import run_together
from glassbert.ops.attention import scale_of, sum_to

KERNELS: dict[str, Callable[..., Any]] = dict(numpy_kernels.KERNELS)
kernel = register_in(KERNELS)
FEW_ROWS = 32  # below, rounding the weights takes longer than bfloat16 saves
FEW_QUERIES = 48  # below, BLAS multiplies the small matrices of attention faster
ROWS = 16


def rounded_rows(x: np.ndarray) -> np.ndarray:
    """[N, H] float32 -> [N', H] bfloat16, where N' is the next multiple of 16 and further rows are zeros."""
    count = len(x)
    out = np.empty((-(-count // ROWS) * ROWS, x.shape[1]), np.uint16)
    out[count:] = 0
    to_bfloat16(x, out[:count])
    return out


def _state_in_float32(values: Any) -> State:
    """What `linear` keeps for a backward in float32."""
    return State(linear_kernels.linear_backward, values, hints_of(linear_kernels.linear_backward))


@kernel
def linear(x, weight, bias=None):
    rows = x.reshape(-1, x.shape[-1])
    kept = packed(weight, bfloat16=True)
    if kept is not None:
        y = kept.product(rows, bias).reshape(*x.shape[:-1], len(weight))
        return y, _state_in_float32((x, weight, bias is not None))
    if len(rows) < FEW_ROWS:
        y, values = linear_kernels.linear(x, weight, bias)
        return y, _state_in_float32(values)
    narrow, narrow_weight = rounded_rows(rows), np.empty(weight.shape, np.uint16)
    y = np.empty((len(narrow), len(weight)), np.float32)

    def work(share):
        to_bfloat16(weight[share], narrow_weight[share])
        matmul(narrow, narrow_weight[share].T, y[:, share], None if bias is None else bias[share])

    run_together(work, shares(len(weight), _parts_of_product(len(rows), *weight.shape)))
    values = (narrow, narrow_weight, x.shape, bias is not None)
    return y[: len(rows)].reshape(*x.shape[:-1], len(weight)), values


@kernel
def linear_backward(dy, state, out=(None, None)):
    narrow, weight, shape, has_bias = state
    dy_rows = dy.reshape(-1, dy.shape[-1])
    count = len(dy_rows)
    dweight = np.empty(weight.shape, np.float32) if out[0] is None else out[0]
    dbias = None
    if has_bias:
        dbias = np.empty(len(weight), np.float32) if out[1] is None else out[1]
    ones = np.ones(count, np.float32)

    def work(share):
        d = rounded_rows(dy_rows[:, share])
        matmul(d.T, narrow, dweight[share])
        if dbias is not None:
            np.matmul(ones, dy_rows[:, share], out=dbias[share])
        return matmul(d, weight[share], np.empty(narrow.shape, np.float32))

    dx, *others = run_together(work, shares(len(weight), _parts_of_product(count, *weight.shape)))
    for other in others:
        dx += other
    return dx[:count].reshape(shape), dweight, dbias


@kernel
def attention(q, k, v, pattern, bias=None, scale=None, dropout_mask=None, dropout_rate=0.0, inference=False):
    """That of `numpy_kernels` with rounded factors; softmax and the weights that are kept are float32."""
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    if min(queries, keys) < FEW_QUERIES:
        arguments = (q, k, v, pattern, bias, scale, dropout_mask, dropout_rate)
        context, values = numpy_kernels.attention(*arguments, inference=inference)
        return context, State(numpy_kernels.attention_backward, values, hints_of(numpy_kernels.attention_backward))
    tiles = list(pieces(batch, heads * queries * keys))
    weights = np.empty((tiles[0].stop if inference else batch, heads, queries, keys), np.float32)
    context = np.empty((batch, queries, heads, size), np.float32).transpose(0, 2, 1, 3)
    factor = np.float32(scale_of(q, scale))
    for rows in tiles:
        w = weights[: rows.stop - rows.start] if inference else weights[rows]
        matmul(to_bfloat16(q[rows] * factor), to_bfloat16(k[rows]).swapaxes(-1, -2), w)
        if bias is not None:
            w += bias if bias.shape[0] == 1 else bias[rows]
        _softmax(w, pattern.allowed(np, rows, slice(0, queries), slice(0, keys)))
        dropped = w if dropout_mask is None else _masked(w, dropout_mask[rows], dropout_rate)
        matmul(to_bfloat16(dropped), to_bfloat16(v[rows]), context[rows])
    if inference:
        return context, None
    return context, (q, k, v, weights, dropout_mask, dropout_rate, factor, None if bias is None else bias.shape)


@kernel
def attention_backward(dcontext, state):
    q, k, v, weights, dropout_mask, dropout_rate, factor, bias_shape = state
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    dbias = None if bias_shape is None else np.zeros(bias_shape, np.float32)
    if queries == keys:  # side by side, as the layer needs them next
        dq, dk, dv = np.empty((batch, keys, 3, heads, size), np.float32).transpose(2, 0, 3, 1, 4)
    else:
        dq, dk, dv = (np.empty(x.shape, np.float32) for x in (q, k, v))
    for rows in pieces(batch, heads * queries * keys):
        w, dc = weights[rows], to_bfloat16(dcontext[rows])
        mask = None if dropout_mask is None else dropout_mask[rows]
        dropped = w if mask is None else _masked(w, mask, dropout_rate)
        matmul(to_bfloat16(dropped).swapaxes(-1, -2), dc, dv[rows])
        dscores = matmul(dc, to_bfloat16(v[rows]).swapaxes(-1, -2), np.empty(w.shape, np.float32))
        if mask is not None:
            dscores = _masked(dscores, mask, dropout_rate)
        _softmax_backward(dscores, w, factor if dbias is None else np.float32(1.0))
        if dbias is not None:
            shared = bias_shape[0] == 1
            part = dbias if shared else dbias[rows]
            part += sum_to(dscores, (1 if shared else dscores.shape[0], *bias_shape[1:]))
            dscores *= factor
        narrow = to_bfloat16(dscores)
        matmul(narrow, to_bfloat16(k[rows]), dq[rows])
        matmul(narrow.swapaxes(-1, -2), to_bfloat16(q[rows]), dk[rows])
    return dq, dk, dv, dbias
