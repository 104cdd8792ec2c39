"""The losses. Each returns the mean over what counts, and keeps what its gradient needs.

    cross_entropy:         mean over rows of  log Σ_j exp(z_j) - z_target
    binary_cross_entropy:  mean of            max(z, 0) - z y + log(1 + exp(-|z|))
    mean_squared_error:    mean of            (z - y)²

A target of -100 is ignored, in the loss and in the gradient. Every mean divides by the number of targets that count,
also where classes have weights: so the loss of a batch is the same however the batch is cut into parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from glassbert.engines.namespace import Array, is_numpy, namespace
from glassbert.ops.registry import op

IGNORED = -100


def in_full(x: Array) -> Array:
    """Losses and softmax add many numbers up, and need more digits for it than 16 bits have."""
    return x if is_numpy(x) else x.astype(namespace(x).float32)


@op
def cross_entropy(
    logits: Array,
    targets: Array,
    overwrite: bool = False,
    weights: Sequence[float] | None = None,
    smoothing: float = 0.0,
) -> tuple[Array, tuple[Array, ...]]:
    """logits [N, V], targets [N]: the mean surprise at the right answer, over the rows that have one.

    `weights` [V] make some classes count more, and `smoothing` takes a share ε of every answer and spreads it over all
    classes. Both turn the one right answer of a row into shares aⱼ of all answers, and the surprise into a sum:

        Σ_j a_j · (log Σ_k exp(z_k) - z_j)          a_j = w_j · ((1 - ε) · [j = target] + ε / V)

    With no such row the loss is 0, and so is every gradient. With `overwrite` the caller gives the logits up, and a
    kernel may use their memory.
    """
    xp = namespace(logits)
    logits = in_full(logits)
    valid = targets != IGNORED  # [N]
    picked = xp.where(valid, targets, 0)
    count = xp.maximum(valid.sum(), 1)
    shifted = logits - logits.max(-1, keepdims=True)  # [N, V]
    exponentials = xp.exp(shifted)
    total = exponentials.sum(-1, keepdims=True)  # [N, 1]
    if weights is None and not smoothing:
        aim = picked  # [N]
        surprise = (xp.log(total) - xp.take_along_axis(shifted, picked[:, None], -1))[:, 0]
    else:
        columns = xp.arange(logits.shape[-1])
        aim = xp.where(columns == picked[:, None], 1.0 - smoothing, 0.0) + smoothing / logits.shape[-1]  # [N, V]
        aim = (aim if weights is None else aim * xp.array(weights)).astype(logits.dtype)
        surprise = (aim * (xp.log(total) - shifted)).sum(-1)
    loss = (xp.where(valid, surprise, 0).sum() / count).astype(logits.dtype)
    exponentials /= total
    return loss, (exponentials, aim, valid, count)


@op
def cross_entropy_backward(dloss: Array, cache: tuple[Array, ...]) -> Array:
    """The gradient is what the model believes less what is true:

    dz = (softmax(z) - onehot(target)) / count

    With shares a of several answers each of them pulls:  dz = (softmax(z) · Σ_j a_j - a) / count.
    """
    probabilities, aim, valid, count = cache
    xp = namespace(probabilities)
    weight = xp.where(valid, 1.0, 0.0).astype(probabilities.dtype) * (dloss / count).astype(probabilities.dtype)
    if aim.ndim == 2:
        return (probabilities * aim.sum(-1, keepdims=True) - aim) * weight[:, None]
    columns = xp.arange(probabilities.shape[-1])
    return (probabilities - (columns == aim[:, None])) * weight[:, None]


def softplus(z: Array) -> Array:
    """log(1 + exp(z)), without overflow."""
    xp = namespace(z)
    return xp.maximum(z, 0) + xp.log1p(xp.exp(-xp.abs(z)))


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z)) by tanh, which cannot overflow."""
    return 0.5 * (1.0 + namespace(z).tanh(0.5 * z))


@op
def binary_cross_entropy(
    logits: Array, targets: Array, positive_weights: Sequence[float] | None = None
) -> tuple[Array, tuple[Array, Array, Array | None, Array, Array]]:
    """One yes-or-no question per entry (one column: binary; many: multi-label); targets in [0, 1].

    `positive_weights` [columns] make a yes count w times, for questions to which yes is a rare answer:

        w y · softplus(-z) + (1 - y) · softplus(z)  =  (1 - y) z + (1 + (w - 1) y) · softplus(-z)
    """
    xp = namespace(logits)
    logits = in_full(logits)
    valid = targets != IGNORED
    answers = xp.where(valid, targets, 0).astype(logits.dtype)
    count = xp.maximum(valid.sum(), 1)
    if positive_weights is None:
        factor = None
        each = xp.maximum(logits, 0) - logits * answers + xp.log1p(xp.exp(-xp.abs(logits)))
    else:
        factor = (1.0 + (xp.array(positive_weights) - 1.0) * answers).astype(logits.dtype)
        each = (1.0 - answers) * logits + factor * softplus(-logits)
    loss = (xp.where(valid, each, 0).sum() / count).astype(logits.dtype)
    return loss, (logits, answers, factor, valid, count)


@op
def binary_cross_entropy_backward(dloss: Array, cache: tuple[Array, Array, Array | None, Array, Array]) -> Array:
    """dz = (σ(z) - y) / count; with weights, softplus(-z)' = σ(z) - 1 gives ((1 - y) - (1 + (w - 1) y)(1 - σ(z)))."""
    logits, answers, factor, valid, count = cache
    slope = sigmoid(logits) - answers if factor is None else 1.0 - answers - factor * (1.0 - sigmoid(logits))
    return namespace(logits).where(valid, slope, 0) * (dloss / count).astype(logits.dtype)


@op
def mean_squared_error(outputs: Array, targets: Array) -> tuple[Array, tuple[Array, Array]]:
    xp = namespace(outputs)
    outputs = in_full(outputs)
    valid = targets != IGNORED
    count = xp.maximum(valid.sum(), 1)
    difference = xp.where(valid, outputs - targets.astype(outputs.dtype), 0)
    return ((difference * difference).sum() / count).astype(outputs.dtype), (difference, count)


@op
def mean_squared_error_backward(dloss: Array, cache: tuple[Array, Array]) -> Array:
    """(d²)' = 2 d."""
    difference, count = cache
    return 2.0 * difference * (dloss / count).astype(difference.dtype)
