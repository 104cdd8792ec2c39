"""Row loops compiled by Numba, where it is installed (`pip install "glassbert[fast]"`).

NumPy runs one elementary step at a time over a whole array, and every step is a pass over memory that needs the
interpreter's lock at its end. GELU and layer norm are the operations with the most such steps; these loops do all of
them while a row is in the cache. They are for float32; everything else, and machines without Numba, use NumPy's passes,
with the same results to rounding.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from glassbert.ops.normal import LIMIT, LOG_ODDS

FAST = {"contract", "reassoc", "nsz", "arcp"}  # sums may be reordered; infinities and NaN keep their meaning
BLOCK = 512
ZERO, ONE, HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)
LOG2E, LN2_HIGH, LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
E5, E4, E3, E2, E1, E0 = (
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)
P0, P1, P2, P3, P4, P5, P6 = (np.float32(c) for c in LOG_ODDS)
SQUARE_LIMIT = np.float32(LIMIT)


@njit(nogil=True, fastmath=FAST, cache=True)
def exp_in_place(values, bits, powers):
    """exp(x) = 2^k · exp(r), with k the nearest integer to x / ln 2 and a polynomial for the rest.

    `bits` and `powers` are one scratch array seen as integers and as floats: 2^k is k written into the exponent.
    """
    for i in range(values.size):
        x = min(max(values[i], LOWEST), HIGHEST)
        k = np.floor(x * LOG2E + HALF)
        r = x - k * LN2_HIGH
        r = r - k * LN2_LOW
        p = ((((E5 * r + E4) * r + E3) * r + E2) * r + E1) * r + E0
        values[i] = p * r * r + r + ONE
        bits[i] = (np.int32(k) + np.int32(127)) << np.int32(23)
    for i in range(values.size):
        values[i] *= powers[i]


@njit(nogil=True, fastmath=FAST, cache=True)
def log_odds(x, z):
    for i in range(x.size):
        s = min(x[i] * x[i], SQUARE_LIMIT)
        z[i] = -((((((P6 * s + P5) * s + P4) * s + P3) * s + P2) * s + P1) * s + P0) * x[i]


@njit(nogil=True, fastmath=FAST, cache=True)
def gelu_in_place(x):
    bits = np.empty(BLOCK, np.int32)
    powers = bits.view(np.float32)
    scratch = np.empty(BLOCK, np.float32)
    for start in range(0, x.size, BLOCK):
        part = x[start : start + BLOCK]
        n = part.size
        z = scratch[:n]
        log_odds(part, z)
        exp_in_place(z, bits[:n], powers[:n])
        for i in range(n):
            part[i] = part[i] / (ONE + z[i])


@njit(nogil=True, fastmath=FAST, cache=True)
def gelu(x, y, cdf):
    bits = np.empty(BLOCK, np.int32)
    powers = bits.view(np.float32)
    for start in range(0, x.size, BLOCK):
        part, z, out = x[start : start + BLOCK], cdf[start : start + BLOCK], y[start : start + BLOCK]
        n = part.size
        log_odds(part, z)
        exp_in_place(z, bits[:n], powers[:n])
        for i in range(n):
            z[i] = ONE / (ONE + z[i])
            out[i] = part[i] * z[i]


@njit(nogil=True, fastmath=FAST, cache=True)
def layer_norm(x, gamma, beta, has_beta, eps, x_hat, rstd, y):
    width = x.shape[1]
    for r in range(x.shape[0]):
        total = ZERO
        for i in range(width):
            total += x[r, i]
        mean = total / np.float32(width)
        square = ZERO
        for i in range(width):
            difference = x[r, i] - mean
            x_hat[r, i] = difference
            square += difference * difference
        scale = ONE / np.sqrt(square / np.float32(width) + eps)
        rstd[r, 0] = scale
        if has_beta:
            for i in range(width):
                x_hat[r, i] *= scale
                y[r, i] = x_hat[r, i] * gamma[i] + beta[i]
        else:
            for i in range(width):
                x_hat[r, i] *= scale
                y[r, i] = x_hat[r, i] * gamma[i]


@njit(nogil=True, fastmath=FAST, cache=True)
def layer_norm_backward(dy, gamma, x_hat, rstd, dx, dgamma, dbeta):
    width = dy.shape[1]
    for r in range(dy.shape[0]):
        sum_g = ZERO
        sum_gx = ZERO
        for i in range(width):
            d, xh = dy[r, i], x_hat[r, i]
            g = d * gamma[i]
            sum_g += g
            sum_gx += g * xh
            dgamma[i] += d * xh
            dbeta[i] += d
        mean_g = sum_g / np.float32(width)
        mean_gx = sum_gx / np.float32(width)
        scale = rstd[r, 0]
        for i in range(width):
            dx[r, i] = scale * (dy[r, i] * gamma[i] - mean_g - x_hat[r, i] * mean_gx)


@njit(nogil=True, fastmath=FAST, cache=True)
def layer_norm_in_place(x, gamma, beta, eps):
    width = x.shape[1]
    for r in range(x.shape[0]):
        total = ZERO
        for i in range(width):
            total += x[r, i]
        mean = total / np.float32(width)
        square = ZERO
        for i in range(width):
            difference = x[r, i] - mean
            square += difference * difference
        scale = ONE / np.sqrt(square / np.float32(width) + eps)
        for i in range(width):
            x[r, i] = (x[r, i] - mean) * scale * gamma[i] + beta[i]
