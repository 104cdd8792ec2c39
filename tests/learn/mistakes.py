"""Forty-five mistakes that learners make, written before the referee knew any hint.

Each is a whole answer to an exercise, as a learner would hand it in, with one thing wrong, and the name of the mistake.
The referee must name at least 40 of them (`tests/learn/test_mistakes.py`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Planted(NamedTuple):
    exercise: str
    mistake: str
    answer: Callable


PLANTED: list[Planted] = []


def planted(exercise: str, mistake: str):
    def enter(answer):
        PLANTED.append(Planted(exercise, mistake, answer))
        return answer

    return enter


erf = np.vectorize(math.erf, otypes=[float])


# ---- building blocks -----------------------------------------------------------------------------------------------


@planted("embedding", "columns instead of rows")
def _(table, ids):
    return table[:, ids]


@planted("linear", "the weight is not transposed")
def _(x, weight, bias):
    return x @ weight + bias


@planted("relu", "the absolute value")
def _(x):
    return np.where(x > 0, x, -x)


@planted("gelu", "the tanh approximation")
def _(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@planted("gelu", "erf without the division by √2")
def _(x):
    return x * (1 + erf(x)) / 2


@planted("layer_norm", "divided by the variance, not by its root")
def _(x, gamma, beta, eps):
    mu = np.mean(x, axis=-1, keepdims=True)
    var = np.var(x, axis=-1, keepdims=True)
    return gamma * (x - mu) / (var + eps) + beta


@planted("layer_norm", "the variance divides by H - 1")
def _(x, gamma, beta, eps):
    mu = x.mean(-1)[..., None]
    var = x.var(-1, ddof=1)[..., None]
    return (x - mu) / np.sqrt(var + eps) * gamma + beta


@planted("layer_norm", "mean and variance over the wrong axis")
def _(x, gamma, beta, eps):
    return gamma * (x - x.mean(0)) / np.sqrt(x.var(0) + eps) + beta


@planted("feed_forward", "no activation between the two maps")
def _(x, up_weight, up_bias, down_weight, down_bias):
    hidden = x @ up_weight.T + up_bias
    return hidden @ down_weight.T + down_bias


# ---- attention -----------------------------------------------------------------------------------------------------


@planted("softmax", "the maximum is not subtracted")
def _(x):
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


@planted("softmax", "normalised over everything, not along the last axis")
def _(x):
    e = np.exp(x - x.max())
    return e / np.sum(e)


@planted("split_heads", "reshaped without exchanging axes")
def _(x, heads):
    b, t, h = x.shape
    return x.reshape(b, heads, t, h // heads)


@planted("attention", "1/√d is missing")
def _(q, k, v, mask):
    s = q @ k.transpose(0, 1, 3, 2)
    s = np.where(mask[:, None, None, :] == 1, s, -1e9)
    w = np.exp(s - s.max(-1, keepdims=True))
    w = w / w.sum(-1, keepdims=True)
    return w @ v


@planted("attention", "masked after the softmax")
def _(q, k, v, mask):
    s = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
    w = np.exp(s - s.max(-1, keepdims=True))
    w = w / w.sum(-1, keepdims=True) * mask[:, None, None, :]
    return w @ v


@planted("attention", "the mask is inverted")
def _(q, k, v, mask):
    s = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
    s = s + mask[:, None, None, :] * -1e9
    w = np.exp(s - s.max(-1, keepdims=True))
    return (w / w.sum(-1, keepdims=True)) @ v


@planted("attention", "softmax over the queries, not over the keys")
def _(q, k, v, mask):
    s = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) + (1 - mask[:, None, None, :]) * -1e9
    w = np.exp(s - s.max(-2, keepdims=True))
    return (w / w.sum(-2, keepdims=True)) @ v


@planted("attention_entropy", "logarithm in base 2")
def _(weights):
    return -(weights * np.log2(np.maximum(weights, 1e-300))).sum(-1)


# ---- the whole model -----------------------------------------------------------------------------------------------


@planted("block", "the first residual is missing")
def _(x, attention, feed_forward, first_norm, second_norm):
    x = first_norm(attention(x))
    return second_norm(x + feed_forward(x))


@planted("block", "pre-norm instead of post-norm")
def _(x, attention, feed_forward, first_norm, second_norm):
    x = x + attention(first_norm(x))
    x = x + feed_forward(second_norm(x))
    return x


@planted("parameter_count", "the biases are forgotten")
def _(vocab_size, positions, hidden_size, layers, intermediate_size):
    h = hidden_size
    layer = 4 * h * h + 2 * h * intermediate_size + 4 * h
    return vocab_size * h + positions * h + layers * layer + 2 * h + vocab_size * h


# ---- training ------------------------------------------------------------------------------------------------------


@planted("mask_tokens", "labels hold the masked ids, not the original ones")
def _(ids, chosen, draws, random_ids, mask_id):
    out = ids.copy()
    out[chosen & (draws < 0.8)] = mask_id
    swap = chosen & (draws >= 0.8) & (draws < 0.9)
    out[swap] = random_ids[swap]
    return out, np.where(chosen, out, -100)


@planted("cross_entropy", "ignored rows count in the mean")
def _(logits, targets):
    z = logits - logits.max(1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(1, keepdims=True))
    total = 0.0
    for row, t in zip(logp, targets, strict=True):
        if t != -100:
            total -= row[t]
    return total / len(targets)


@planted("cross_entropy_backward", "not divided by the number of targets")
def _(logits, targets):
    e = np.exp(logits - logits.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    for i, t in enumerate(targets):
        if t == -100:
            p[i] = 0
        else:
            p[i, t] -= 1
    return p


@planted("linear_backward", "the gradient of the weight is transposed")
def _(dy, x, weight):
    rows, drows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return dy @ weight, rows.T @ drows, drows.sum(axis=0)


@planted("relu_backward", "the slope asks for the sign of the gradient")
def _(dy, x):
    dx = dy.copy()
    dx[dy <= 0] = 0
    return dx


@planted("gelu_backward", "the term x·φ(x) is missing")
def _(dy, x):
    return dy * 0.5 * (1 + erf(x / math.sqrt(2)))


@planted("embedding_backward", "a repeated id keeps only its last gradient")
def _(dy, ids, vocab_size):
    dtable = np.zeros((vocab_size, dy.shape[-1]))
    dtable[ids] = dy
    return dtable


@planted("softmax_backward", "only the diagonal of the Jacobian")
def _(dy, y):
    return dy * y * (1 - y)


@planted("softmax_backward", "the inner sum is a mean")
def _(dy, y):
    inner = np.mean(dy * y, axis=-1, keepdims=True)
    return y * (dy - inner)


@planted("layer_norm_backward", "gamma outside the means")
def _(dy, x, gamma, eps):
    sd = np.sqrt(x.var(-1, keepdims=True) + eps)
    xh = (x - x.mean(-1, keepdims=True)) / sd
    dx = gamma / sd * (dy - dy.mean(-1, keepdims=True) - xh * (dy * xh).mean(-1, keepdims=True))
    axes = tuple(range(x.ndim - 1))
    return dx, (dy * xh).sum(axes), dy.sum(axes)


@planted("layer_norm_backward", "mean and variance treated as constants")
def _(dy, x, gamma, eps):
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + eps)
    xh = (x - x.mean(-1, keepdims=True)) * rstd
    axes = tuple(range(x.ndim - 1))
    return dy * gamma * rstd, (dy * xh).sum(axes), dy.sum(axes)


@planted("layer_norm_backward", "the gradient of gamma takes x instead of x̂")
def _(dy, x, gamma, eps):
    h = x.shape[-1]
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + eps)
    xh = (x - x.mean(-1, keepdims=True)) * rstd
    g = dy * gamma
    dx = rstd / h * (h * g - g.sum(-1, keepdims=True) - xh * (g * xh).sum(-1, keepdims=True))
    return dx, np.einsum("bth,bth->h", dy, x), np.einsum("bth->h", dy)


@planted("attention_backward", "1/√d is missing in the gradients of queries and keys")
def _(dcontext, q, k, v, mask):
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    s = np.where(mask[:, None, None, :] > 0, s, -1e30)
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    dv = w.swapaxes(-1, -2) @ dcontext
    dw = dcontext @ v.swapaxes(-1, -2)
    ds = w * (dw - (dw * w).sum(-1, keepdims=True))
    return ds @ k, ds.swapaxes(-1, -2) @ q, dv


@planted("residual_backward", "only the branch has a gradient")
def _(dy, branch_backward):
    return branch_backward(dy)


@planted("numerical_gradient", "one-sided difference")
def _(f, x, h):
    grad = np.zeros_like(x)
    base = f(x)
    for i in np.ndindex(x.shape):
        moved = x.copy()
        moved[i] += h
        grad[i] = (f(moved) - base) / h
    return grad


@planted("adamw_step", "no bias correction")
def _(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    return p - lr * (m / (np.sqrt(v) + eps) + weight_decay * p), m, v


@planted("adamw_step", "the decay is part of the gradient")
def _(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    g = g + weight_decay * p
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    mh, vh = m / (1 - beta1**t), v / (1 - beta2**t)
    return p - lr * mh / (np.sqrt(vh) + eps), m, v


@planted("schedule", "the decay begins at progress 0, not after the warm-up")
def _(progress, warmup):
    if progress < warmup:
        return progress / warmup
    return 1.0 - progress


@planted("clip_gradients", "every array is clipped by its own norm")
def _(gradients, limit):
    out = []
    for g in gradients:
        n = np.sqrt((g * g).sum())
        out.append(g * limit / n if n > limit else g)
    return out


# ---- evaluation and mastery ----------------------------------------------------------------------------------------


@planted("perplexity", "the mean of the batches' means")
def _(losses, counts):
    return math.exp(sum(losses) / len(losses))


@planted("calibration_error", "bins are not weighted by their size")
def _(confidence, correct, bins):
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = []
    for b in range(bins):
        inside = index == b
        if inside.any():
            gaps.append(abs(confidence[inside].mean() - correct[inside].mean()))
    return float(np.mean(gaps))


@planted("rotary", "neighbours are paired, not the two halves")
def _(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = odd * cos + even * sin
    return out


@planted("rotary_backward", "rotated forward again")
def _(dy, cos, sin):
    h = dy.shape[-1] // 2
    a, b = dy[..., :h], dy[..., h:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


@planted("power_law", "the exponent has the wrong sign")
def _(sizes, losses):
    slope, intercept = np.polyfit(np.log(sizes), np.log(losses), 1)
    return slope, np.exp(intercept)


@planted("online_softmax", "the old sums are not rescaled when the maximum grows")
def _(scores, values, tile):
    top, total, out = -np.inf, 0.0, np.zeros(values.shape[1])
    for start in range(0, len(scores), tile):
        s, v = scores[start : start + tile], values[start : start + tile]
        top = max(top, s.max())
        e = np.exp(s - top)
        total += e.sum()
        out = out + e @ v
    return out / total
