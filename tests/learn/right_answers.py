"""Right answers that are written differently: loops, einsum, float32, other names, the package's own style."""

import math
from collections import defaultdict

import numpy as np

from glassbert import ops
from glassbert.learn.solutions import blocks, gradients, training
from glassbert.ops.normal import normal_cdf

RIGHT: dict[str, list] = defaultdict(list)
for module in (blocks, gradients, training):
    for name, function in vars(module).items():
        if callable(function) and getattr(function, "__module__", "") == module.__name__:
            RIGHT[name].append(function)


def right(exercise: str):
    def enter(answer):
        RIGHT[exercise].append(answer)
        return answer

    return enter


# ---- building blocks -----------------------------------------------------------------------------------------------


@right("embedding")
def _(words, numbers):
    onehot = np.eye(len(words))[numbers]
    return onehot @ words


@right("embedding")
def _(table, ids):
    return [[table[i] for i in row] for row in ids.tolist()]


@right("linear")
def _(*, bias, weight, x):
    return np.einsum("oi,bti->bto", weight, x) + bias


@right("linear")
def _(x, w, b):
    out = np.empty((*x.shape[:-1], len(w)), np.float32)
    for o, row in enumerate(w):
        out[..., o] = (x * row).sum(-1) + b[o]
    return out


right("linear")(ops.linear)


@right("relu")
def _(x):
    y = x.copy()
    y[y < 0] = 0
    return y


@right("relu")
def _(x):
    return (x + abs(x)) / 2


@right("gelu")
def _(x):
    return x * normal_cdf(x)


@right("gelu")
def _(x):
    return np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.ravel()]).reshape(x.shape)


@right("layer_norm")
def _(x, gamma, beta, eps):
    mean, variance = np.mean(x, -1, keepdims=True), np.var(x, -1, keepdims=True)
    return (x - mean) / (variance + eps) ** 0.5 * gamma + beta


@right("layer_norm")
def _(rows, g, b, epsilon=1e-5):
    out = np.zeros_like(rows)
    for i in np.ndindex(rows.shape[:-1]):
        r = rows[i]
        out[i] = g * (r - r.mean()) / math.sqrt(((r - r.mean()) ** 2).sum() / len(r) + epsilon) + b
    return out


@right("layer_norm")
def _(x, gamma, beta, eps):
    x, gamma, beta = (a.astype(np.float32) for a in (x, gamma, beta))
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c**2).mean(-1, keepdims=True) + np.float32(eps)) * gamma + beta


@right("feed_forward")
def _(x, up_weight, up_bias, down_weight, down_bias):
    hidden = np.einsum("bth,ih->bti", x, up_weight) + up_bias
    hidden[hidden < 0] = 0
    return np.einsum("bti,hi->bth", hidden, down_weight) + down_bias


@right("feed_forward")
def _(x, w1, b1, w2, b2):
    h = ops.relu(ops.linear(x, w1, b1)[0])[0]
    return ops.linear(h, w2, b2)


# ---- attention -----------------------------------------------------------------------------------------------------


@right("softmax")
def _(x):
    return np.exp(x - np.logaddexp.reduce(x, axis=-1)[..., None])


@right("softmax")
def _(scores):
    top = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - top)
    return np.divide(e, np.einsum("...t->...", e)[..., None])


@right("split_heads")
def _(x, heads):
    return np.stack(np.split(x, heads, axis=-1), axis=1)


@right("split_heads")
def _(x, n):
    d = x.shape[-1] // n
    return np.array([[row[:, h * d : (h + 1) * d] for h in range(n)] for row in x])


@right("attention")
def _(q, k, v, mask):
    s = np.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
    s += (1 - mask[:, None, None, :]) * -1e9
    w = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", w / w.sum(-1, keepdims=True), v)


