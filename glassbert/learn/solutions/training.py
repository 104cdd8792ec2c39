"""Solutions of the phases "Training", "Evaluation" and "Mastery"; the backwards are in `gradients`."""

import math

import numpy as np

IGNORED = -100


def mask_tokens(ids, chosen, draws, random_ids, mask_id):
    """Of the chosen tokens 80 % become [MASK], 10 % a random token, 10 % stay. Labels hold the original ids."""
    masked = np.where(chosen & (draws < 0.8), mask_id, ids)
    masked = np.where(chosen & (draws >= 0.8) & (draws < 0.9), random_ids, masked)
    labels = np.where(chosen, ids, IGNORED)
    return masked, labels


def cross_entropy(logits, targets):
    """The mean of log Σ_j exp(z_j) - z_target over the rows that have a target."""
    valid = targets != IGNORED  # [N]
    count = max(valid.sum(), 1)
    z = logits - logits.max(-1, keepdims=True)  # [N, V]
    log_total = np.log(np.exp(z).sum(-1))  # [N]
    picked = z[np.arange(len(z)), np.where(valid, targets, 0)]
    losses = np.where(valid, log_total - picked, 0.0)
    return losses.sum() / count


def numerical_gradient(f, x, h):
    """(f(x + h e_i) - f(x - h e_i)) / 2h for every entry: the error falls with h², not with h."""
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        gradient[i] = (f(x + step) - f(x - step)) / (2 * h)
    return gradient


def adamw_step(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    """p - lr · (m̂ / (√v̂ + ε) + λ p). The decay acts on the weight directly, not through m and v."""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    m_hat = m / (1 - beta1**t)
    v_hat = v / (1 - beta2**t)
    update = m_hat / (np.sqrt(v_hat) + eps)
    p = p - lr * (update + weight_decay * p)
    return p, m, v


def schedule(progress, warmup):
    """A rise from 0 to 1 over the warm-up, then a straight fall to 0 at progress 1."""
    if progress < warmup:
        return progress / warmup
    return 1 - (progress - warmup) / (1 - warmup)


def clip_gradients(gradients, limit):
    """One factor for all arrays, so that the direction stays: limit / norm, at most 1."""
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    factor = min(1.0, limit / norm) if norm > 0 else 1.0
    return [g * factor for g in gradients]


def perplexity(losses, counts):
    """exp of the mean loss of a token. A batch with more targets counts more."""
    losses, counts = np.asarray(losses), np.asarray(counts)
    mean = (losses * counts).sum() / counts.sum()
    return np.exp(mean)


def calibration_error(confidence, correct, bins):
    """Σ_bins (share of the predictions) · |mean confidence - share right|."""
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    error = 0.0
    for b in range(bins):
        inside = index == b
        if inside.any():
            gap = abs(confidence[inside].mean() - correct[inside].mean())
            error += inside.mean() * gap
    return error


def rotary(x, cos, sin):
    """Features i and i + d/2 are a point in a plane, rotated by the angle of its position."""
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half], x[..., half:]
    return np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)


def power_law(sizes, losses):
    """loss = factor · size^(-exponent) is a straight line in the logarithms."""
    slope, intercept = np.polyfit(np.log(sizes), np.log(losses), 1)
    return -slope, np.exp(intercept)


def online_softmax(scores, values, tile):
    """softmax(scores) @ values, a tile of keys at a time: sums are rescaled when the maximum grows."""
    top, total, out = -np.inf, 0.0, np.zeros(values.shape[1])
    for start in range(0, len(scores), tile):
        s, v = scores[start : start + tile], values[start : start + tile]
        new_top = max(top, s.max())
        rescale = np.exp(top - new_top)
        e = np.exp(s - new_top)
        total = total * rescale + e.sum()
        out = out * rescale + e @ v
        top = new_top
    return out / total
