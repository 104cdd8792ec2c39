"""Solutions: the backwards. Each takes the gradient of the output and the inputs of the forward."""

import math

import numpy as np

IGNORED = -100


def linear_backward(dy, x, weight):
    """dx = dy W, dW = dyᵀ x, db = the sum of dy over the rows."""
    dy_rows, x_rows = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])  # [N, O], [N, I]
    dx = dy @ weight  # [..., I]
    dweight = dy_rows.T @ x_rows  # [O, I]
    dbias = dy_rows.sum(0)  # [O]
    return dx, dweight, dbias


def relu_backward(dy, x):
    """The slope is 1 where x > 0, and 0 elsewhere."""
    return dy * (x > 0)


def gelu_backward(dy, x):
    """(x Φ)' = Φ + x φ, with the normal density φ(x) = exp(-x²/2) / √(2π)."""
    erf = np.vectorize(math.erf, otypes=[float])
    cdf = 0.5 * (1.0 + erf(x / math.sqrt(2.0)))
    density = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return dy * (cdf + x * density)


def embedding_backward(dy, ids, vocab_size):
    """Rows are added: an id that occurs twice collects both gradients."""
    rows = dy.reshape(-1, dy.shape[-1])  # [N, H]
    dtable = np.zeros((vocab_size, dy.shape[-1]))
    np.add.at(dtable, ids.reshape(-1), rows)
    return dtable


def softmax_backward(dy, y):
    """dx = y · (dy - Σ_j dy_j y_j)"""
    inner = (dy * y).sum(-1, keepdims=True)
    return y * (dy - inner)


def layer_norm_backward(dy, x, gamma, eps):
    """dx = rstd · (g - mean(g) - x̂ · mean(g · x̂)) with g = dy · gamma: mean and variance depend on x as well."""
    centred = x - x.mean(-1, keepdims=True)
    rstd = 1.0 / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)  # [..., 1]
    x_hat = centred * rstd
    rows = tuple(range(x.ndim - 1))
    dgamma = (dy * x_hat).sum(rows)  # [H]
    dbeta = dy.sum(rows)  # [H]
    g = dy * gamma
    mean_term = g.mean(-1, keepdims=True)
    variance_term = x_hat * (g * x_hat).mean(-1, keepdims=True)
    dx = rstd * (g - mean_term - variance_term)
    return dx, dgamma, dbeta


def attention_backward(dcontext, q, k, v, mask):
    """The forward from its last line to its first: context = weights v, weights = softmax(scores), scores = q kᵀ/√d."""
    scale = 1.0 / math.sqrt(q.shape[-1])
    scores = np.where(mask[:, None, None, :] != 0, scale * q @ k.swapaxes(-1, -2), -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)  # [B, heads, T, T]
    dv = weights.swapaxes(-1, -2) @ dcontext
    dweights = dcontext @ v.swapaxes(-1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))
    dscores = dscores * scale
    dq = dscores @ k
    dk = dscores.swapaxes(-1, -2) @ q
    return dq, dk, dv


def cross_entropy_backward(logits, targets):
    """dz = (softmax(z) - onehot(target)) / count; rows without a target have no gradient."""
    valid = targets != IGNORED
    count = max(valid.sum(), 1)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)  # [N, V]
    onehot = np.arange(logits.shape[-1]) == targets[:, None]
    dlogits = (probabilities - onehot) / count
    return dlogits * valid[:, None]


def residual_backward(dy, branch_backward):
    """y = x + branch(x): x went two ways, so two gradients add up."""
    return dy + branch_backward(dy)


def rotary_backward(dy, cos, sin):
    """The inverse rotation: the transpose of a rotation by θ is a rotation by -θ."""
    half = dy.shape[-1] // 2
    d1, d2 = dy[..., :half], dy[..., half:]
    return np.concatenate([d1 * cos + d2 * sin, d2 * cos - d1 * sin], -1)
