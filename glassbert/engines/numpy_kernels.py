"""NumPy kernels: the operations again, with fewer passes over memory.

What makes them faster is always one of these: sums as products with a vector of ones (BLAS reads memory at full speed,
`sum` does not), pieces that stay in the cache of a core, results written in place, and a maximum that need not be
subtracted because it is known to be small. Where Numba is installed, the row loops of `compiled.py` take over in
float32.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from glassbert.engines.threads import run_together, threads_to_use
from glassbert.ops.normal import normal_cdf, odds_against
from glassbert.ops.registry import kernel, plain

PIECE = 262_144  # elements: near a core's cache, and long enough that threads seldom meet at the interpreter's lock
WORTH_SPLITTING = 4_000_000  # multiplications: below, meeting costs more than sharing saves
SAFE_EXPONENT = 40.0  # exp of anything up to here, summed over millions, is far from float32's ends


@functools.cache
def compiled_loops():
    """The compiled loops, or None: without Numba, where it cannot work, or with GLASSBERT_COMPILED=0."""
    if os.environ.get("GLASSBERT_COMPILED") == "0" or importlib.util.find_spec("numba") is None:
        return None
    try:
        from glassbert.engines import compiled
    except Exception as problem:  # Numba refuses in many ways: a new NumPy, no place for its cache
        warnings.warn(f"Numba is installed but cannot be used ({problem}); NumPy does the work", stacklevel=2)
        return None
    return compiled


def loops_for(*arrays):
    """The compiled loops where they fit these arrays: float32, and contiguous."""
    if all(x.dtype == np.float32 and x.flags.c_contiguous for x in arrays):
        return compiled_loops()
    return None


def pieces(rows: int, width: int, size: int = PIECE) -> Iterator[slice]:
    """Runs of rows with about `size` elements each."""
    step = max(1, size // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def shares(size: int, parts: int) -> list[slice]:
    """0 to size in `parts` even runs."""
    edges = [size * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def _parts_of_product(*sizes: int) -> int:
    return threads_to_use() if math.prod(sizes) > WORTH_SPLITTING else 1


@kernel("numpy", "linear")
def linear(x, weight, bias=None):
    rows = x.reshape(-1, x.shape[-1])
    y = np.empty((len(rows), len(weight)), x.dtype)
    by_rows = len(rows) >= len(weight)

    def work(share):
        which = (share, slice(None)) if by_rows else (slice(None), share)
        part = np.matmul(rows[which[0]], weight[which[1]].T, out=y[which])
        if bias is not None:
            part += bias[which[1]]

    split = shares(len(rows) if by_rows else len(weight), _parts_of_product(len(rows), *weight.shape))
    run_together(work, split)
    return y.reshape(*x.shape[:-1], len(weight))


@kernel("numpy", "linear_backward")
def linear_backward(dy, x, weight, has_bias=True, out=(None, None)):
    dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    dweight = np.empty(weight.shape, dy.dtype) if out[0] is None else out[0]
    dbias = None
    if has_bias:
        dbias = np.empty(len(weight), dy.dtype) if out[1] is None else out[1]
    ones = np.ones(len(dy_rows), dy.dtype)

    def work(share):
        d = dy_rows[:, share]
        np.matmul(d.T, x_rows, out=dweight[share])
        if dbias is not None:
            np.matmul(ones, d, out=dbias[share])
        return d @ weight[share]

    split = shares(len(weight), _parts_of_product(len(x_rows), *weight.shape))
    dx, *others = run_together(work, split)
    for other in others:
        dx += other
    return dx.reshape(x.shape), dweight, dbias


@kernel("numpy", "layer_norm")
def layer_norm(x, gamma, beta, eps, overwrite=False, forget=False):
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    overwrite = overwrite and x.flags.c_contiguous and x.flags.writeable
    loops = loops_for(rows, gamma)
    if overwrite and forget and loops is not None:
        loops.layer_norm_in_place(rows, gamma, np.zeros_like(gamma) if beta is None else beta, np.float32(eps))
        return x, None
    x_hat = rows if overwrite else np.empty_like(rows)
    y = np.empty_like(rows)
    rstd = np.empty((len(rows), 1), x.dtype)
    loops = loops_for(rows, gamma)
    if loops is not None:
        loops.layer_norm(
            rows, gamma, gamma if beta is None else beta, beta is not None, np.float32(eps), x_hat, rstd, y
        )
        return y.reshape(x.shape), (x_hat.reshape(x.shape), rstd.reshape(*x.shape[:-1], 1))
    share = np.full(width, 1.0 / width, x.dtype)
    for piece in pieces(len(rows), width):
        part = np.subtract(rows[piece], (rows[piece] @ share)[:, None], out=x_hat[piece])
        variance = np.vecdot(part, part)
        variance *= 1.0 / width
        variance += eps
        np.sqrt(variance, out=variance)
        np.divide(1.0, variance, out=rstd[piece, 0])
        part *= rstd[piece]
        np.multiply(part, gamma, out=y[piece])
        if beta is not None:
            y[piece] += beta
    return y.reshape(x.shape), (x_hat.reshape(x.shape), rstd.reshape(*x.shape[:-1], 1))


@kernel("numpy", "layer_norm_backward")
def layer_norm_backward(dy, gamma, cache, has_beta=True, out=(None, None)):
    width = dy.shape[-1]
    dy_rows = dy.reshape(-1, width)
    x_hat, rstd = cache[0].reshape(-1, width), cache[1].reshape(-1, 1)
    dx = np.empty_like(dy_rows)
    dgamma = np.zeros(width, dy.dtype)
    dbeta = np.zeros(width, dy.dtype) if has_beta else None
    loops = loops_for(dy_rows, gamma, x_hat, rstd)
    if loops is not None:
        unused = np.zeros(width, dy.dtype)
        loops.layer_norm_backward(dy_rows, gamma, x_hat, rstd, dx, dgamma, unused if dbeta is None else dbeta)
        return dx.reshape(dy.shape), dgamma, dbeta
    gamma_share = gamma * dy.dtype.type(1.0 / width)
    for piece in pieces(len(dy_rows), width):
        d, xh, result = dy_rows[piece], x_hat[piece], dx[piece]
        ones = np.ones(len(d), dy.dtype)
        product = d * xh
        dgamma += ones @ product
        if dbeta is not None:
            dbeta += ones @ d
        mean_g = d @ gamma_share  # the mean of dy · gamma, without forming it
        mean_gx = product @ gamma_share
        np.multiply(d, gamma, out=result)
        result -= mean_g[:, None]
        np.multiply(xh, mean_gx[:, None], out=product)
        result -= product
        result *= rstd[piece]
    return dx.reshape(dy.shape), dgamma, dbeta


@kernel("numpy", "relu")
def relu(x, overwrite=False):
    if x.dtype == np.float32 and x.flags.c_contiguous:  # a negative float is a negative integer: one plain maximum
        bits = x.view(np.int32)
        return np.maximum(bits, 0, out=bits if overwrite and x.flags.writeable else None).view(np.float32), None
    return np.maximum(x, 0), None


@kernel("numpy", "relu_backward")
def relu_backward(dy, x, cache=None, overwrite=False):
    return np.multiply(dy, x > 0, out=dy if overwrite and dy.flags.writeable else None)


@kernel("numpy", "gelu")
def gelu(x, overwrite=False):
    flat = x.reshape(-1)
    forget = overwrite and x.dtype == np.float32 and x.flags.c_contiguous and x.flags.writeable
    loops = loops_for(x)
    if forget and loops is not None:
        loops.gelu_in_place(flat)
        return x, None
    if forget:
        square, odds = (np.empty(min(PIECE, len(flat)), x.dtype) for _ in range(2))
        with np.errstate(over="ignore"):
            for piece in pieces(len(flat), 1):
                part = flat[piece]
                part /= odds_against(part, square[: len(part)], odds[: len(part)])
        return x, None
    y, cdf = np.empty_like(flat), np.empty_like(flat)
    if loops is not None:
        loops.gelu(flat, y, cdf)
        return y.reshape(x.shape), cdf.reshape(x.shape)
    for piece in pieces(len(flat), 1):
        cdf[piece] = normal_cdf(flat[piece])
        np.multiply(flat[piece], cdf[piece], out=y[piece])
    return y.reshape(x.shape), cdf.reshape(x.shape)


@kernel("numpy", "attention")
def attention(q, k, v, pattern, keep=None, rate=0.0, forget=False):
    """The weights are left unnormalised: dividing the context is a matter of d columns instead of T."""
    batch, heads, length, size = q.shape
    tiles = list(pieces(batch, heads * length * length, 2 * PIECE))
    exponentials = np.empty((tiles[0].stop if forget else batch, heads, length, length), q.dtype)
    inverse = np.empty((batch, heads, length, 1), q.dtype)
    context = np.empty((batch, length, heads, size), q.dtype).transpose(0, 2, 1, 3)
    ones = np.ones((length, 1), q.dtype)
    scale = q.dtype.type(size**-0.5)
    whole = slice(0, length)
    for rows in tiles:
        keys = np.multiply(k[rows].swapaxes(-1, -2), scale, order="C")  # [b, heads, d, T]: BLAS likes them turned
        e = np.matmul(q[rows], keys, out=exponentials[: rows.stop - rows.start] if forget else exponentials[rows])
        allowed = pattern.allowed(np, rows, whole, whole)
        total = inverse[rows]
        _exponentials(e, allowed, total, ones)
        if keep is None:
            np.matmul(e, v[rows], out=context[rows])
            context[rows] *= total
        else:
            np.matmul(e * keep[rows], v[rows], out=context[rows])
            context[rows] *= total * q.dtype.type(1.0 / (1.0 - rate))
    return context, None if forget else (exponentials, inverse)


def _exponentials(e, allowed, inverse, ones):
    """Scores to exponentials, in place; `inverse` receives one over the sum of each row."""
    # Where no score is large or very small, exp needs no shift: two passes over the scores fewer.
    if e.max() > SAFE_EXPONENT or e.min() < -SAFE_EXPONENT:
        if allowed is not None:
            np.copyto(e, e.dtype.type(-1e30), where=~allowed)
        e -= e.max(-1, keepdims=True)
    np.exp(e, out=e)
    if allowed is not None:
        e *= allowed
    np.matmul(e, ones, out=inverse)
    if allowed is not None:
        inverse[inverse == 0] = np.inf  # who may see nobody sees nothing
    np.reciprocal(inverse, out=inverse)


@kernel("numpy", "attention_backward")
def attention_backward(dcontext, q, k, v, context, state, keep=None, rate=0.0):
    """As the plain backward, with weights = exponentials · inverse taken apart and pulled out of the T x T arrays."""
    exponentials, inverse = state
    batch, heads, length, size = q.shape
    scale = q.dtype.type(size**-0.5)
    ones = np.ones(size, q.dtype)
    joined = np.empty((batch, length, 3, heads, size), q.dtype)  # as the layer needs them next: side by side
    dq, dk, dv = joined.transpose(2, 0, 3, 1, 4)
    for rows in pieces(batch, heads * length * length, 2 * PIECE):
        e, dc = exponentials[rows], dcontext[rows]
        products = (dc * context[rows]).transpose(0, 2, 1, 3)  # [b, T, heads, d], as they lie in memory
        inner = np.matmul(products.reshape(-1, size), ones).reshape(products.shape[:3]).transpose(0, 2, 1)
        inner = inner[..., None] * (inverse[rows] * scale)
        dc = dc * (inverse[rows] if keep is None else inverse[rows] * q.dtype.type(1.0 / (1.0 - rate)))
        values = np.multiply(
            v[rows].swapaxes(-1, -2), scale, order="C"
        )  # the scale of the scores, for dq and dk at once
        dscores = dc @ values
        if keep is None:
            np.matmul(e.swapaxes(-1, -2), dc, out=dv[rows])
        else:
            dscores *= keep[rows]
            np.matmul((e * keep[rows]).swapaxes(-1, -2), dc, out=dv[rows])
        dscores -= inner
        dscores *= e
        np.matmul(dscores, k[rows], out=dq[rows])
        np.matmul(dscores.swapaxes(-1, -2), q[rows], out=dk[rows])
    return dq, dk, dv


@kernel("numpy", "tiled_attention")
def tiled_attention(q, k, v, pattern, keep_tile=None, rate=0.0):
    def work(h):
        return plain("tiled_attention")(q[:, h], k[:, h], v[:, h], pattern, keep_tile, rate)

    parts = run_together(work, _head_groups(q.shape[1], keep_tile))
    return tuple(_join_heads(of_groups) for of_groups in zip(*parts, strict=True))


@kernel("numpy", "tiled_attention_backward")
def tiled_attention_backward(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    def work(h):
        arrays = [x[:, h] for x in (dcontext, q, k, v, context, lse)]
        return plain("tiled_attention_backward")(*arrays, pattern, keep_tile, rate)

    parts = run_together(work, _head_groups(q.shape[1], keep_tile))
    return tuple(_join_heads(of_groups) for of_groups in zip(*parts, strict=True))


def _head_groups(heads, keep_tile):
    """Heads know nothing of each other: outside a task every thread takes some. Dropout draws for all heads at once."""
    return shares(heads, min(heads, threads_to_use()) if keep_tile is None else 1)


def _join_heads(parts):
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)


@kernel("numpy", "cross_entropy")
def cross_entropy(logits, targets, overwrite=False, weights=None, smoothing=0.0):
    if weights is not None or smoothing:
        return plain("cross_entropy")(logits, targets, overwrite, weights, smoothing)
    rows, width = logits.shape
    exponentials = logits if overwrite and logits.flags.writeable else np.empty_like(logits)
    valid = targets != -100
    picked = np.where(valid, targets, 0)
    count = max(1, int(valid.sum()))
    total = np.empty((rows, 1), logits.dtype)
    surprise = np.empty(rows, logits.dtype)

    def work(mine):
        for piece in mine:
            z, e = logits[piece], exponentials[piece]
            right = z[np.arange(len(z)), picked[piece]]
            highest = z.max(-1, keepdims=True)
            np.subtract(z, highest, out=e)
            np.exp(e, out=e)
            np.matmul(e, np.ones((width, 1), e.dtype), out=total[piece])
            surprise[piece] = np.log(total[piece, 0]) + highest[:, 0] - right

    _over_threads(work, list(pieces(rows, width)))
    loss = np.sum(surprise, where=valid, dtype=np.float64) / count
    return logits.dtype.type(loss), (exponentials, total, picked, valid, count)


@kernel("numpy", "cross_entropy_backward")
def cross_entropy_backward(dloss, cache):
    if len(cache) == 4:  # shares of several answers
        return plain("cross_entropy_backward")(dloss, cache)
    exponentials, total, picked, valid, count = cache
    weight = np.where(valid, exponentials.dtype.type(dloss) / count, 0).astype(exponentials.dtype)
    dlogits = np.empty_like(exponentials)

    def work(mine):
        for piece in mine:
            d = np.multiply(exponentials[piece], weight[piece, None] / total[piece], out=dlogits[piece])
            d[np.arange(len(d)), picked[piece]] -= weight[piece]

    _over_threads(work, list(pieces(*exponentials.shape)))
    return dlogits


def _over_threads(work, parts):
    threads = max(1, min(threads_to_use(), len(parts)))
    run_together(work, [parts[i::threads] for i in range(threads)])
