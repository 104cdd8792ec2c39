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
from glassbert.ops.attention import FORBIDDEN
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
    overwrite = overwrite and dy.flags.writeable
    loops = loops_for(dy, x)
    if loops is None:
        return np.multiply(dy, x > 0, out=dy if overwrite else None)
    if overwrite:
        loops.relu_backward_in_place(dy.reshape(-1), x.reshape(-1))
        return dy
    dx = np.empty_like(dy)
    loops.relu_backward(dy.reshape(-1), x.reshape(-1), dx.reshape(-1))
    return dx


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


@kernel("numpy", "gelu_backward")
def gelu_backward(dy, x, cdf):
    loops = loops_for(dy, x, cdf)
    if loops is None:
        return plain("gelu_backward")(dy, x, cdf)
    dx = np.empty_like(x)
    loops.gelu_backward(dy.reshape(-1), x.reshape(-1), cdf.reshape(-1), dx.reshape(-1))
    return dx


@kernel("numpy", "dropout")
def dropout(x, keep, rate):
    loops = None if keep is None or keep.shape != x.shape else loops_for(x)
    if loops is None or not keep.flags.c_contiguous:
        return plain("dropout")(x, keep, rate)
    y = np.empty_like(x)
    loops.masked(x.reshape(-1), keep.reshape(-1), x.dtype.type(1.0 / (1.0 - rate)), y.reshape(-1))
    return y


kernel("numpy", "dropout_backward")(dropout)  # what is done to the gradient is what was done to the values


@kernel("numpy", "attention")
def attention(q, k, v, pattern, keep=None, rate=0.0, forget=False):
    """As the plain one, in tiles of rows, so that the scores are still in a cache when they are turned into weights."""
    batch, heads, length, size = q.shape
    tiles = list(pieces(batch, heads * length * length, 2 * PIECE))
    weights = np.empty((tiles[0].stop if forget else batch, heads, length, length), q.dtype)
    context = np.empty((batch, length, heads, size), q.dtype).transpose(0, 2, 1, 3)
    scale, whole = q.dtype.type(size**-0.5), slice(0, length)
    for rows in tiles:
        w = weights[: rows.stop - rows.start] if forget else weights[rows]
        np.matmul(q[rows], _turned(k[rows], scale), out=w)
        _softmax(w, pattern.allowed(np, rows, whole, whole))
        np.matmul(w if keep is None else dropout(w, keep[rows], rate), v[rows], out=context[rows])
    return context, None if forget else weights


def _turned(x, scale):
    """[b, heads, T, d] -> scale · xᵀ [b, heads, d, T] in a place of its own: BLAS likes its second factor so."""
    loops = compiled_loops() if x.dtype == np.float32 else None
    if loops is None:
        return np.multiply(x.swapaxes(-1, -2), scale, order="C")
    out = np.empty((*x.shape[:2], x.shape[3], x.shape[2]), x.dtype)
    loops.turned(x, scale, out)
    return out


def _softmax(scores, allowed):
    """Scores [b, heads, T, T] to weights, in place; who may see nobody sees nothing."""
    _, heads, length, _ = scores.shape
    loops = loops_for(scores)
    if loops is not None and (allowed is None or allowed.shape[1] == 1):
        rows = scores.reshape(-1, length)
        may = np.ones((1, 1, length), bool) if allowed is None else np.ascontiguousarray(allowed[:, 0])
        loops.softmax_in_place(rows, rows.view(np.int32), may, heads)
        return
    # Where no score is large or very small, exp needs no shift: two passes over the scores fewer.
    if scores.max() > SAFE_EXPONENT or scores.min() < -SAFE_EXPONENT:
        if allowed is not None:
            np.copyto(scores, scores.dtype.type(FORBIDDEN), where=~allowed)
        scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    if allowed is not None:
        scores *= allowed
    total = np.matmul(scores, np.ones((length, 1), scores.dtype))
    if allowed is not None:
        total[total == 0] = np.inf
    scores *= np.reciprocal(total, out=total)


@kernel("numpy", "attention_backward")
def attention_backward(dcontext, q, k, v, context, weights, keep=None, rate=0.0):
    batch, heads, length, size = q.shape
    scale = q.dtype.type(size**-0.5)
    joined = np.empty((batch, length, 3, heads, size), q.dtype)  # as the layer needs them next: side by side
    dq, dk, dv = joined.transpose(2, 0, 3, 1, 4)
    for rows in pieces(batch, heads * length * length, 2 * PIECE):
        w, dc = weights[rows], dcontext[rows]
        dropped = w if keep is None else dropout(w, keep[rows], rate)
        np.matmul(dropped.swapaxes(-1, -2), dc, out=dv[rows])
        dscores = dc @ _turned(v[rows], q.dtype.type(1.0))
        if keep is not None:
            dscores = dropout(dscores, keep[rows], rate)
        _softmax_backward(dscores, w, scale)
        np.matmul(dscores, k[rows], out=dq[rows])
        np.matmul(dscores.swapaxes(-1, -2), q[rows], out=dk[rows])
    return dq, dk, dv


def _softmax_backward(dweights, weights, scale):
    """The gradient of the weights to that of the scores before their scale, in place."""
    length = weights.shape[-1]
    loops = loops_for(dweights, weights)
    if loops is not None:
        loops.softmax_backward_in_place(dweights.reshape(-1, length), weights.reshape(-1, length), scale)
        return
    dweights -= np.vecdot(dweights, weights)[..., None]
    dweights *= weights
    dweights *= scale


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
