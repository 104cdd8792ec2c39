"""MLX kernels of quantised weights: `mx.quantized_matmul` over the codes, which stay in 8 or 4 bits in memory."""

from __future__ import annotations

import mlx.core as mx

from glassbert import ops
from glassbert.engines.kernels import plain_state, register_in
from glassbert.engines.mlx_kernels import KERNELS, sum_rows
from glassbert.ops.quantized import QuantizedArray, rounded, with_changes, with_changes_backward

kernel = register_in(KERNELS)
GROUPS = (128, 64, 32)  # the group sizes that MLX has


def mlx_group(weight: QuantizedArray) -> int | None:
    """The group size with which MLX multiplies these codes; None: it cannot."""
    width = weight.shape[1] // weight.groups
    return next((size for size in GROUPS if width % size == 0), None)


def product(x: mx.array, weight: QuantizedArray, transpose: bool) -> mx.array:
    """x Ŵᵀ, or x Ŵ. A group that is wider than those of MLX counts as several with the same scale."""
    size = mlx_group(weight)
    assert size is not None
    repeats = weight.shape[1] // weight.groups // size
    scales = weight.scales.astype(x.dtype)
    biases = -weight.zero * scales
    if weight.offsets is not None:
        biases = biases + weight.offsets.astype(x.dtype)
    if repeats > 1:
        scales, biases = (mx.repeat(one, repeats, 1) for one in (scales, biases))
    codes = weight.codes.view(mx.uint32)
    return mx.quantized_matmul(x, codes, scales, biases, transpose=transpose, group_size=size, bits=weight.bits)


@kernel
def quantized_linear(x, weight, bias=None):
    if mlx_group(weight) is None:
        y, values = ops.quantized_linear(x, weight, bias)
        return y, plain_state("quantized_linear", values)
    rows = x.reshape(-1, x.shape[-1])
    y = product(rounded(rows, weight.rounding), weight, True)
    y = with_changes(y if bias is None else y + bias, rows, weight)
    return y.reshape(*x.shape[:-1], weight.shape[0]), (x.shape, weight, bias is not None)


@kernel
def quantized_linear_backward(dy, state):
    shape, weight, has_bias = state
    dy_rows = dy.reshape(-1, dy.shape[-1])
    dx = with_changes_backward(product(dy_rows, weight, False), dy_rows, weight)
    return dx.reshape(shape), None, sum_rows(dy_rows) if has_bias else None
