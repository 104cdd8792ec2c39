"""Row loops of quantised weights, compiled by Numba: codes to floats, activations to codes, products to floats."""

from __future__ import annotations

import numpy as np

from glassbert.engines.compiled import FAST, loop

ZERO, ONE = np.float32(0.0), np.float32(1.0)
NOT_A_NUMBER = np.float32(np.nan)
LEVELS, STEP = np.float32(255.0), np.float32(1.0 / 255.0)


@loop(fastmath=FAST)
def round_rows(x, codes, steps, zeros, low, high, fixed):
    """[N, I] floats to codes of 8 bits, with a step and a zero for every row, or for all if the range is fixed.

    A row with a NaN gets the step NaN, so that all of its products are NaN. So does one with an infinity, unless the
    range is fixed, which clips it.
    """
    for n in range(x.shape[0]):
        row, out = x[n], codes[n]
        if not fixed:
            low, high, none = ZERO, ZERO, ZERO
            for i in range(row.size):
                low = min(low, row[i])
                high = max(high, row[i])
                none += row[i] * ZERO
            step = (high - low) * STEP + none
        else:
            lost = 0
            for i in range(row.size):
                lost += row[i] != row[i]
            step = (high - low) * STEP if lost == 0 else NOT_A_NUMBER
        if step == ZERO:
            step = ONE
        z = np.rint(-low / step)
        for i in range(row.size):
            value = np.rint(row[i] / step) + z
            out[i] = np.uint8(min(max(value, ZERO), LEVELS))
        steps[n] = step
        zeros[n] = z


@loop(fastmath=FAST)
def scale_products(products, steps, zeros, scales, row_sums, bias, y):
    """y[n, o] = step[n] · scale[o] · (product[n, o] - z[n] · sum[o]) + b[o]"""
    for n in range(y.shape[0]):
        step, z = steps[n], np.int32(zeros[n])
        row, out = products[n], y[n]
        for o in range(out.size):
            out[o] = np.float32(row[o] - z * row_sums[o]) * (step * scales[o]) + bias[o]


@loop(fastmath=FAST)
def unpack_groups(codes, scales, offsets, y):
    """Two codes of 4 bits in a byte: y[r, c] = scale[r, g] · code + offset[r, g]"""
    rows, groups = scales.shape
    half = codes.shape[1] // groups
    for r in range(rows):
        for g in range(groups):
            scale, offset = scales[r, g], offsets[r, g]
            source, target = codes[r, g * half : (g + 1) * half], y[r, 2 * g * half : 2 * (g + 1) * half]
            for i in range(half):
                both = source[i]
                target[2 * i] = scale * np.float32(both & np.uint8(15)) + offset
                target[2 * i + 1] = scale * np.float32(both >> np.uint8(4)) + offset


@loop(fastmath=FAST)
def scale_codes(codes, scales, offsets, y):
    """Codes of 8 bits: y[r, c] = scale[r, g] · code + offset[r, g]"""
    rows, groups = scales.shape
    width = codes.shape[1] // groups
    for r in range(rows):
        for g in range(groups):
            scale, offset = scales[r, g], offsets[r, g]
            source, target = codes[r, g * width : (g + 1) * width], y[r, g * width : (g + 1) * width]
            for i in range(width):
                target[i] = scale * np.float32(source[i]) + offset
