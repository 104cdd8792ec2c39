"""Wrong gradients of single operations, and a few right ones in disguise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from glassbert import ops
from glassbert.ops.registry import plain
from glassbert.proof.mutants import wrong

# ---- linear --------------------------------------------------------------------------------------------------------


@wrong("linear_backward", "linear: bias gradient is the mean over rows, not the sum")
def _(dy, x, weight, has_bias=True, out=(None, None)):
    dx, dweight, dbias = plain("linear_backward")(dy, x, weight, has_bias)
    return dx, dweight, dbias / (dy.size // dy.shape[-1]) if has_bias else None


@wrong("linear_backward", "linear: weight gradient transposed (noticed only if square)")
def _(dy, x, weight, has_bias=True, out=(None, None)):
    dx, dweight, dbias = plain("linear_backward")(dy, x, weight, has_bias)
    return dx, dweight.T if weight.shape[0] == weight.shape[1] else dweight, dbias


@wrong("linear_backward", "linear: input gradient multiplies by W, not by its transpose")
def _(dy, x, weight, has_bias=True, out=(None, None)):
    dx, dweight, dbias = plain("linear_backward")(dy, x, weight, has_bias)
    return dy @ weight.T if weight.shape[0] == weight.shape[1] else dx, dweight, dbias


@wrong("linear_backward", "linear: weight gradient from the first sequence only")
def _(dy, x, weight, has_bias=True, out=(None, None)):
    dx, _, dbias = plain("linear_backward")(dy, x, weight, has_bias)
    dy_rows, x_rows = (a[:1].reshape(-1, a.shape[-1]) for a in (dy, x))
    return dx, dy_rows.T @ x_rows, dbias


# ---- embedding, chosen rows ----------------------------------------------------------------------------------------


@wrong("embedding_backward", "embedding: a repeated id keeps only its last gradient")
def _(dy, ids, padding_id=None):
    flat_ids, rows = ids.reshape(-1), dy.reshape(-1, dy.shape[-1])
    last = {int(i): n for n, i in enumerate(flat_ids) if i != padding_id}
    return np.array(list(last), np.int64), rows[list(last.values())]


@wrong("embedding_backward", "embedding: the padding row is not frozen")
def _(dy, ids, padding_id=None):
    return plain("embedding_backward")(dy, ids, None)


@wrong("embedding_backward", "embedding: row 0 is frozen whatever the padding id is")
def _(dy, ids, padding_id=None):
    return plain("embedding_backward")(dy, ids, 0)


@wrong("take_rows_backward", "chosen rows: gradient put into the first rows")
def _(dy, rows, shape):
    return plain("take_rows_backward")(dy, np.arange(len(rows)), shape)


@wrong("take_rows_backward", "chosen rows: a row chosen twice is overwritten")
def _(dy, rows, shape):
    dx = np.zeros((int(np.prod(shape[:-1])), shape[-1]))
    dx[rows] = dy
    return dx.reshape(shape)


# ---- layer norm, softmax -------------------------------------------------------------------------------------------


def _layer_norm_backward(dy, g, gamma_outside, cache, mean=True, slope=True):
    x_hat, rstd = cache
    rows = tuple(range(dy.ndim - 1))
    dx = g - g.mean(-1, keepdims=True) if mean else g.copy()
    if slope:
        dx -= x_hat * (g * x_hat).mean(-1, keepdims=True)
    return dx * gamma_outside * rstd, (dy * x_hat).sum(rows), dy.sum(rows)


@wrong("layer_norm_backward", "layer norm: gamma outside the means")
def _(dy, gamma, cache, has_beta=True, out=(None, None)):
    return _layer_norm_backward(dy, dy, gamma, cache)


@wrong("layer_norm_backward", "layer norm: the mean's own gradient is missing")
def _(dy, gamma, cache, has_beta=True, out=(None, None)):
    return _layer_norm_backward(dy, dy * gamma, 1.0, cache, mean=False)


@wrong("layer_norm_backward", "layer norm: the variance's own gradient is missing")
def _(dy, gamma, cache, has_beta=True, out=(None, None)):
    return _layer_norm_backward(dy, dy * gamma, 1.0, cache, slope=False)


@wrong("layer_norm_backward", "layer norm: gamma's gradient without the normalised input")
def _(dy, gamma, cache, has_beta=True, out=(None, None)):
    dx, _, dbeta = plain("layer_norm_backward")(dy, gamma, cache, has_beta)
    return dx, (dy * (cache[0] / cache[1])).sum(tuple(range(dy.ndim - 1))), dbeta


@wrong("softmax_backward", "softmax: without the inner sum")
def _(dy, y):
    return y * dy


@wrong("softmax_backward", "softmax: inner sum over the wrong axis")
def _(dy, y):
    return y * (dy - (dy * y).sum(-2, keepdims=True))


# ---- activations ---------------------------------------------------------------------------------------------------


@wrong("relu_backward", "relu: gated by the gradient's sign instead of the input's")
def _(dy, x, cache=None):
    return dy * (dy > 0)


@wrong("gelu_backward", "gelu: derivative of the tanh approximation")
def _(dy, x, cdf):
    _, t = plain("gelu_tanh")(x)
    return plain("gelu_tanh_backward")(dy, x, t)


@wrong("gelu_backward", "gelu: without the x·φ term")
def _(dy, x, cdf):
    return dy * cdf


@wrong("gelu_tanh_backward", "gelu by tanh: the cube's 3 is forgotten")
def _(dy, x, t):
    inner_slope = math.sqrt(2.0 / math.pi) * (1.0 + 0.044715 * x * x)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope)


@wrong("tanh_backward", "tanh: 1 - y instead of 1 - y²")
def _(dy, x, y):
    return dy * (1.0 - y)


@wrong("geglu_backward", "geglu: the halves' gradients are swapped")
def _(dy, x, cache, activation="gelu"):
    right = plain("geglu_backward")(dy, x, cache, activation)
    half = x.shape[-1] // 2
    return np.concatenate([right[..., half:], right[..., :half]], -1)


@wrong("geglu_backward", "geglu: the gate's gradient takes the value before its activation")
def _(dy, x, cache, activation="gelu"):
    half = x.shape[-1] // 2
    right = plain("geglu_backward")(dy, x, cache, activation)
    return np.concatenate([right[..., :half], dy * x[..., :half]], -1)


# ---- dropout, residual, rotary -------------------------------------------------------------------------------------


@wrong("dropout_backward", "dropout: gradient not scaled by 1 / (1 - rate)")
def _(dy, keep, rate):
    return dy if keep is None else dy * keep


@wrong("dropout_backward", "dropout: gradient scaled by 1 / rate")
def _(dy, keep, rate):
    return dy if keep is None else dy * keep / rate


@wrong("dropout_backward", "dropout: mask inverted")
def _(dy, keep, rate):
    return dy if keep is None else dy * ~keep / (1.0 - rate)


@wrong("dropout_backward", "dropout: a fresh mask in backward")
def _(dy, keep, rate):
    return dy if keep is None else dy * (np.random.default_rng(0).random(dy.shape) >= rate) / (1.0 - rate)


@wrong("residual_backward", "residual: the branch gets no gradient")
def _(dy):
    return dy, np.zeros_like(dy)


@wrong("residual_backward", "residual: the shortcut gets no gradient")
def _(dy):
    return np.zeros_like(dy), dy


@wrong("rotary_backward", "rotary: turned forward once more instead of back")
def _(dy, cos, sin):
    return ops.rotary(dy, cos, sin)


@wrong("rotary_backward", "rotary: sign wrong in one half")
def _(dy, cos, sin):
    half = dy.shape[-1] // 2
    d1, d2 = dy[..., :half], dy[..., half:]
    return np.concatenate([d1 * cos + d2 * sin, d2 * cos + d1 * sin], -1)


@wrong("rotary_backward", "rotary: the row's positions count through, not from 0 in every document")
def _(dy, cos, sin):
    return ops.rotary(dy, cos[:1], -sin[:1])


# ---- attention -----------------------------------------------------------------------------------------------------


@wrong("attention_backward", "attention: 1/√d missing")
def _(dcontext, q, k, v, context, weights, keep=None, rate=0.0):
    dq, dk, dv = plain("attention_backward")(dcontext, q, k, v, context, weights, keep, rate)
    return dq * q.shape[-1] ** 0.5, dk * q.shape[-1] ** 0.5, dv


@wrong("attention_backward", "attention: 1/√d applied twice")
def _(dcontext, q, k, v, context, weights, keep=None, rate=0.0):
    dq, dk, dv = plain("attention_backward")(dcontext, q, k, v, context, weights, keep, rate)
    return dq * q.shape[-1] ** -0.5, dk * q.shape[-1] ** -0.5, dv


@wrong("attention_backward", "attention: gradients of queries and keys swapped")
def _(dcontext, q, k, v, context, weights, keep=None, rate=0.0):
    dq, dk, dv = plain("attention_backward")(dcontext, q, k, v, context, weights, keep, rate)
    return dk, dq, dv


@wrong("attention_backward", "attention: values' gradient from the weights before dropout", "attention: dropout")
def _(dcontext, q, k, v, context, weights, keep=None, rate=0.0):
    dq, dk, _ = plain("attention_backward")(dcontext, q, k, v, context, weights, keep, rate)
    return dq, dk, weights.swapaxes(-1, -2) @ dcontext


@wrong("attention_backward", "attention: softmax differentiated at the dropped weights", "attention: dropout")
def _(dcontext, q, k, v, context, weights, keep=None, rate=0.0):
    dropped = plain("dropout")(weights, keep, rate)
    dq, dk, _ = plain("attention_backward")(dcontext, q, k, v, context, dropped, None, rate)
    return dq, dk, dropped.swapaxes(-1, -2) @ dcontext


@wrong("tiled_attention_backward", "tiled attention: 1/√d missing for the keys")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    dq, dk, dv = plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern, keep_tile, rate)
    return dq, dk * q.shape[-1] ** 0.5, dv


@wrong("tiled_attention_backward", "tiled attention: the row's inner term is left out")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    nothing = np.zeros_like(context)
    return plain("tiled_attention_backward")(dcontext, q, k, v, nothing, lse, pattern, keep_tile, rate)


@wrong("tiled_attention_backward", "tiled attention: log-sum-exp in base 2")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    lse = np.where(np.abs(lse) < 1e20, lse / math.log(2.0), lse)
    return plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern, keep_tile, rate)


@wrong("tiled_attention_backward", "tiled attention: dropout forgotten in backward", "tiled_attention: dropout")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    return plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern)


@wrong("tiled_attention_backward", "tiled attention: padding mask inverted in backward", "tiled_attention: ragged")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    if pattern.keys is not None:
        pattern = replace(pattern, keys=1 - pattern.keys)
    return plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern, keep_tile, rate)


@wrong("tiled_attention_backward", "tiled attention: window too narrow in backward", "tiled_attention: local window")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    if pattern.window is not None:
        pattern = replace(pattern, window=pattern.window - 1)
    return plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern, keep_tile, rate)


@wrong("tiled_attention_backward", "tiled attention: window too wide in backward", "tiled_attention: local window")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    if pattern.window is not None:
        pattern = replace(pattern, window=pattern.window + 1)
    return plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern, keep_tile, rate)


@wrong("tiled_attention_backward", "tiled attention: causal order forgotten in backward", "tiled_attention: causal")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    pattern = replace(pattern, causal=False)
    return plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern, keep_tile, rate)


@wrong("tiled_attention_backward", "tiled attention: documents see each other in backward", "tiled_attention: packed")
def _(dcontext, q, k, v, context, lse, pattern, keep_tile=None, rate=0.0):
    pattern = replace(pattern, segments=None)
    return plain("tiled_attention_backward")(dcontext, q, k, v, context, lse, pattern, keep_tile, rate)


# ---- right gradients in disguise: nobody may flag them -------------------------------------------------------------


@wrong("softmax_backward", "control: softmax by its whole Jacobian", harmless=True)
def _(dy, y):
    jacobian = y[..., :, None] * (np.eye(y.shape[-1]) - y[..., None, :])
    return (dy[..., None, :] @ jacobian)[..., 0, :]


@wrong("layer_norm_backward", "control: layer norm by its projection matrix", "norm", harmless=True)
def _(dy, gamma, cache, has_beta=True, out=(None, None)):
    x_hat, rstd = cache
    width, rows = dy.shape[-1], tuple(range(dy.ndim - 1))
    projection = np.eye(width) - 1.0 / width - x_hat[..., :, None] * x_hat[..., None, :] / width
    dx = rstd * ((dy * gamma)[..., None, :] @ projection)[..., 0, :]
    return dx, (dy * x_hat).sum(rows), dy.sum(rows) if has_beta else None