@right("attention")
def _(q, k, v, mask):
    out = np.zeros_like(q)
    for b, h, i in np.ndindex(q.shape[:3]):
        keys = np.flatnonzero(mask[b])
        s = np.array([q[b, h, i] @ k[b, h, j] for j in keys]) / math.sqrt(q.shape[-1])
        w = np.exp(s - s.max())
        out[b, h, i] = (w / w.sum()) @ v[b, h, keys]
    return out


@right("attention")
def _(q, k, v, mask):
    s = q @ np.moveaxis(k, 2, 3) * q.shape[-1] ** -0.5
    s = np.where(mask[:, None, None] == 0, -np.inf, s)
    w = ops.softmax(s)[0]
    return {"context": w @ v}


@right("attention_entropy")
def _(w):
    return np.where(w > 0, -w * np.log(np.where(w > 0, w, 1.0)), 0.0).sum(axis=-1)


@right("attention_entropy")
def _(weights):
    return np.apply_along_axis(lambda r: sum(-p * math.log(p) for p in r if p > 0), -1, weights)


# ---- the whole model -----------------------------------------------------------------------------------------------


@right("block")
def _(x, attend, think, n1, n2):
    middle = n1(attend(x) + x)
    return n2(think(middle) + middle)


@right("block")
def _(x, attention, feed_forward, first_norm, second_norm):
    for branch, norm in ((attention, first_norm), (feed_forward, second_norm)):
        x = norm(x + branch(x))
    return x


@right("parameter_count")
def _(v, p, h, n, i):
    layer = 4 * h * h + 2 * h * i + 9 * h + i
    return h * (v + p) + n * layer + 2 * h + v * (h + 1)


@right("parameter_count")
def _(vocab_size, positions, hidden_size, layers, intermediate_size):
    def linear(a, b):
        return a * b + b

    h, i = hidden_size, intermediate_size
    layer = linear(h, 3 * h) + linear(h, h) + linear(h, i) + linear(i, h) + 2 * 2 * h
    return np.int64(vocab_size * h + positions * h + layers * layer + 2 * h + linear(h, vocab_size))


# ---- training ------------------------------------------------------------------------------------------------------


@right("mask_tokens")
def _(ids, chosen, draws, random_ids, mask_id):
    out, labels = ids.copy(), np.full(ids.shape, -100)
    for i in zip(*np.nonzero(chosen), strict=True):
        labels[i] = ids[i]
        if draws[i] < 0.8:
            out[i] = mask_id
        elif draws[i] < 0.9:
            out[i] = random_ids[i]
    return out, labels


@right("mask_tokens")
def _(ids, chosen, draws, random_ids, mask_id):
    kind = np.digitize(draws, [0.8, 0.9])
    new = np.choose(kind, [np.full_like(ids, mask_id), random_ids, ids])
    return {"labels": np.where(chosen, ids, -100), "masked": np.where(chosen, new, ids)}


@right("cross_entropy")
def _(logits, targets):
    keep = targets >= 0
    if not keep.any():
        return 0.0
    z, t = logits[keep], targets[keep]
    return float(np.mean(np.logaddexp.reduce(z, axis=1) - z[np.arange(len(t)), t]))


@right("cross_entropy")
def _(logits, targets):
    total, count = 0.0, 0
    for row, t in zip(logits, targets, strict=True):
        if t != -100:
            top = max(row)
            total += math.log(sum(math.exp(v - top) for v in row)) + top - row[t]
            count += 1
    return total / count if count else 0


@right("numerical_gradient")
def _(f, x, h):
    x = x.copy()
    g = np.empty_like(x)
    for i in np.ndindex(x.shape):
        old = x[i]
        x[i] = old + h
        up = f(x)
        x[i] = old - h
        g[i] = (up - f(x)) / (2 * h)
        x[i] = old
    return g


@right("numerical_gradient")
def _(f, x, h):
    steps = h * np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([f(x + s) - f(x - s) for s in steps]).reshape(x.shape) / 2 / h


