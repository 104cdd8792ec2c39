"""MLX kernels: MLX's fused operations behind the names of our operations.

The backward of a fused MLX operation (layer norm, attention, cross-entropy) is `mx.vjp` of that single operation; these
kernels are marked `uses_vjp`. On CUDA, layer norm and cross-entropy have kernels of our own. The plain operations use
no automatic differentiation, and how operations are composed is hand-written on every engine.

Two rules keep 16-bit arithmetic accurate: elementwise mathematics is done in float32 inside the compiled kernel, and
sums over rows are accumulated in float32: as products with ones by the matrix units, or by a kernel for CUDA.

One rule keeps memory small: a compiled step computes equal expressions once and keeps the result. What a backward
recomputes (`recompute`) must therefore not look equal to the forward's expression, or float32 copies live through the
whole step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from glassbert import ops
from glassbert.engines.kernels import plain_state, register_in
from glassbert.engines.mlx_cuda import activations, losses, multi_head, norms, tables
from glassbert.engines.mlx_cuda.launch import on_cuda
from glassbert.ops.activations import INVERSE_SQRT_2PI
from glassbert.ops.attention import FORBIDDEN, scale_of

KERNELS: dict[str, Callable[..., Any]] = {}
kernel = register_in(KERNELS)
BLOCK = 128  # the fused backward wants a length that 128 divides
MANY_COLUMNS = 4_096  # from so many columns on, a product on CUDA is filled up to a multiple of 8


def sum_rows(x: mx.array) -> mx.array:
    """[N, H] -> [H]"""
    if tables.sums_fit(x):
        return tables.column_sums(x)
    return (mx.ones((1, x.shape[0]), dtype=x.dtype) @ x).reshape(-1)  # [0] would be a gather


def uses_vjp(function: Any) -> Any:
    """Mark a backward that calls `mx.vjp` of a single MLX operation."""
    function.uses_vjp = True
    return function


def recompute(x: mx.array, after: mx.array) -> mx.array:
    """x, available only after `after`: what is computed from it is computed again."""
    return mx.depends([x], [after])[0]


def _aligned(x, axis):
    """x with zeros up to a multiple of 8 on this axis: products on CUDA read 16 bytes at once, or are slow."""
    missing = -x.shape[axis] % 8
    if not missing or x.shape[axis] < MANY_COLUMNS or not on_cuda():
        return x
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, missing)
    return mx.pad(x, widths)


@kernel
def linear(x, weight, bias=None):
    rows, columns = x.reshape(-1, x.shape[-1]), weight.shape[0]
    wide = _aligned(weight, 0)
    y = rows @ wide.T if bias is None else mx.addmm(_aligned(bias, 0), rows, wide.T)
    y = y if wide is weight else mx.contiguous(y[:, :columns])
    return y.reshape(*x.shape[:-1], columns), (x, weight, bias is not None)


@kernel
def linear_backward(dy, state):
    x, weight, has_bias = state
    dy_rows, x_rows = _aligned(dy.reshape(-1, dy.shape[-1]), 1), x.reshape(-1, x.shape[-1])
    wide, columns = _aligned(weight, 0), weight.shape[0]
    dx = (dy_rows @ wide).reshape(x.shape)
    dweight, dbias = dy_rows.T @ x_rows, sum_rows(dy_rows) if has_bias else None
    if wide is weight:
        return dx, dweight, dbias
    return dx, dweight[:columns], None if dbias is None else dbias[:columns]


@kernel
def layer_norm(x, gamma, beta, eps):
    if norms.norm_fits(x):
        return norms.layer_norm(x, gamma, beta, eps), (x, gamma, beta is not None, eps)
    if on_cuda() and x.shape[-1] % 64:  # MLX 0.32 reads beyond rows of other widths on CUDA
        y, values = ops.layer_norm(x, gamma, beta, eps)
        return y, plain_state("layer_norm", values)
    return mx.fast.layer_norm(x, gamma, beta, eps), (x, gamma, beta is not None, eps)


@kernel
@uses_vjp
def layer_norm_backward(dy, state, residual=None):
    x, gamma, has_beta, eps = state
    if norms.norm_fits(x):
        return norms.layer_norm_backward(dy, x, gamma, eps, residual, has_beta)
    width = x.shape[-1]
    # MLX would add gamma's gradient up in 16 bits; so the kernel is asked for dx alone.
    _, (dx,) = mx.vjp(lambda v: mx.fast.layer_norm(v, None, None, eps), [x], [dy * gamma])
    dx = dx if residual is None else residual + dx
    x_hat = mx.fast.layer_norm(x, None, None, eps)
    dgamma = sum_rows((dy * x_hat).reshape(-1, width))
    return dx, dgamma, sum_rows(dy.reshape(-1, width)) if has_beta else None


@kernel
def embedding(table, ids, padding_id=None):
    return _table_rows(table, ids), (ids, padding_id, table.shape[0])


@kernel
def embedding_backward(dy, state):
    ids, padding_id, count = state
    rows = dy.reshape(-1, dy.shape[-1])
    if not tables.added_rows_fit(rows):
        return ops.embedding_backward(dy, (ids, padding_id))
    ids = ids.reshape(-1)
    if padding_id is not None:
        rows = rows * (ids != padding_id)[:, None].astype(rows.dtype)
    return None, tables.added_rows(ids, rows, count, mx.float32)


@kernel
def take_rows(x, rows):
    return _table_rows(x.reshape(-1, x.shape[-1]), rows), (rows, x.shape)


@kernel
def take_rows_backward(dy, state):
    rows, shape = state
    if not tables.added_rows_fit(dy):
        return ops.take_rows_backward(dy, state)
    return tables.added_rows(rows, dy, math.prod(shape[:-1]), dy.dtype).reshape(shape)


def _table_rows(table, index):
    return tables.table_rows(table, index) if tables.table_fits(table) else table[index]


@kernel
def gelu(x):
    if activations.gelu_fits(x):
        return activations.gelu(x), x
    wide = x.astype(mx.float32)
    return (wide * 0.5 * (1.0 + mx.erf(wide * 0.5**0.5))).astype(x.dtype), x


@kernel
def gelu_backward(dy, x):
    if activations.gelu_fits(x):
        return activations.gelu_backward(dy, x)
    wide = recompute(x, dy).astype(mx.float32)
    slope = 0.5 * (1.0 + mx.erf(wide * 0.5**0.5)) + wide * mx.exp(wide * wide * -0.5) * INVERSE_SQRT_2PI
    return (dy.astype(mx.float32) * slope).astype(x.dtype)


@kernel
def geglu(x, activation="gelu"):
    if activation != "gelu":
        y, values = ops.geglu(x, activation)
        return y, plain_state("geglu", values)
    if activations.geglu_fits(x):
        return activations.geglu(x), x
    half = x.shape[-1] // 2
    a, gate = x[..., :half].astype(mx.float32), x[..., half:].astype(mx.float32)
    return (a * 0.5 * (1.0 + mx.erf(a * 0.5**0.5)) * gate).astype(x.dtype), x


@kernel
def geglu_backward(dy, x):
    if activations.geglu_fits(x):
        return activations.geglu_backward(dy, x)
    x = recompute(x, dy)
    half = x.shape[-1] // 2
    a, gate, d = x[..., :half].astype(mx.float32), x[..., half:].astype(mx.float32), dy.astype(mx.float32)
    cdf = 0.5 * (1.0 + mx.erf(a * 0.5**0.5))
    slope = cdf + a * mx.exp(a * a * -0.5) * INVERSE_SQRT_2PI
    return mx.concatenate([(d * gate * slope).astype(x.dtype), (d * a * cdf).astype(x.dtype)], -1)


@kernel
def cross_entropy(logits, targets, weights=None, smoothing=0.0):
    if weights is not None or smoothing:
        loss, values = ops.cross_entropy(logits, targets, weights, smoothing)
        return loss, plain_state("cross_entropy", values)
    valid = targets != -100
    picked = mx.where(valid, targets, 0)
    count = mx.maximum(valid.sum(), 1)
    if losses.cross_entropy_fits(logits):
        each, logs = losses.cross_entropy(logits, picked)
    else:
        each, logs = _each(logits, picked), None
    return mx.where(valid, each, 0).sum() / count, (logits, picked, logs, valid, count)


@kernel
@uses_vjp
def cross_entropy_backward(dloss, state):
    logits, picked, logs, valid, count = state
    weight = mx.where(valid, dloss / count, 0.0)
    if logs is not None:
        return losses.cross_entropy_backward(weight, logits, picked, logs)
    return mx.vjp(lambda z: _each(z, picked), [logits], [weight])[1][0]


def _each(logits, picked):
    if mx.default_device() == mx.cpu:  # the fallback there would add up in 16 bits
        logits = logits.astype(mx.float32)
    return mx.fast.cross_entropy(logits, picked)


@kernel
def rotary(x, cos, sin):
    return _rotated(x, cos, sin), (cos, sin)


@kernel
def rotary_backward(dy, state):
    cos, sin = state
    return _rotated(dy, cos, -sin)


def _rotated(x, cos, sin):
    if multi_head.rotary_fits(x):
        return multi_head.rotary(x, cos, sin)
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half].astype(mx.float32), x[..., half:].astype(mx.float32)
    rotated = [x1 * cos - x2 * sin, x2 * cos + x1 * sin]
    return mx.concatenate([part.astype(x.dtype) for part in rotated], -1)


@kernel
def join_heads(q, k, v):
    if not multi_head.heads_fit(q):
        return ops.join_heads(q, k, v)
    batch, length, heads, size = q.shape
    return multi_head.join_heads(q, k, v).reshape(batch, length, 3 * heads * size), heads


@kernel
def join_heads_backward(dy, heads):
    return ops.join_heads_backward(dy, heads)


# ---- attention --------------------------------------------------------------------------------------------------


def _fused(q, k, v, mask, scale):
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)


def _forward(q, k, v, mask, scale):
    # Called through vjp, the kernel also writes what its backward needs; compiled, the two calls become one.
    return mx.vjp(lambda q, k, v: _fused(q, k, v, mask, scale), [q, k, v], [mx.zeros_like(q)])[0][0]


def _backward(dcontext, q, k, v, mask, scale):
    return mx.vjp(lambda q, k, v: _fused(q, k, v, mask, scale), [q, k, v], [dcontext])[1]


def _can_fuse(q, k, pattern, bias, tile_mask):
    if bias is not None or tile_mask is not None or q.shape[2] != k.shape[2] or pattern.mask is not None:
        return False
    if pattern.offset:  # a window may then leave a query without any key
        return False
    return (q.dtype != mx.float32 or q.shape[2] <= 1024) and q.shape[-1] % 8 == 0


def _additive(allowed, dtype, pattern):
    """0 where allowed, very negative elsewhere; and which queries have any key, [.., T, 1], or None where all have.

    The mask must not be an elementwise expression to MLX's compiler. On CUDA, fused attention is an operation with two
    results, and it is in the step twice, forward and backward. The compiler makes one of the two, but forgets that the
    first result reads the inputs. Where it then fuses an input with what comes before it, that result still reads an
    array that is no longer computed (`IndexError: _Map_base::at`). `contiguous` is never fused, and at worst copies
    the mask. With several heads, MLX's broadcast of the mask does the same.
    """
    if allowed is None:
        return None, None
    mask = mx.where(allowed, mx.array(0.0, dtype=dtype), mx.array(FORBIDDEN, dtype=dtype))
    may_be_empty = pattern.keys is not None or pattern.segments is not None
    return mx.contiguous(mask), allowed.any(-1, keepdims=True) if may_be_empty else None


def _plan(q, pattern):
    """The layout for the fused kernel, with its mask. Layers with the same pattern share it."""
    key = q.shape, q.dtype
    if key not in pattern.plans:
        pattern.plans[key] = _layout_for(q, pattern)
    return pattern.plans[key]


def _layout_for(q, pattern):
    """Whole rows, short rows side by side, or blocks of a local window."""
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
        self.mask, self.has_keys = _additive(allowed, q.dtype, pattern)

    def queries(self, x):
        return x

    keys = from_queries = from_keys = queries


class _Folded:
    """Short rows side by side in one row of up to 128, without attention between them."""

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
        self.mask, self.has_keys = _additive(allowed.reshape(-1, 1, wide, wide), q.dtype, pattern)

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
        self.mask, self.has_keys = _additive(allowed.reshape(-1, 1, BLOCK, 2 * BLOCK), q.dtype, pattern)

    def _pad(self, x, before):
        after = self.blocks * BLOCK - self.length + before
        if not before and not after:  # MLX would copy
            return x
        return mx.pad(x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])

    def _around(self, x):
        """[B, T, ...] -> [B, blocks, 256, ...]"""
        blocks = self._pad(x, BLOCK // 2).reshape(self.batch, self.blocks + 1, BLOCK, *x.shape[2:])
        return mx.concatenate([blocks[:, :-1], blocks[:, 1:]], 2)

    def queries(self, x):
        rows = self._pad(x.transpose(0, 2, 1, 3), 0)
        return rows.reshape(-1, BLOCK, self.heads, self.size).transpose(0, 2, 1, 3)

    def keys(self, x):
        rows = x.transpose(0, 2, 1, 3)
        if multi_head.heads_fit(rows):
            return multi_head.around(rows, BLOCK).transpose(0, 2, 1, 3)
        around = self._around(rows)
        return around.reshape(-1, 2 * BLOCK, self.heads, self.size).transpose(0, 2, 1, 3)

    def from_queries(self, x):
        rows = x.transpose(0, 2, 1, 3).reshape(self.batch, -1, self.heads, self.size)
        return rows[:, : self.length].transpose(0, 2, 1, 3)

    def from_keys(self, dx):
        """A key is in two blocks: the two gradients are added."""
        rows = dx.transpose(0, 2, 1, 3)
        if multi_head.heads_fit(rows):
            return multi_head.around_backward(rows, BLOCK, self.length).transpose(0, 2, 1, 3)
        parts = rows.reshape(self.batch, self.blocks, 2, BLOCK, self.heads, self.size)
        none = mx.zeros((self.batch, 1, BLOCK, self.heads, self.size), dtype=dx.dtype)
        blocks = mx.concatenate([parts[:, :, 0], none], 1) + mx.concatenate([none, parts[:, :, 1]], 1)
        rows = blocks.reshape(self.batch, -1, self.heads, self.size)
        half = BLOCK // 2
        return rows[:, half : half + self.length].transpose(0, 2, 1, 3)


@kernel
def tiled_attention(q, k, v, pattern, bias=None, scale=None, tile_mask=None, dropout_rate=0.0):
    if not _can_fuse(q, k, pattern, bias, tile_mask):
        context, values = ops.tiled_attention(q, k, v, pattern, bias, scale, tile_mask, dropout_rate)
        return context, plain_state("tiled_attention", values)
    plan, factor = _plan(q, pattern), scale_of(q, scale)
    laid_out = plan.queries(q), plan.keys(k), plan.keys(v)
    context = _forward(*laid_out, plan.mask, factor)
    if plan.has_keys is not None:
        context = context * plan.has_keys
    return plan.from_queries(context), (plan, laid_out, factor)


@kernel
@uses_vjp
def tiled_attention_backward(dcontext, state):
    plan, (q, k, v), factor = state
    d = plan.queries(dcontext)
    if plan.has_keys is not None:
        d = d * plan.has_keys
    dq, dk, dv = _backward(d, q, k, v, plan.mask, factor)
    if q.shape[2] % BLOCK:  # MLX then returns transposed arrays, which the rotary kernel for CUDA must not get
        dq, dk, dv = mx.contiguous(dq), mx.contiguous(dk), mx.contiguous(dv)
    return plan.from_queries(dq), plan.from_keys(dk), plan.from_keys(dv), None
