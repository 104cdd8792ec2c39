"""The losses. Each returns the mean over what counts, and keeps what its gradient needs.

    cross_entropy:         mean over rows of  log Σ_j exp(z_j) - z_target
    binary_cross_entropy:  mean of            max(z, 0) - z y + log(1 + exp(-|z|))
    mean_squared_error:    mean of            (z - y)²

A target of -100 is ignored, in the loss and in the gradient.
"""

from __future__ import annotations

from glassbert.engines.namespace import Array, is_numpy, namespace
from glassbert.ops.registry import op

IGNORED = -100


@op
def cross_entropy(logits: Array, targets: Array, overwrite: bool = False) -> tuple[Array, tuple[Array, ...]]:
    """logits [N, V], targets [N]: the mean surprise at the right answer, over the rows that have one.

    With no such row the loss is 0, and so is every gradient. With `overwrite` the caller gives the logits up, and a
    kernel may use their memory.
    """
    xp = namespace(logits)
    if not is_numpy(logits):
        logits = logits.astype(xp.float32)  # sums of thousands of exponentials need the digits
    valid = targets != IGNORED  # [N]
    picked = xp.where(valid, targets, 0)
    count = xp.maximum(valid.sum(), 1)
    shifted = logits - logits.max(-1, keepdims=True)  # [N, V]
    exponentials = xp.exp(shifted)
    total = exponentials.sum(-1, keepdims=True)  # [N, 1]
    surprise = xp.log(total) - xp.take_along_axis(shifted, picked[:, None], -1)  # [N, 1]
    loss = (xp.where(valid, surprise[:, 0], 0).sum() / count).astype(logits.dtype)
    exponentials /= total
    return loss, (exponentials, picked, valid, count)


@op
def cross_entropy_backward(dloss: Array, cache: tuple[Array, ...]) -> Array:
    """The gradient is what the model believes less what is true:

    dz = (softmax(z) - onehot(target)) / count
    """
    probabilities, picked, valid, count = cache
    xp = namespace(probabilities)
    columns = xp.arange(probabilities.shape[-1])
    weight = xp.where(valid, 1.0, 0.0).astype(probabilities.dtype) * (dloss / count).astype(probabilities.dtype)
    return (probabilities - (columns == picked[:, None])) * weight[:, None]


@op
def binary_cross_entropy(logits: Array, targets: Array) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """One yes-or-no question per entry (one column: binary; many: multi-label); targets in [0, 1]."""
    xp = namespace(logits)
    valid = targets != IGNORED
    answers = xp.where(valid, targets, 0).astype(logits.dtype)
    count = xp.maximum(valid.sum(), 1)
    each = xp.maximum(logits, 0) - logits * answers + xp.log1p(xp.exp(-xp.abs(logits)))
    loss = (xp.where(valid, each, 0).sum() / count).astype(logits.dtype)
    return loss, (logits, answers, valid, count)


@op
def binary_cross_entropy_backward(dloss: Array, cache: tuple[Array, Array, Array, Array]) -> Array:
    """dz = (sigmoid(z) - y) / count, with the sigmoid by tanh, which cannot overflow."""
    logits, answers, valid, count = cache
    xp = namespace(logits)
    sigmoid = 0.5 * (1.0 + xp.tanh(0.5 * logits))
    return xp.where(valid, sigmoid - answers, 0) * (dloss / count).astype(logits.dtype)


@op
def mean_squared_error(outputs: Array, targets: Array) -> tuple[Array, tuple[Array, Array]]:
    xp = namespace(outputs)
    valid = targets != IGNORED
    count = xp.maximum(valid.sum(), 1)
    difference = xp.where(valid, outputs - targets.astype(outputs.dtype), 0)
    return ((difference * difference).sum() / count).astype(outputs.dtype), (difference, count)


@op
def mean_squared_error_backward(dloss: Array, cache: tuple[Array, Array]) -> Array:
    """(d²)' = 2 d."""
    difference, count = cache
    return 2.0 * difference * (dloss / count).astype(difference.dtype)
