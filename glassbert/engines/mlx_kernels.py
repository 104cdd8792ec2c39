"""MLX's own fast kernels behind the names of our operations.

The backward of a single fused operation is `mx.vjp` of that operation; how the operations are put together stays
hand-written. Two rules keep 16-bit arithmetic honest: elementwise mathematics is done in float32 inside the (compiled)
kernel, and sums over rows are products with ones, which the matrix units add up in float32.

One rule keeps it small: a compiled step computes equal expressions once and keeps the result. What backward computes
again (`again`) must therefore not look equal to what forward computed, or float32 copies live through the whole step.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines import mlx_cuda
from glassbert.ops.activations import INVERSE_SQRT_2PI
from glassbert.ops.attention import FORBIDDEN
from glassbert.ops.registry import kernel, plain

BLOCK = 128  # the fused backward wants a length that 128 divides


def sum_rows(x: mx.array) -> mx.array:
    """[N, H] -> [H]"""
    return (mx.ones((1, x.shape[0]), dtype=x.dtype) @ x).reshape(-1)  # [0] would be a gather


def again(x: mx.array, after: mx.array) -> mx.array:
    """x, to be used only once `after` is there: what is computed from it is computed anew."""
    return mx.depends([x], [after])[0]


@kernel("mlx", "linear")
def linear(x, weight, bias=None):
    rows = x.reshape(-1, x.shape[-1])
    y = rows @ weight.T if bias is None else mx.addmm(bias, rows, weight.T)
    return y.reshape(*x.shape[:-1], weight.shape[0])


@kernel("mlx", "linear_backward")
def linear_backward(dy, x, weight, has_bias=True, out=(None, None)):
    dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    dx = (dy_rows @ weight).reshape(x.shape)
    return dx, dy_rows.T @ x_rows, sum_rows(dy_rows) if has_bias else None


@kernel("mlx", "layer_norm")
def layer_norm(x, gamma, beta, eps, overwrite=False, forget=False):
    return mx.fast.layer_norm(x, gamma, beta, eps), (x, eps)


@kernel("mlx", "layer_norm_backward")
def layer_norm_backward(dy, gamma, cache, has_beta=True, out=(None, None)):
    x, eps = cache
    if mlx_cuda.norm_fits(x):
        dx, dgamma, dbeta = mlx_cuda.layer_norm_backward(dy, x, gamma, eps)
        return dx, dgamma, dbeta if has_beta else None
    width = x.shape[-1]
    # MLX would add gamma's gradient up in 16 bits; so the kernel is asked for dx alone.
    _, (dx,) = mx.vjp(lambda v: mx.fast.layer_norm(v, None, None, eps), [x], [dy * gamma])
    x_hat = mx.fast.layer_norm(x, None, None, eps)
    dgamma = sum_rows((dy * x_hat).reshape(-1, width))
    return dx, dgamma, sum_rows(dy.reshape(-1, width)) if has_beta else None


@kernel("mlx", "gelu")
def gelu(x, overwrite=False):
    wide = x.astype(mx.float32)
    return (wide * 0.5 * (1.0 + mx.erf(wide * 0.5**0.5))).astype(x.dtype), None


@kernel("mlx", "gelu_backward")
def gelu_backward(dy, x, cache):
    wide = again(x, dy).astype(mx.float32)
    slope = 0.5 * (1.0 + mx.erf(wide * 0.5**0.5)) + wide * mx.exp(wide * wide * -0.5) * INVERSE_SQRT_2PI
    return (dy.astype(mx.float32) * slope).astype(x.dtype)


@kernel("mlx", "geglu")
def geglu(x, activation="gelu"):
    if activation != "gelu":
        return plain("geglu")(x, activation)
    if mlx_cuda.geglu_fits(x):
        return mlx_cuda.geglu(x), None
    half = x.shape[-1] // 2
    a, gate = x[..., :half].astype(mx.float32), x[..., half:].astype(mx.float32)
    return (a * 0.5 * (1.0 + mx.erf(a * 0.5**0.5)) * gate).astype(x.dtype), None


@kernel("mlx", "geglu_backward")
def geglu_backward(dy, x, cache, activation="gelu"):
    if activation != "gelu":
        return plain("geglu_backward")(dy, x, cache, activation)
    if mlx_cuda.geglu_fits(x):
        return mlx_cuda.geglu_backward(dy, x)
    x = again(x, dy)
    half = x.shape[-1] // 2
    a, gate, d = x[..., :half].astype(mx.float32), x[..., half:].astype(mx.float32), dy.astype(mx.float32)
    cdf = 0.5 * (1.0 + mx.erf(a * 0.5**0.5))
    slope = cdf + a * mx.exp(a * a * -0.5) * INVERSE_SQRT_2PI
    return mx.concatenate([(d * gate * slope).astype(x.dtype), (d * a * cdf).astype(x.dtype)], -1)


@kernel("mlx", "cross_entropy")
def cross_entropy(logits, targets, overwrite=False, weights=None, smoothing=0.0):
    if weights is not None or smoothing:
        return plain("cross_entropy")(logits, targets, overwrite, weights, smoothing)
    valid = targets != -100
    picked = mx.where(valid, targets, 0)
    count = mx.maximum(valid.sum(), 1)
    surprise = _surprise(logits, picked)
    return mx.where(valid, surprise, 0).sum() / count, (logits, picked, valid, count)


@kernel("mlx", "cross_entropy_backward")
def cross_entropy_backward(dloss, cache):
    logits, picked, valid, count = cache
    if picked.ndim == 2:  # shares of several answers
        return plain("cross_entropy_backward")(dloss, cache)
    weight = mx.where(valid, dloss / count, 0.0)
    return mx.vjp(lambda z: _surprise(z, picked), [logits], [weight])[1][0]


def _surprise(logits, picked):
    if mx.default_device() == mx.cpu:  # the fallback there would add up in 16 bits
        logits = logits.astype(mx.float32)
    return mx.fast.cross_entropy(logits, picked)


@kernel("mlx", "rotary")
def rotary(x, cos, sin):
    if mlx_cuda.rotary_fits(x):
        return mlx_cuda.rotary(x, cos, sin)
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half].astype(mx.float32), x[..., half:].astype(mx.float32)
    turned = [x1 * cos - x2 * sin, x2 * cos + x1 * sin]
    return mx.concatenate([part.astype(x.dtype) for part in turned], -1)


# ---- attention --------------------------------------------------------------------------------------------------


def _fused(q, k, v, mask):
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=mask)


def _forward(q, k, v, mask):
    # Asked for through vjp, the kernel also writes what its backward needs; compiled, the two calls become one.
    return mx.vjp(lambda q, k, v: _fused(q, k, v, mask), [q, k, v], [mx.zeros_like(q)])[0][0]


def _backward(dcontext, q, k, v, mask):
    return mx.vjp(lambda q, k, v: _fused(q, k, v, mask), [q, k, v], [dcontext])[1]


def _can_fuse(q, keep_tile):
    return keep_tile is None and (q.dtype != mx.float32 or q.shape[2] <= 1024) and q.shape[-1] % 8 == 0


def _additive(allowed, dtype, pattern):
    """0 where allowed, very negative elsewhere; and which queries may see anybody, [.., T, 1], where some may not."""
    if allowed is None:
        return None, None
    mask = mx.where(allowed, mx.array(0.0, dtype=dtype), mx.array(FORBIDDEN, dtype=dtype))
    blind = pattern.keys is not None or pattern.segments is not None
    return mask, allowed.any(-1, keepdims=True) if blind else None


def _plan(q, pattern):
    """How to lay this attention out for the fused kernel: whole rows, or blocks of a local window."""
    length, window = q.shape[2], pattern.window
    if window is not None and 2 * window <= BLOCK and length > 2 * BLOCK and not pattern.causal:
        return _Blocks(q, pattern)
    if length < BLOCK and q.shape[0] % (BLOCK // length) == 0 and q.dtype != mx.float32:
        return _Folded(q, pattern)
    return _Whole(q, pattern)


class _Whole:
    """Rows as they are."""

    def __init__(self, q, pattern):
        whole = slice(0, q.shape[2])
        allowed = pattern.allowed(mx, slice(0, q.shape[0]), whole, whole)
        self.mask, self.sees = _additive(allowed, q.dtype, pattern)

    def queries(self, x):
        return x

    keys = from_queries = from_keys = queries


class _Folded:
    """Short rows side by side in one row of up to 128, each seeing only itself."""

    def __init__(self, q, pattern):
        batch, _, length, _ = q.shape
        self.length, self.fold = length, BLOCK // length
        whole = slice(0, length)
        allowed = pattern.allowed(mx, slice(0, batch), whole, whole)
        own = mx.eye(self.fold, dtype=mx.bool_)[:, None, :, None]  # [fold, 1, fold, 1]
        if allowed is None:
            allowed = mx.broadcast_to(own, (self.fold, length, self.fold, length))[None]
        else:
            allowed = mx.broadcast_to(allowed, (batch, 1, length, length))
            allowed = allowed.reshape(-1, self.fold, length, 1, length) & own
        wide = self.fold * length
        self.mask, self.sees = _additive(allowed.reshape(-1, 1, wide, wide), q.dtype, pattern)

    def queries(self, x):
        batch, heads, length, size = x.shape
        rows = x.transpose(0, 2, 1, 3).reshape(batch // self.fold, self.fold * length, heads, size)
        return rows.transpose(0, 2, 1, 3)

    keys = queries

    def from_queries(self, x):
        batch, heads, _, size = x.shape
        rows = x.transpose(0, 2, 1, 3).reshape(batch * self.fold, self.length, heads, size)
        return rows.transpose(0, 2, 1, 3)

    from_keys = from_queries


class _Blocks:
    """A local window as many short attentions: 128 queries against the 256 keys around them.

    With keys padded by 64 on either side, block i of the queries sees blocks i and i + 1 of the keys.
    """

    def __init__(self, q, pattern):
        self.batch, self.heads, self.length, self.size = q.shape
        self.blocks = -(-self.length // BLOCK)
        block = mx.arange(self.blocks)[:, None, None]
        i, j = mx.arange(BLOCK)[None, :, None], mx.arange(2 * BLOCK)[None, None, :]
        key = block * BLOCK - BLOCK // 2 + j  # [blocks, 1, 256]: the key's own position
        distance = i + BLOCK // 2 - j
        allowed = (mx.abs(distance) <= pattern.window) & (key >= 0) & (key < self.length)
        allowed = mx.broadcast_to(allowed[None], (self.batch, self.blocks, BLOCK, 2 * BLOCK))
        if pattern.keys is not None:
            allowed = allowed & (self._around(pattern.keys) != 0)[:, :, None, :]
        if pattern.segments is not None:
            of_key = self._around(pattern.segments)[:, :, None, :]
            of_query = self._pad(pattern.segments, 0).reshape(self.batch, self.blocks, BLOCK, 1)
            allowed = allowed & (of_query == of_key) & (of_key != 0)
        self.mask, self.sees = _additive(allowed.reshape(-1, 1, BLOCK, 2 * BLOCK), q.dtype, pattern)

    def _pad(self, x, before):
        after = self.blocks * BLOCK - self.length + before
        return mx.pad(x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])

    def _around(self, x):
        """[B, T, ...] -> [B, blocks, 256, ...]"""
        blocks = self._pad(x, BLOCK // 2).reshape(self.batch, self.blocks + 1, BLOCK, *x.shape[2:])
        return mx.concatenate([blocks[:, :-1], blocks[:, 1:]], 2)

    def queries(self, x):
        rows = self._pad(x.transpose(0, 2, 1, 3), 0)
        return rows.reshape(-1, BLOCK, self.heads, self.size).transpose(0, 2, 1, 3)

    def keys(self, x):
        around = self._around(x.transpose(0, 2, 1, 3))
        return around.reshape(-1, 2 * BLOCK, self.heads, self.size).transpose(0, 2, 1, 3)

    def from_queries(self, x):
        rows = x.transpose(0, 2, 1, 3).reshape(self.batch, -1, self.heads, self.size)
        return rows[:, : self.length].transpose(0, 2, 1, 3)

    def from_keys(self, dx):
        """A key lay in two blocks: what both say about it is added."""
        parts = dx.transpose(0, 2, 1, 3).reshape(self.batch, self.blocks, 2, BLOCK, self.heads, self.size)
        none = mx.zeros((self.batch, 1, BLOCK, self.heads, self.size), dtype=dx.dtype)
        blocks = mx.concatenate([parts[:, :, 0], none], 1) + mx.concatenate([none, parts[:, :, 1]], 1)
        rows = blocks.reshape(self.batch, -1, self.heads, self.size)
        half = BLOCK // 2
        return rows[:, half : half + self.length].transpose(0, 2, 1, 3)


@kernel("mlx", "tiled_attention")
def tiled_attention(q, k, v, pattern, keep_tile=None, rate=0.0):
    if not _can_fuse(q, keep_tile):
        return plain("tiled_attention")(q, k, v, pattern, keep_tile, rate)
    plan = _plan(q, pattern)
    laid_out = plan.queries(q), plan.keys(k), plan.keys(v)
    context = _forward(*laid_out, plan.mask)
    if plan.sees is not None:
        context = context * plan.sees
    return plan.from_queries(context), (plan, laid_out)


@kernel("mlx", "tiled_attention_backward")
def tiled_attention_backward(dcontext, q, k, v, context, state, pattern, keep_tile=None, rate=0.0):
    if not _can_fuse(q, keep_tile):
        return plain("tiled_attention_backward")(dcontext, q, k, v, context, state, pattern, keep_tile, rate)
    plan, (laid_q, laid_k, laid_v) = state
    d = plan.queries(dcontext)
    if plan.sees is not None:
        d = d * plan.sees
    dq, dk, dv = _backward(d, laid_q, laid_k, laid_v, plan.mask)
    return plan.from_queries(dq), plan.from_keys(dk), plan.from_keys(dv)
