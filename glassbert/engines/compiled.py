"""Row loops compiled by Numba, where it is installed.

NumPy runs one elementwise operation at a time over a whole array; each is a pass over memory and needs the GIL at its
end. These loops do all steps of an operation while a row is in the cache. They are for float32; other types, and
machines without Numba, use NumPy, with the same results up to rounding.

Every loop must be vectorised, or it is slower than NumPy. Two things prevent that without a warning: a division that
could raise (hence `error_model`), and a sum or maximum that may not be reordered (hence `fastmath`).
"""

from __future__ import annotations

import functools

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from glassbert.engines.numpy_kernels import SAFE_EXPONENT
from glassbert.ops.activations import CUBIC, INVERSE_SQRT_2PI, SQRT_2_OVER_PI
from glassbert.ops.attention import FORBIDDEN
from glassbert.ops.normal import LIMIT, LOG_ODDS

FAST = {"contract", "reassoc", "nsz", "arcp"}  # sums may be reordered; infinities and NaN are respected
loop = functools.partial(njit, nogil=True, error_model="numpy", cache=True)
ZERO, ONE, HALF, INFINITE = np.float32(0.0), np.float32(1.0), np.float32(0.5), np.float32(np.inf)
MAGNITUDE, SAFE_BITS = np.int32(0x7FFFFFFF), np.float32(SAFE_EXPONENT).view(np.int32)
INFINITE_BITS = np.float32(np.inf).view(np.int32)
LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)
LOG2E, LN2_HIGH, LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
E5, E4, E3, E2, E1, E0 = (
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)
P0, P1, P2, P3, P4, P5, P6 = (np.float32(c) for c in LOG_ODDS)
SQUARE_LIMIT = np.float32(LIMIT)
LOWEST_SCORE, DENSITY_AT_ZERO = np.float32(FORBIDDEN), np.float32(INVERSE_SQRT_2PI)
TWO, TANH_SCALE, TANH_CUBIC = np.float32(2.0), np.float32(SQRT_2_OVER_PI), np.float32(CUBIC)
TANH_SLOPE = np.float32(3.0 * CUBIC)


# ---- exp, GELU -----------------------------------------------------------------------------------------------------


