"""Wrong gradients of single operations, and right ones that are written in another way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from glassbert import ops
from glassbert.ops.attention import sum_to
from glassbert.proof.mutants import wrong

# ---- linear --------------------------------------------------------------------------------------------------------


@wrong("linear_backward", "linear: bias gradient is the mean over rows, not the sum")
def _(dy, state):
    dx, dweight, dbias = ops.linear_backward(dy, state)
    return dx, dweight, None if dbias is None else dbias / (dy.size // dy.shape[-1])


@wrong("linear_backward", "linear: weight gradient transposed (noticed only if square)")
def _(dy, state):
    dx, dweight, dbias = ops.linear_backward(dy, state)
    return dx, dweight.T if dweight.shape[0] == dweight.shape[1] else dweight, dbias


@wrong("linear_backward", "linear: input gradient multiplies by W, not by its transpose")
def _(dy, state):
    dx, dweight, dbias = ops.linear_backward(dy, state)
    _, weight, _ = state
    return dy @ weight.T if weight.shape[0] == weight.shape[1] else dx, dweight, dbias


@wrong("linear_backward", "linear: weight gradient from the first sequence only")
def _(dy, state):
    dx, _, dbias = ops.linear_backward(dy, state)
    dy_rows, x_rows = (a[:1].reshape(-1, a.shape[-1]) for a in (dy, state[0]))
    return dx, dy_rows.T @ x_rows, dbias


# ---- embedding, chosen rows ----------------------------------------------------------------------------------------


@wrong("embedding_backward", "embedding: a repeated id keeps only its last gradient")
def _(dy, state):
    ids, padding_id = state
    flat_ids, rows = ids.reshape(-1), dy.reshape(-1, dy.shape[-1])
    last = {int(i): n for n, i in enumerate(flat_ids) if i != padding_id}
    return np.array(list(last), np.int64), rows[list(last.values())]


@wrong("embedding_backward", "embedding: the padding row is not frozen")
def _(dy, state):
    return ops.embedding_backward(dy, (state[0], None))


@wrong("embedding_backward", "embedding: row 0 is frozen whatever the padding id is")
def _(dy, state):
    return ops.embedding_backward(dy, (state[0], 0))


@wrong("take_rows_backward", "chosen rows: gradient put into the first rows")
def _(dy, state):
    rows, shape = state
    return ops.take_rows_backward(dy, (np.arange(len(rows)), shape))


@wrong("take_rows_backward", "chosen rows: a row chosen twice is overwritten")
def _(dy, state):
    rows, shape = state
    dx = np.zeros((int(np.prod(shape[:-1])), shape[-1]))
    dx[rows] = dy
    return dx.reshape(shape)


# ---- layer norm, softmax -------------------------------------------------------------------------------------------


def _layer_norm_backward(dy, g, gamma_outside, state, mean=True, slope=True):
    x_hat, rstd, _, has_beta = state
    rows = tuple(range(dy.ndim - 1))
    dx = g - g.mean(-1, keepdims=True) if mean else g.copy()
    if slope:
        dx -= x_hat * (g * x_hat).mean(-1, keepdims=True)
    return dx * gamma_outside * rstd, (dy * x_hat).sum(rows), dy.sum(rows) if has_beta else None


@wrong("layer_norm_backward", "layer norm: gamma outside the means")
def _(dy, state):
    return _layer_norm_backward(dy, dy, state[2], state)


@wrong("layer_norm_backward", "layer norm: the mean's own gradient is missing")
def _(dy, state):
    return _layer_norm_backward(dy, dy * state[2], 1.0, state, mean=False)


@wrong("layer_norm_backward", "layer norm: the variance's own gradient is missing")
def _(dy, state):
    return _layer_norm_backward(dy, dy * state[2], 1.0, state, slope=False)


@wrong("layer_norm_backward", "layer norm: gamma's gradient without the normalised input")
def _(dy, state):
    x_hat, rstd, _, _ = state
    dx, _, dbeta = ops.layer_norm_backward(dy, state)
    return dx, (dy * (x_hat / rstd)).sum(tuple(range(dy.ndim - 1))), dbeta


@wrong("softmax_backward", "softmax: without the inner sum")
def _(dy, y):
    return y * dy


@wrong("softmax_backward", "softmax: inner sum over the wrong axis")
def _(dy, y):
    return y * (dy - (dy * y).sum(-2, keepdims=True))


# ---- activations ---------------------------------------------------------------------------------------------------


@wrong("relu_backward", "relu: gated by the gradient's sign instead of the input's")
def _(dy, y):
    return dy * (dy > 0)


@wrong("gelu_backward", "gelu: derivative of the tanh approximation")
def _(dy, state):
    return ops.gelu_tanh_backward(dy, ops.gelu_tanh(state[0])[1])


@wrong("gelu_backward", "gelu: without the x·φ term")
def _(dy, state):
    return dy * state[1]


@wrong("gelu_tanh_backward", "gelu by tanh: the factor 3 of the cube is missing")
def _(dy, state):
    x, t = state
    inner_slope = math.sqrt(2.0 / math.pi) * (1.0 + 0.044715 * x * x)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope)


@wrong("tanh_backward", "tanh: 1 - y instead of 1 - y²")
def _(dy, y):
    return dy * (1.0 - y)


@wrong("geglu_backward", "geglu: the gradients of the halves are exchanged")
def _(dy, state):
    right = ops.geglu_backward(dy, state)
    half = dy.shape[-1]
    return np.concatenate([right[..., half:], right[..., :half]], -1)


@wrong("geglu_backward", "geglu: the gate's gradient takes the value before its activation")
def _(dy, state):
    half, inner = dy.shape[-1], state[2]
    value = inner[0] if isinstance(inner, tuple) else inner  # relu's state is its output
    return np.concatenate([ops.geglu_backward(dy, state)[..., :half], dy * value], -1)


# ---- heads ----------------------------------------------------------------------------------------------------------


@wrong("join_heads_backward", "joined heads: gradients of keys and values exchanged")
def _(dy, heads):
    dq, dk, dv = ops.join_heads_backward(dy, heads)
    return dq, dv, dk


@wrong("join_heads_backward", "joined heads: taken apart head by head instead of part by part")
def _(dy, heads):
    batch, length, width = dy.shape
    parts = dy.reshape(batch, length, heads, 3, width // (3 * heads))
    return tuple(parts[:, :, :, i] for i in range(3))


# ---- dropout, rotary -----------------------------------------------------------------------------------------------


@wrong("dropout_backward", "dropout: gradient not scaled by 1 / (1 - rate)")
def _(dy, state):
    mask, _ = state
    return dy if mask is None else dy * mask


@wrong("dropout_backward", "dropout: gradient scaled by 1 / rate")
def _(dy, state):
    mask, rate = state
    return dy if mask is None else dy * mask / rate


@wrong("dropout_backward", "dropout: mask inverted")
def _(dy, state):
    mask, rate = state
    return dy if mask is None else dy * ~mask / (1.0 - rate)


@wrong("dropout_backward", "dropout: another mask in backward")
def _(dy, state):
    mask, rate = state
    return dy if mask is None else dy * (np.random.default_rng(0).random(dy.shape) >= rate) / (1.0 - rate)


@wrong("rotary_backward", "rotary: rotated by θ again instead of by -θ")
def _(dy, state):
    return ops.rotary(dy, *state)[0]


@wrong("rotary_backward", "rotary: sign wrong in one half")
def _(dy, state):
    cos, sin = state
    half = dy.shape[-1] // 2
    d1, d2 = dy[..., :half], dy[..., half:]
    return np.concatenate([d1 * cos + d2 * sin, d2 * cos + d1 * sin], -1)


@wrong("rotary_backward", "rotary: every row gets the positions of the first row")
def _(dy, state):
    cos, sin = state
    return ops.rotary(dy, cos[:1], -sin[:1])[0]


# ---- attention -----------------------------------------------------------------------------------------------------


@wrong("attention_backward", "attention: 1/√d missing")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    scale = state[6]
    return dq / scale, dk / scale, dv, dbias


@wrong("attention_backward", "attention: 1/√d applied twice")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    scale = state[6]
    return dq * scale, dk * scale, dv, dbias


@wrong("attention_backward", "attention: scale missing in the gradient of the queries", "attention: another scale")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    return dq / state[6], dk, dv, dbias


@wrong("attention_backward", "attention: 1/√d where another scale is given", "attention: another scale")
def _(dcontext, state):
    size = state[0].shape[-1]
    return ops.attention_backward(dcontext, (*state[:6], size**-0.5, *state[7:]))


@wrong("attention_backward", "attention: gradients of queries and keys exchanged", "attention: no mask")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    return dk, dq, dv, dbias


@wrong("attention_backward", "attention: values' gradient from the weights before dropout", "attention: dropout")
def _(dcontext, state):
    dq, dk, _, dbias = ops.attention_backward(dcontext, state)
    weights = state[3]
    return dq, dk, weights.swapaxes(-1, -2) @ dcontext, dbias


@wrong("attention_backward", "attention: softmax differentiated at the dropped weights", "attention: dropout")
def _(dcontext, state):
    q, k, v, _, dropped, *rest = state
    return ops.attention_backward(dcontext, (q, k, v, dropped, dropped, None, *rest[1:]))


def _scores_gradient(dcontext, state):
    """The gradient of the scores [B, heads, Tq, Tk], before it is summed to the shape of a bias."""
    q, k, *_ = state
    full = (*q.shape[:3], k.shape[2])
    return ops.attention_backward(dcontext, (*state[:7], full))[3]


@wrong("attention_backward", "attention: bias gradient multiplied by the scale", "attention: bias")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    return dq, dk, dv, None if dbias is None else dbias * state[6]


@wrong(
    "attention_backward", "attention: bias gradient of the first row, not the sum over rows", "attention: bias by head"
)
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    if dbias is not None and dbias.shape[0] == 1:
        dbias = sum_to(_scores_gradient(dcontext, state)[:1], dbias.shape)
    return dq, dk, dv, dbias


@wrong(
    "attention_backward", "attention: bias gradient of the first head, not the sum over heads", "attention: bias by row"
)
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    if dbias is not None and dbias.shape[1] == 1:
        dbias = sum_to(_scores_gradient(dcontext, state)[:, :1], dbias.shape)
    return dq, dk, dv, dbias


@wrong("attention_backward", "attention: bias gradient is that of the weights, not of the scores", "attention: bias")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    dweights = dcontext @ state[2].swapaxes(-1, -2)
    return dq, dk, dv, None if dbias is None else sum_to(dweights, dbias.shape)


@wrong("tiled_attention_backward", "tiled attention: 1/√d missing for the keys")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.tiled_attention_backward(dcontext, state)
    return dq, dk / state[7], dv, dbias


@wrong(
    "tiled_attention_backward",
    "tiled attention: scale missing in the gradient of the queries",
    "tiled_attention: another",
)
def _(dcontext, state):
    dq, dk, dv, dbias = ops.tiled_attention_backward(dcontext, state)
    return dq / state[7], dk, dv, dbias


@wrong("tiled_attention_backward", "tiled attention: bias gradient multiplied by the scale", "tiled_attention: bias")
def _(dcontext, state):
    dq, dk, dv, dbias = ops.tiled_attention_backward(dcontext, state)
    return dq, dk, dv, None if dbias is None else dbias * state[7]


@wrong(
    "tiled_attention_backward",
    "tiled attention: bias gradient of the last row, not the sum over rows",
    "tiled_attention: bias by head",
)
def _(dcontext, state):
    dq, dk, dv, dbias = ops.tiled_attention_backward(dcontext, state)
    if dbias is not None and dbias.shape[0] == 1:
        bias = np.repeat(state[6], len(dcontext), 0)
        *_, by_row = ops.tiled_attention_backward(dcontext, (*state[:6], bias, *state[7:]))
        dbias = np.asarray(by_row)[-1:]
    return dq, dk, dv, dbias


def _with(state, **changes):
    """The state of tiled attention with other values of its pattern."""
    return (*state[:5], replace(state[5], **changes), *state[6:])


@wrong("tiled_attention_backward", "tiled attention: the bias is left out of the scores", "tiled_attention: bias")
def _(dcontext, state):
    bias = state[6]
    return ops.tiled_attention_backward(dcontext, (*state[:6], None if bias is None else 0.0 * bias, *state[7:]))


@wrong("tiled_attention_backward", "tiled attention: the inner sum of the softmax is left out")
def _(dcontext, state):
    q, k, v, context, *rest = state
    return ops.tiled_attention_backward(dcontext, (q, k, v, np.zeros_like(context), *rest))


@wrong("tiled_attention_backward", "tiled attention: log-sum-exp in base 2")
def _(dcontext, state):
    lse = state[4]
    lse = np.where(np.abs(lse) < 1e20, lse / math.log(2.0), lse)
    return ops.tiled_attention_backward(dcontext, (*state[:4], lse, *state[5:]))


@wrong("tiled_attention_backward", "tiled attention: dropout left out in backward", "tiled_attention: dropout")
def _(dcontext, state):
    return ops.tiled_attention_backward(dcontext, (*state[:8], None, 0.0))


@wrong("tiled_attention_backward", "tiled attention: padding mask inverted in backward", "tiled_attention: ragged")
def _(dcontext, state):
    keys = state[5].keys
    return ops.tiled_attention_backward(dcontext, _with(state, keys=None if keys is None else 1 - keys))


@wrong("tiled_attention_backward", "tiled attention: mask by pair left out in backward", "tiled_attention: mask")
def _(dcontext, state):
    return ops.tiled_attention_backward(dcontext, _with(state, mask=None))


@wrong("tiled_attention_backward", "tiled attention: window too narrow in backward", "tiled_attention: local window")
def _(dcontext, state):
    window = state[5].window
    return ops.tiled_attention_backward(dcontext, _with(state, window=None if window is None else window - 1))


@wrong("tiled_attention_backward", "tiled attention: window too wide in backward", "tiled_attention: local window")
def _(dcontext, state):
    window = state[5].window
    return ops.tiled_attention_backward(dcontext, _with(state, window=None if window is None else window + 1))


@wrong("tiled_attention_backward", "tiled attention: causal order left out in backward", "tiled_attention: causal")
def _(dcontext, state):
    return ops.tiled_attention_backward(dcontext, _with(state, causal=False))


@wrong("tiled_attention_backward", "tiled attention: offset ignored in the causal mask", "tiled_attention: more keys")
def _(dcontext, state):
    return ops.tiled_attention_backward(dcontext, _with(state, offset=0))


@wrong("tiled_attention_backward", "tiled attention: attention across documents in backward", "tiled_attention: packed")
def _(dcontext, state):
    return ops.tiled_attention_backward(dcontext, _with(state, segments=None))


# ---- right gradients in another form: none may be flagged ----------------------------------------------------------


@wrong("softmax_backward", "control: softmax by its whole Jacobian", harmless=True)
def _(dy, y):
    jacobian = y[..., :, None] * (np.eye(y.shape[-1]) - y[..., None, :])
    return (dy[..., None, :] @ jacobian)[..., 0, :]


@wrong("layer_norm_backward", "control: layer norm by its projection matrix", "block", harmless=True)
def _(dy, state):
    x_hat, rstd, gamma, has_beta = state
    width, rows = dy.shape[-1], tuple(range(dy.ndim - 1))
    projection = np.eye(width) - 1.0 / width - x_hat[..., :, None] * x_hat[..., None, :] / width
    dx = rstd * ((dy * gamma)[..., None, :] @ projection)[..., 0, :]
    return dx, (dy * x_hat).sum(rows), dy.sum(rows) if has_beta else None


@wrong("attention_backward", "control: attention's bias gradient by einsum", "attention: bias", harmless=True)
def _(dcontext, state):
    dq, dk, dv, dbias = ops.attention_backward(dcontext, state)
    if dbias is None:
        return dq, dk, dv, dbias
    _, _, v, weights, dropped, *_ = state
    dweights = np.einsum("bhqd,bhkd->bhqk", dcontext, v) * np.divide(
        dropped, weights, out=np.zeros_like(weights), where=weights > 0
    )
    dscores = weights * dweights - weights * np.einsum("bhqk,bhqk->bhq", weights, dweights)[..., None]
    return dq, dk, dv, sum_to(dscores, dbias.shape)