@right("adamw_step")
def _(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    m = m + (1 - beta1) * (g - m)
    v = v + (1 - beta2) * (g**2 - v)
    step = lr * np.sqrt(1 - beta2**t) / (1 - beta1**t)
    return p * (1 - lr * weight_decay) - step * m / (np.sqrt(v) + eps * np.sqrt(1 - beta2**t)), m, v


@right("adamw_step")
def _(w, grad, mean, square, t, lr, b1, b2, epsilon, decay):
    mean = b1 * mean + (1 - b1) * grad
    square = b2 * square + (1 - b2) * grad * grad
    mh, vh = mean / (1 - b1**t), square / (1 - b2**t)
    return {"m": mean, "v": square, "p": w - lr * mh / (vh**0.5 + epsilon) - lr * decay * w}


@right("schedule")
def _(progress, warmup):
    return progress / warmup if progress < warmup else (1 - progress) / (1 - warmup)


@right("schedule")
def _(progress, warmup):
    return np.interp(progress, [0, warmup, 1], [0 if warmup else 1, 1, 0])


@right("clip_gradients")
def _(gradients, limit):
    norm = np.linalg.norm(np.concatenate([g.ravel() for g in gradients]))
    return gradients if norm <= limit else [g / norm * limit for g in gradients]


@right("clip_gradients")
def _(gradients, limit):
    total = 0.0
    for g in gradients:
        total += np.vdot(g, g)
    scale = limit / max(limit, total**0.5)
    return tuple(scale * g for g in gradients)


# ---- backward ------------------------------------------------------------------------------------------------------


@right("linear_backward")
def _(dy, x, weight):
    return (
        np.einsum("bto,oi->bti", dy, weight),
        np.einsum("bto,bti->oi", dy, x),
        np.einsum("bto->o", dy),
    )


right("linear_backward")(ops.linear_backward)


@right("relu_backward")
def _(dy, x):
    return np.where(x > 0, dy, 0.0)


right("relu_backward")(ops.relu_backward)


@right("gelu_backward")
def _(dy, x):
    return dy * (normal_cdf(x) + x * np.exp(-(x**2) / 2) * (2 * np.pi) ** -0.5)


right("gelu_backward")(ops.gelu_backward)


@right("embedding_backward")
def _(dy, ids, vocab_size):
    out = np.zeros((vocab_size, dy.shape[-1]))
    for row, drow in zip(ids, dy, strict=True):
        for i, d in zip(row, drow, strict=True):
            out[i] += d
    return out


@right("embedding_backward")
def _(dy, ids, vocab_size):
    onehot = np.eye(vocab_size)[ids.ravel()]
    return onehot.T @ dy.reshape(ids.size, -1)


@right("softmax_backward")
def _(dy, y):
    jacobian = y[..., :, None] * (np.eye(y.shape[-1]) - y[..., None, :])
    return np.einsum("...i,...ij->...j", dy, jacobian)


right("softmax_backward")(ops.softmax_backward)


@right("layer_norm_backward")
def _(dy, x, gamma, eps):
    h = x.shape[-1]
    mu, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    xhat = (x - mu) / np.sqrt(var + eps)
    dxhat = dy * gamma
    dvar = (dxhat * (x - mu)).sum(-1, keepdims=True) * -0.5 * (var + eps) ** -1.5
    dmu = -dxhat.sum(-1, keepdims=True) / np.sqrt(var + eps)
    dx = dxhat / np.sqrt(var + eps) + dvar * 2 * (x - mu) / h + dmu / h
    return dx, np.einsum("bth,bth->h", dy, xhat), np.einsum("bth->h", dy)


right("layer_norm_backward")(ops.layer_norm_backward)


@right("attention_backward")
def _(dcontext, q, k, v, mask):
    d = q.shape[-1]
    s = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(d)
    s = np.where(mask[:, None, None, :] == 1, s, -1e9)
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    dw = np.einsum("bhid,bhjd->bhij", dcontext, v)
    ds = (w * dw - w * (w * dw).sum(-1, keepdims=True)) / math.sqrt(d)
    return {
        "dv": np.einsum("bhij,bhid->bhjd", w, dcontext),
        "dk": np.einsum("bhij,bhid->bhjd", ds, q),
        "dq": np.einsum("bhij,bhjd->bhid", ds, k),
    }


right("attention_backward")(ops.attention_backward)


@right("cross_entropy_backward")
def _(logits, targets):
    d = np.zeros_like(logits)
    rows = np.flatnonzero(targets != -100)
    for i in rows:
        e = np.exp(logits[i] - logits[i].max())
        d[i] = e / e.sum()
        d[i, targets[i]] -= 1
    return d / max(len(rows), 1)


@right("cross_entropy_backward")
def _(logits, targets):
    return ops.cross_entropy_backward(1.0, ops.cross_entropy(logits, targets)[1])


@right("residual_backward")
def _(dy, back):
    dx = back(dy)
    return dx + dy


@right("residual_backward")
def _(dy, branch_backward):
    return sum([dy, branch_backward(dy)])


# ---- evaluation and mastery ----------------------------------------------------------------------------------------


@right("perplexity")
def _(losses, counts):
    return math.exp(np.average(losses, weights=counts))


@right("perplexity")
def _(losses, counts):
    total = sum(a * b for a, b in zip(losses, counts, strict=True))
    return np.e ** (total / sum(counts))


@right("calibration_error")
def _(confidence, correct, bins):
    edges = np.linspace(0, 1, bins + 1)
    group = np.digitize(confidence, edges[1:-1])
    gaps = np.bincount(group, confidence - correct, bins)
    return np.abs(gaps).sum() / len(correct)


@right("calibration_error")
def _(confidence, correct, bins):
    total = 0.0
    for low in range(bins):
        rows = [i for i, c in enumerate(confidence) if low / bins < c <= (low + 1) / bins]
        total += abs(sum(confidence[i] - correct[i] for i in rows))
    return total / len(confidence)


@right("rotary")
def _(x, cos, sin):
    a, b = np.split(x, 2, axis=-1)
    z = (a + 1j * b) * (cos + 1j * sin)
    return np.concatenate([z.real, z.imag], axis=-1)


right("rotary")(ops.rotary)


@right("rotary_backward")
def _(dy, cos, sin):
    return ops.rotary(dy, cos, -sin)[0]


@right("rotary_backward")
def _(dy, cos, sin):
    a, b = np.split(dy, 2, axis=-1)
    z = (a + 1j * b) * (cos - 1j * sin)
    return np.concatenate([z.real, z.imag], axis=-1)


@right("power_law")
def _(sizes, losses):
    x, y = np.log(sizes), np.log(losses)
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    return -slope, math.exp(y.mean() - slope * x.mean())


@right("power_law")
def _(sizes, losses):
    x, y = np.log10(sizes), np.log10(losses)
    slope, intercept = np.linalg.lstsq(np.stack([x, np.ones_like(x)], 1), y, rcond=None)[0]
    return {"factor": 10.0**intercept, "exponent": -slope}


@right("online_softmax")
def _(scores, values, tile):
    top, total, out = scores[0], 0.0, 0.0
    for i in range(0, len(scores), tile):
        part = scores[i : i + tile]
        if part.max() > top:
            shrink = np.exp(top - part.max())
            total, out, top = total * shrink, out * shrink, part.max()
        weights = np.exp(part - top)
        total, out = total + weights.sum(), out + weights @ values[i : i + tile]
    return out / total


@right("online_softmax")
def _(scores, values, tile):
    log_total, mean = -np.inf, np.zeros(values.shape[1])
    for i in range(0, len(scores), tile):
        part = scores[i : i + tile]
        new = np.logaddexp(log_total, np.logaddexp.reduce(part))
        mean = mean * np.exp(log_total - new) + np.exp(part - new) @ values[i : i + tile]
        log_total = new
    return mean