@intrinsic
def float_of_bits(typing_context, bits):
    """Reinterpret int32 bits as float32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@loop(fastmath=FAST)
def exponential(x):
    """exp(x) = 2^k · exp(r), with k the nearest integer to x / ln 2 and a polynomial for the rest.

    2^k is computed by setting the exponent bits to k. Outside the range of float32 the result is 0 or infinite.
    """
    limited = min(max(x, LOWEST), HIGHEST)
    k = np.floor(limited * LOG2E + HALF)
    r = limited - k * LN2_HIGH
    r = r - k * LN2_LOW
    p = ((((E5 * r + E4) * r + E3) * r + E2) * r + E1) * r + E0
    inside = (p * r * r + r + ONE) * float_of_bits((np.int32(k) + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]
    above = INFINITE if x > HIGHEST else inside  # type: ignore[unreachable]
    return ZERO if x < LOWEST else above


@loop(fastmath=FAST)
def odds_against(x):
    """1 / Φ(x), as in `ops/normal.py`."""
    s = min(x * x, SQUARE_LIMIT)
    return ONE + exponential(-((((((P6 * s + P5) * s + P4) * s + P3) * s + P2) * s + P1) * s + P0) * x)


@loop(fastmath=FAST)
def gelu_in_place(x):
    for i in range(x.size):
        x[i] = x[i] * (ONE / odds_against(x[i]))


@loop(fastmath=FAST)
def gelu(x, y, cdf):
    for i in range(x.size):
        cdf[i] = ONE / odds_against(x[i])
        y[i] = x[i] * cdf[i]


@loop(fastmath=FAST)
def gelu_tanh(x, y, s):
    """s = (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)): nothing is subtracted, so a small s keeps its digits"""
    for i in range(x.size):
        u = TANH_SCALE * x[i] * (ONE + TANH_CUBIC * x[i] * x[i])
        s[i] = ONE / (ONE + exponential(-TWO * u))
        y[i] = x[i] * s[i]


@loop(fastmath=FAST)
def gelu_tanh_backward(dy, x, s, dx):
    """ds/dx = 2 s (1 - s) du/dx"""
    for i in range(x.size):
        slope = TWO * TANH_SCALE * (ONE + TANH_SLOPE * x[i] * x[i])
        dx[i] = dy[i] * (s[i] + x[i] * s[i] * (ONE - s[i]) * slope)


@loop(fastmath=FAST)
def gelu_backward(dy, x, cdf, dx):
    for i in range(x.size):
        dx[i] = dy[i] * (cdf[i] + x[i] * exponential(x[i] * x[i] * -HALF) * DENSITY_AT_ZERO)


@loop(fastmath=FAST)
def geglu(x, y, cdf):
    """x [N, 2I] -> gelu(x[:, :I]) · x[:, I:]"""
    half = y.shape[1]
    for r in range(y.shape[0]):
        for i in range(half):
            cdf[r, i] = ONE / odds_against(x[r, i])
            y[r, i] = x[r, i] * cdf[r, i] * x[r, half + i]


@loop(fastmath=FAST)
def geglu_backward(dy, x, cdf, dx):
    half = dy.shape[1]
    for r in range(dy.shape[0]):
        for i in range(half):
            a = x[r, i]
            slope = cdf[r, i] + a * exponential(a * a * -HALF) * DENSITY_AT_ZERO
            dx[r, i] = dy[r, i] * x[r, half + i] * slope
            dx[r, half + i] = dy[r, i] * (a * cdf[r, i])


@loop(fastmath=FAST)
def relu(x, y):
    """max(x, 0), and NaN where x is NaN."""
    for i in range(x.size):
        y[i] = ZERO if x[i] <= ZERO else x[i]


@loop(fastmath=FAST)
def relu_backward(dy, y, dx):
    for i in range(y.size):
        dx[i] = dy[i] * np.float32(y[i] > ZERO)


@loop(fastmath=FAST)
def masked(x, keep, factor, y):
    """y = x · keep · factor"""
    for i in range(x.size):
        y[i] = x[i] * (factor * np.float32(keep[i]))


# ---- attention -----------------------------------------------------------------------------------------------------


@loop()
def relative_shift(x, start, y):
    """x [B, heads, Tq, R] -> y [B, heads, Tq, Tk]: row i from start[i] on"""
    for b in range(y.shape[0]):
        for h in range(y.shape[1]):
            for i in range(y.shape[2]):
                first = start[b % start.shape[0], i]
                for j in range(y.shape[3]):
                    y[b, h, i, j] = x[b, h, i, first + j]


@loop()
def relative_shift_backward(dy, start, dx):
    """dx is zeros before"""
    for b in range(dy.shape[0]):
        for h in range(dy.shape[1]):
            for i in range(dy.shape[2]):
                first = start[b % start.shape[0], i]
                for j in range(dy.shape[3]):
                    dx[b, h, i, first + j] = dy[b, h, i, j]


@loop(fastmath=FAST)
def transposed(k, scale, out):
    """k [B, heads, T, d] -> scale · kᵀ [B, heads, d, T]"""
    for b in range(k.shape[0]):
        for h in range(k.shape[1]):
            for t in range(k.shape[2]):
                for i in range(k.shape[3]):
                    out[b, h, i, t] = k[b, h, t, i] * scale


@loop()
def largest_magnitude(bits):
    """The bits of the largest |x| of float32 numbers: bits and magnitudes have the same order, with NaN the largest."""
    largest = np.int32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & MAGNITUDE)
    return largest


@loop()
def highest_allowed(row, allowed):
    highest = LOWEST_SCORE
    for i in range(row.size):
        if allowed[i] and not row[i] <= highest:
            highest = row[i]
    return highest


@loop()
def softmax_of_infinities(row, allowed):
    """The softmax of a row with NaN or infinities, computed as in the plain operations."""
    highest = -INFINITE
    for i in range(row.size):
        if not allowed[i]:
            row[i] = LOWEST_SCORE
        if not row[i] <= highest:
            highest = row[i]
    total = ZERO
    for i in range(row.size):
        row[i] = np.exp(row[i] - highest)
        total += row[i]
    for i in range(row.size):
        row[i] = row[i] / total * np.float32(allowed[i])


@loop(fastmath=FAST)
def softmax_in_place(scores, bits, allowed, heads, queries):
    """Replace every row [Tk] by its softmax over the allowed keys; a row without allowed keys by zeros.

    scores [B · heads · Tq, Tk], and its bits as int32; allowed [B or 1, Tq or 1, Tk].
    Small scores are not shifted by the maximum: their exp neither overflows nor underflows.
    """
    for r in range(len(scores)):
        row = scores[r]
        mine = allowed[r // (heads * queries) % allowed.shape[0], r % queries % allowed.shape[1]]
        magnitude = largest_magnitude(bits[r])
        if magnitude >= INFINITE_BITS:
            softmax_of_infinities(row, mine)
            continue
        shift = ZERO if magnitude <= SAFE_BITS else highest_allowed(row, mine)
        total = ZERO
        for i in range(row.size):
            e = exponential(row[i] - shift)
            row[i] = e if mine[i] else ZERO
            total += row[i]
        inverse = ZERO if total == ZERO else ONE / total
        for i in range(row.size):
            row[i] *= inverse


@loop(fastmath=FAST)
def softmax_backward_in_place(dweights, weights, scale):
    """Replace dweights by the gradient of the unscaled scores."""
    for r in range(len(weights)):
        d, w = dweights[r], weights[r]
        inner = ZERO
        for i in range(d.size):
            inner += d[i] * w[i]
        for i in range(d.size):
            d[i] = (d[i] - inner) * w[i] * scale


# ---- layer norm ----------------------------------------------------------------------------------------------------


@loop(fastmath=FAST)
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


@loop(fastmath=FAST)
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


@loop(fastmath=FAST)
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


# ---- AdamW ---------------------------------------------------------------------------------------------------------


@loop()
def adamw(p, g, mean, square, keep1, new1, keep2, new2, rate, epsilon, shrink):
    """One pass over memory instead of ten. The result equals that of `training/optimizers/adamw.py` bit by bit."""
    for i in range(p.size):
        m = mean[i] * keep1 + g[i] * new1
        root = g[i] * new2
        s = square[i] * keep2 + root * root
        mean[i] = m
        square[i] = s
        p[i] = p[i] * shrink - m / (np.sqrt(s) + epsilon) * rate
