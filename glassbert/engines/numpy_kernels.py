"""NumPy kernels: the operations with fewer passes over memory.

They are faster by one of these: sums as products with a vector of ones (BLAS reads memory at full speed, `sum` does
not), chunks that stay in the cache of a core, results written in place, and a maximum that is not subtracted because
it is known to be small. Where Numba is installed, the row loops of `compiled.py` run in float32. NaN and infinities
come out as the plain operations give them.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from glassbert import ops
from glassbert.engines.kernels import plain_state, register_in
from glassbert.engines.threads import run_together, threads_to_use
from glassbert.ops.activations import CUBIC, SQRT_2_OVER_PI
from glassbert.ops.attention import FORBIDDEN, scale_of, sum_to
from glassbert.ops.normal import normal_cdf, odds_against
from glassbert.ops.relative import by_distance, by_distance_backward, shift

KERNELS: dict[str, Callable[..., Any]] = {}
kernel = register_in(KERNELS)
PIECE = 262_144  # elements: near a core's cache, and long enough that threads seldom meet at the interpreter's lock
WORTH_SPLITTING = 4_000_000  # multiplications: below, meeting costs more than sharing saves
FEW_QUERIES = 5
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


@kernel
def layer_norm(x, gamma, beta, eps, donate=False, inference=False):
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    donate = donate and x.flags.c_contiguous and x.flags.writeable
    loops = loops_for(rows, gamma)
    if donate and inference and loops is not None:
        loops.layer_norm_in_place(rows, gamma, np.zeros_like(gamma) if beta is None else beta, np.float32(eps))
        return x, None
    x_hat = rows if donate else np.empty_like(rows)
    y = np.empty_like(rows)
    rstd = np.empty((len(rows), 1), x.dtype)
    if loops is not None:
        loops.layer_norm(
            rows, gamma, gamma if beta is None else beta, beta is not None, np.float32(eps), x_hat, rstd, y
        )
        return y.reshape(x.shape), (x_hat, rstd, gamma, beta is not None)
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
    return y.reshape(x.shape), (x_hat, rstd, gamma, beta is not None)


@kernel
def layer_norm_backward(dy, state):
    x_hat, rstd, gamma, has_beta = state  # x_hat [N, H], rstd [N, 1]
    width = dy.shape[-1]
    dy_rows = dy.reshape(-1, width)
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


@kernel
def join_heads(q, k, v):
    batch, length, heads, size = q.shape
    shared = q.base  # the kernels of attention write the three gradients side by side
    if shared is not None and shared is k.base and shared is v.base and shared.shape == (batch, length, 3, heads, size):
        return shared.reshape(batch, length, 3 * heads * size), heads
    return ops.join_heads(q, k, v)


@kernel
def join_heads_backward(dy, heads):
    return ops.join_heads_backward(dy, heads)


@kernel
def relu(x, donate=False):
    loops = loops_for(x)
    y = x if donate and x.flags.writeable and x.flags.c_contiguous else np.empty(x.shape, x.dtype)
    if loops is None:
        np.maximum(x, 0, out=y)
    else:
        loops.relu(x.reshape(-1), y.reshape(-1))
    return y, y


@kernel
def relu_backward(dy, y, donate=False):
    donate = donate and dy.flags.writeable
    loops = loops_for(dy, y)
    if loops is None:
        return np.multiply(dy, y > 0, out=dy if donate else None)
    dx = dy if donate else np.empty_like(dy)
    loops.relu_backward(dy.reshape(-1), y.reshape(-1), dx.reshape(-1))
    return dx


@kernel
def gelu(x, donate=False, inference=False):
    flat = x.reshape(-1)
    in_place = donate and inference and x.dtype == np.float32 and x.flags.c_contiguous and x.flags.writeable
    loops = loops_for(x)
    if in_place and loops is not None:
        loops.gelu_in_place(flat)
        return x, None
    if in_place:
        square, odds = (np.empty(min(PIECE, len(flat)), x.dtype) for _ in range(2))
        with np.errstate(over="ignore"):
            for piece in pieces(len(flat), 1):
                part = flat[piece]
                cdf = odds_against(part, square[: len(part)], odds[: len(part)])
                part *= np.reciprocal(cdf, out=cdf)
        return x, None
    y, cdf = np.empty_like(flat), np.empty_like(flat)
    if loops is not None:
        loops.gelu(flat, y, cdf)
    else:
        for piece in pieces(len(flat), 1):
            cdf[piece] = normal_cdf(flat[piece])
            np.multiply(flat[piece], cdf[piece], out=y[piece])
    return y.reshape(x.shape), (x, cdf.reshape(x.shape))


@kernel
def gelu_backward(dy, state):
    x, cdf = state
    loops = loops_for(dy, x, cdf)
    if loops is None:
        return ops.gelu_backward(dy, state)
    dx = np.empty_like(x)
    loops.gelu_backward(dy.reshape(-1), x.reshape(-1), cdf.reshape(-1), dx.reshape(-1))
    return dx


@kernel
def gelu_tanh(x):
    """y = x · s with s = (1 + tanh(u)) / 2, which is kept in the place of tanh(u)."""
    flat = x.reshape(-1)
    y, s = np.empty_like(flat), np.empty_like(flat)
    loops = loops_for(x)
    if loops is not None:
        loops.gelu_tanh(flat, y, s)
    else:
        with np.errstate(over="ignore"):
            for piece in pieces(len(flat), 1):
                part, inner = flat[piece], s[piece]
                np.multiply(part, part, out=inner)
                inner *= CUBIC
                inner += 1.0
                inner *= part
                inner *= SQRT_2_OVER_PI
                np.tanh(inner, out=inner)
                inner += 1.0
                inner *= 0.5
                np.multiply(part, inner, out=y[piece])
    return y.reshape(x.shape), (x, s.reshape(x.shape))


@kernel
def gelu_tanh_backward(dy, state):
    x, s = state
    loops = loops_for(dy, x, s)
    if loops is None:
        return ops.gelu_tanh_backward(dy, (x, 2.0 * s - 1.0))
    dx = np.empty_like(x)
    loops.gelu_tanh_backward(dy.reshape(-1), x.reshape(-1), s.reshape(-1), dx.reshape(-1))
    return dx


@kernel
def relative_shift(x, start, keys):
    loops = loops_for(x)
    if loops is None:
        return ops.relative_shift(x, start, keys)[0], (start, x.shape)
    y = np.empty((*x.shape[:3], keys), x.dtype)
    loops.relative_shift(x, start, y)
    return y, (start, x.shape)


@kernel
def relative_shift_backward(dy, state):
    start, shape = state
    loops = loops_for(dy)
    if loops is None:
        index = start[:, None, :, None] + np.arange(dy.shape[-1])
        return ops.relative_shift_backward(dy, (np.broadcast_to(index, dy.shape), shape))
    dx = np.zeros(shape, dy.dtype)
    loops.relative_shift_backward(dy, start, dx)
    return dx


@kernel
def geglu(x, activation="gelu"):
    if activation != "gelu":
        y, values = ops.geglu(x, activation)
        return y, plain_state("geglu", values)
    rows, half = x.reshape(-1, x.shape[-1]), x.shape[-1] // 2
    y, cdf = (np.empty((len(rows), half), x.dtype) for _ in range(2))
    loops = loops_for(x)
    if loops is not None:
        loops.geglu(rows, y, cdf)
    else:
        for piece in pieces(len(rows), half):
            cdf[piece] = normal_cdf(rows[piece, :half])
            np.multiply(rows[piece, :half], cdf[piece], out=y[piece])
            y[piece] *= rows[piece, half:]
    return y.reshape(*x.shape[:-1], -1), (x, cdf)


@kernel
def geglu_backward(dy, state):
    x, cdf = state
    dx = np.empty(x.shape, x.dtype)
    dy_rows = np.ascontiguousarray(dy, dtype=x.dtype).reshape(cdf.shape)
    rows, dx_rows, half = x.reshape(-1, x.shape[-1]), dx.reshape(-1, x.shape[-1]), cdf.shape[1]
    loops = loops_for(x, cdf, dy_rows)
    if loops is not None:
        loops.geglu_backward(dy_rows, rows, cdf, dx_rows)
    else:
        for piece in pieces(len(rows), half):
            a, b, d = rows[piece, :half], rows[piece, half:], dy_rows[piece]
            dx_rows[piece, :half] = ops.gelu_backward(d * b, (a, cdf[piece]))
            dx_rows[piece, half:] = d * (a * cdf[piece])
    return dx


@kernel
def dropout(x, mask, rate):
    return _masked(x, mask, rate), (mask, rate)


@kernel
def dropout_backward(dy, state):
    return _masked(dy, *state)


def _masked(x, mask, rate):
    loops = None if mask is None or mask.shape != x.shape or not mask.flags.c_contiguous else loops_for(x)
    if loops is None:
        return ops.dropout(x, mask, rate)[0]
    y = np.empty_like(x)
    loops.masked(x.reshape(-1), mask.reshape(-1), x.dtype.type(1.0 / (1.0 - rate)), y.reshape(-1))
    return y


@kernel
def attention(q, k, v, pattern, bias=None, scale=None, dropout_mask=None, dropout_rate=0.0, inference=False):
    """The plain one in tiles of rows, so that the scores are still in a cache when they are turned into weights."""
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    tiles = list(pieces(batch, heads * queries * keys, 2 * PIECE))
    weights = np.empty((tiles[0].stop if inference else batch, heads, queries, keys), q.dtype)
    context = np.empty((batch, queries, heads, size), q.dtype).transpose(0, 2, 1, 3)
    factor = q.dtype.type(scale_of(q, scale))
    for rows in tiles:
        w = weights[: rows.stop - rows.start] if inference else weights[rows]
        if queries < FEW_QUERIES:  # generating text: a copy of all keys would cost more than the product
            np.matmul(q[rows] * factor, k[rows].swapaxes(-1, -2), out=w)
        else:
            np.matmul(q[rows], _transposed(k[rows], factor), out=w)
        if bias is not None:
            w += bias if bias.shape[0] == 1 else bias[rows]
        _softmax(w, pattern.allowed(np, rows, slice(0, queries), slice(0, keys)))
        dropped = w if dropout_mask is None else _masked(w, dropout_mask[rows], dropout_rate)
        np.matmul(dropped, v[rows], out=context[rows])
    if inference:
        return context, None
    return context, (q, k, v, weights, dropout_mask, dropout_rate, factor, None if bias is None else bias.shape)


def _transposed(x, scale):
    """[b, heads, T, d] -> scale · xᵀ [b, heads, d, T] as a contiguous copy, which BLAS multiplies fastest."""
    loops = compiled_loops() if x.dtype == np.float32 else None
    if loops is None:
        return np.multiply(x.swapaxes(-1, -2), scale, order="C")
    out = np.empty((*x.shape[:2], x.shape[3], x.shape[2]), x.dtype)
    loops.transposed(x, scale, out)
    return out


def _softmax(scores, allowed):
    """Scores [b, heads, Tq, Tk] to weights, in place; a query without any key gets zeros."""
    _, heads, queries, keys = scores.shape
    loops = loops_for(scores)
    if loops is not None and (allowed is None or allowed.shape[1] == 1):
        rows = scores.reshape(-1, keys)
        mask = np.ones((1, 1, keys), bool) if allowed is None else np.ascontiguousarray(allowed[:, 0])
        loops.softmax_in_place(rows, rows.view(np.int32), mask, heads, queries)
        return
    # Where no score is large or very small, exp needs no shift: two passes over the scores fewer.
    if not (scores.max() <= SAFE_EXPONENT and scores.min() >= -SAFE_EXPONENT):  # also for NaN
        if allowed is not None:
            np.copyto(scores, scores.dtype.type(FORBIDDEN), where=~allowed)
        scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    if allowed is not None:
        scores *= allowed
    total = np.matmul(scores, np.ones((keys, 1), scores.dtype))
    if allowed is not None:
        total[total == 0] = np.inf
    scores *= np.reciprocal(total, out=total)


@kernel
def attention_backward(dcontext, state):
    q, k, v, weights, dropout_mask, dropout_rate, factor, bias_shape = state
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    one = q.dtype.type(1.0)
    dbias = None if bias_shape is None else np.zeros(bias_shape, q.dtype)
    if queries == keys:  # side by side, as the layer needs them next
        dq, dk, dv = np.empty((batch, keys, 3, heads, size), q.dtype).transpose(2, 0, 3, 1, 4)
    else:
        dq, dk, dv = (np.empty(x.shape, x.dtype) for x in (q, k, v))
    for rows in pieces(batch, heads * queries * keys, 2 * PIECE):
        w, dc = weights[rows], dcontext[rows]
        mask = None if dropout_mask is None else dropout_mask[rows]
        dropped = w if mask is None else _masked(w, mask, dropout_rate)
        np.matmul(dropped.swapaxes(-1, -2), dc, out=dv[rows])
        dscores = dc @ _transposed(v[rows], one)
        if mask is not None:
            dscores = _masked(dscores, mask, dropout_rate)
        _softmax_backward(dscores, w, factor if dbias is None else one)
        if dbias is not None:
            shared = bias_shape[0] == 1
            part = dbias if shared else dbias[rows]
            part += sum_to(dscores, (1 if shared else dscores.shape[0], *bias_shape[1:]))
            dscores *= factor
        np.matmul(dscores, k[rows], out=dq[rows])
        np.matmul(dscores.swapaxes(-1, -2), q[rows], out=dk[rows])
    return dq, dk, dv, dbias


@kernel
def relative_scores(q, k, keys, queries, index, scale):
    """The plain one in tiles of rows; a shift is a view."""
    batch, heads, length, _ = q.shape
    tables = [None if x is None else scale * by_distance(x, index) for x in (keys, queries)]  # [heads, 2T - 1, d]
    if tables[0] is not None:
        tables[0] = tables[0][:, ::-1]
    wide = [None if table is None else np.ascontiguousarray(table.swapaxes(-1, -2)) for table in tables]
    y = np.empty((batch, heads, length, length), q.dtype)
    for rows in pieces(batch, heads * length * (2 * length - 1), 2 * PIECE):
        if wide[0] is None:
            y[rows] = shift(k[rows] @ wide[1]).swapaxes(-1, -2)
            continue
        y[rows] = shift(q[rows] @ wide[0])
        if wide[1] is not None:
            y[rows] += shift(k[rows] @ wide[1]).swapaxes(-1, -2)
    count = len(keys if keys is not None else queries)
    return y, (q, k, *(None if t is None else np.ascontiguousarray(t) for t in tables), index, count, scale)


@kernel
def relative_scores_backward(dy, state):
    q, k, key_table, query_table, index, count, scale = state
    length = q.shape[2]
    contents: list[Any] = []
    vectors: list[Any] = []
    for x, table, of_keys in ((q, key_table, False), (k, query_table, True)):
        if table is None:
            contents.append(None)
            vectors.append(None)
            continue
        dx, dtable = np.empty(x.shape, x.dtype), np.zeros(table.shape, x.dtype)
        spread = None
        for rows in pieces(len(x), x.shape[1] * length * (2 * length - 1), 2 * PIECE):
            part = dy[rows]
            if spread is None or len(spread) != len(part):
                spread = np.zeros((*part.shape[:3], 2 * length - 1), x.dtype)  # zeros stay where a row has no distance
            shift(spread)[...] = part.swapaxes(-1, -2) if of_keys else part
            np.matmul(spread, table, out=dx[rows])
            dtable += (spread.swapaxes(-1, -2) @ x[rows]).sum(0)
        contents.append(dx)
        vectors.append(scale * by_distance_backward(dtable if of_keys else dtable[:, ::-1], index, count))
    return *contents, *vectors


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


@kernel
def cross_entropy(logits, targets, weights=None, smoothing=0.0, donate=False):
    if weights is not None or smoothing:
        loss, values = ops.cross_entropy(logits, targets, weights, smoothing)
        return loss, plain_state("cross_entropy", values)
    rows, width = logits.shape
    exponentials = logits if donate and logits.flags.writeable else np.empty_like(logits)
    valid = targets != -100
    picked = np.where(valid, targets, 0)
    count = max(1, int(valid.sum()))
    total = np.empty((rows, 1), logits.dtype)
    each = np.empty(rows, logits.dtype)

    def work(chunk):
        for piece in chunk:
            z, e = logits[piece], exponentials[piece]
            right = z[np.arange(len(z)), picked[piece]]
            highest = z.max(-1, keepdims=True)
            np.subtract(z, highest, out=e)
            np.exp(e, out=e)
            np.matmul(e, np.ones((width, 1), e.dtype), out=total[piece])
            each[piece] = np.log(total[piece, 0]) + highest[:, 0] - right

    _over_threads(work, list(pieces(rows, width)))
    loss = np.sum(each, where=valid, dtype=np.float64) / count
    return logits.dtype.type(loss), (exponentials, total, picked, valid, count)


@kernel
def cross_entropy_backward(dloss, state):
    exponentials, total, picked, valid, count = state
    weight = np.where(valid, dloss / count, 0).astype(exponentials.dtype)
    dlogits = np.empty_like(exponentials)

    def work(chunk):
        for piece in chunk:
            e, w = exponentials[piece], weight[piece]
            rows = np.arange(len(e))
            d = np.multiply(e, w[:, None] / total[piece], out=dlogits[piece])
            d[rows, picked[piece]] = (e[rows, picked[piece]] / total[piece, 0] - 1.0) * w  # also for an infinite weight

    _over_threads(work, list(pieces(*exponentials.shape)))
    return dlogits


def _over_threads(work, parts):
    threads = max(1, min(threads_to_use(), len(parts)))
    run_together(work, [parts[i::threads] for i in range(threads)])
