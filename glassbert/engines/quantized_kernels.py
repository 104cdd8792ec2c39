"""NumPy kernels of quantised weights.

Where activations are rounded and oneDNN is installed, the product is one of integers. Otherwise the codes are turned
into floats a block at a time, so that only a block is ever in memory as floats, and BLAS multiplies it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines import onednn
from glassbert.engines.kernels import register_in
from glassbert.engines.numpy_kernels import KERNELS, _parts_of_product, compiled_loops, pieces, shares
from glassbert.engines.threads import run_together
from glassbert.ops.quantized import TOKEN, QuantizedArray, dequantize, rounded, with_changes
from glassbert.ops.quantized import with_changes_backward as changes_backward

kernel = register_in(KERNELS)
BLOCK = 131_072  # numbers of a weight that are floats at a time


@kernel
def quantized_linear(x, weight, bias=None):
    rows = np.ascontiguousarray(x.reshape(-1, x.shape[-1]))
    y = _integer_product(rows, weight, bias)
    if y is None:
        y = _float_product(rounded(rows, weight.rounding), weight, bias)
    y = with_changes(y, rows, weight)
    return y.reshape(*x.shape[:-1], weight.shape[0]), (x.shape, weight, bias is not None)


@kernel
def quantized_linear_backward(dy, state):
    shape, weight, has_bias = state
    dy_rows = dy.reshape(-1, dy.shape[-1])
    dx = np.zeros((len(dy_rows), weight.shape[1]), dy.dtype)
    for piece in pieces(weight.shape[0], weight.shape[1], BLOCK):
        dx += dy_rows[:, piece] @ floats(weight.rows(piece))
    dx = changes_backward(dx, dy_rows, weight)
    dbias = np.ones(len(dy_rows), dy.dtype) @ dy_rows if has_bias else None
    return dx.reshape(shape), None, dbias


def _float_product(rows: np.ndarray, weight: QuantizedArray, bias: np.ndarray | None) -> np.ndarray:
    y = np.empty((len(rows), len(weight)), rows.dtype)

    def work(share: slice) -> None:
        for piece in pieces(share.stop - share.start, weight.shape[1], BLOCK):
            which = slice(share.start + piece.start, share.start + piece.stop)
            part = np.matmul(rows, floats(weight.rows(which)).T, out=y[:, which])
            if bias is not None:
                part += bias[which]

    run_together(work, shares(len(weight), _parts_of_product(len(rows), *weight.shape)))
    return y


def _integer_product(rows: np.ndarray, weight: QuantizedArray, bias: np.ndarray | None) -> np.ndarray | None:
    """The product of 8-bit codes; None where it does not apply."""
    loops = compiled_quantized()
    per_channel = weight.bits == 8 and weight.groups == 1 and weight.offsets is None
    if (
        loops is None
        or not onednn.has_integer_products()
        or weight.rounding is None
        or not per_channel
        or rows.dtype != np.float32
    ):
        return None
    count = len(rows)
    codes = np.empty(rows.shape, np.uint8)
    steps, zeros = np.empty(count, np.float32), np.empty(count, np.float32)
    fixed = weight.rounding != TOKEN
    low, high = weight.rounding if fixed else (0.0, 0.0)
    y = np.empty((count, len(weight)), np.float32)
    added = np.zeros(len(weight), np.float32) if bias is None else bias
    scales = weight.scales[:, 0].astype(np.float32)
    by_rows = count >= len(weight)

    def round_share(share: slice) -> None:
        loops.round_rows(
            rows[share], codes[share], steps[share], zeros[share], np.float32(low), np.float32(high), fixed
        )

    def work(share: slice) -> None:
        n, o = (share, slice(None)) if by_rows else (slice(None), share)
        part = np.empty((codes[n].shape[0], len(weight.codes[o])), np.int32)
        onednn.product_u8s8(codes[n], weight.codes[o], part)
        loops.scale_products(part, steps[n], zeros[n], scales[o], weight.row_sums[o], added[o], y[n, o])

    parts = _parts_of_product(count, *weight.shape)
    run_together(round_share, shares(count, parts))
    run_together(work, shares(count if by_rows else len(weight), parts))
    return y


def floats(weight: QuantizedArray) -> np.ndarray:
    """Ŵ without its changes, by compiled loops where they fit."""
    loops = compiled_quantized()
    even = weight.bits == 8 or (weight.shape[1] // weight.groups) % 2 == 0
    if loops is None or weight.dtype != np.float32 or not even:
        return dequantize(weight)
    scales = weight.scales.astype(np.float32)
    offsets = -weight.zero * scales
    if weight.offsets is not None:
        offsets += weight.offsets
    y = np.empty(weight.shape, np.float32)
    run = loops.scale_codes if weight.bits == 8 else loops.unpack_groups
    run(np.ascontiguousarray(weight.codes), scales, offsets, y)
    return y


def compiled_quantized() -> Any:
    """The compiled loops of quantised weights, or None."""
    if compiled_loops() is None:
        return None
    from glassbert.engines import compiled_quantized as loops

    return loops
