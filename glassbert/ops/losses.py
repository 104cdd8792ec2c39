"""Losses, and the selection of the rows that are scored. Each loss is a mean over its targets.

    cross_entropy:         mean over rows of  log Σ_j exp(z_j) - z_target
    binary_cross_entropy:  mean of            max(z, 0) - z y + log(1 + exp(-|z|))
    mean_squared_error:    mean of            (z - y)²

A target of -100 is ignored, in the loss and in the gradient. Every mean divides by the number of targets that are
not ignored, also with class weights: so the loss of a batch does not depend on how the batch is cut into parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.ops.registry import operation

IGNORED = -100


def in_full(x: Array) -> Array:
    """float32 for 16-bit arrays: losses and softmax add up many numbers."""
    return x if is_numpy(x) else x.astype(namespace(x).float32)


def as_dtype(value: Array | float, like: Array) -> Array | float:
    """A number or 0-d array in the precision of another array; a Python number already adapts to it."""
    return value.astype(like.dtype) if hasattr(value, "astype") else value


@operation
def take_rows(x: Array, rows: Array) -> tuple[Array, Any]:
    """The chosen rows of x, seen as [N, H]: a masked language model scores only the masked positions.

    Derivation: docs/derivations/02-linear.md (2.7)
    """
    return x.reshape(-1, x.shape[-1])[rows], (rows, x.shape)  # [M, H]


@operation
def take_rows_backward(dy: Array, state: Any) -> Array:
    """A row that was not chosen has no influence: its gradient is zero. A row chosen twice collects both gradients.

    Derivation: docs/derivations/02-linear.md (2.8)
    """
    rows, shape = state
    xp = namespace(dy)
    dx = xp.zeros((math.prod(shape[:-1]), shape[-1]), dtype=dy.dtype)
    if not is_numpy(dy):
        dx = dx.at[rows].add(dy)
    elif len(np.unique(rows)) == len(rows):
        dx[rows] = dy
    else:
        np.add.at(dx, rows, dy)
    return dx.reshape(shape)


@operation
def cross_entropy(
    logits: Array,
    targets: Array,
    weights: Sequence[float] | None = None,
    smoothing: float = 0.0,
) -> tuple[Array, Any]:
    """logits [N, V], targets [N]: the mean of -log P(target) over the rows that have a target.

    `weights` [V] make some classes count more, and `smoothing` spreads a share ε of every target over all classes. Both
    turn the one target of a row into shares aⱼ of all classes, and the loss into a sum:

        Σ_j a_j · (log Σ_k exp(z_k) - z_j)          a_j = w_j · ((1 - ε) · [j = target] + ε / V)

    With no such row the loss is 0, and so is every gradient.

    Derivation: docs/derivations/09-losses.md (9.1), (9.3)
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
        each = (xp.log(total) - xp.take_along_axis(shifted, picked[:, None], -1))[:, 0]
    else:
        columns = xp.arange(logits.shape[-1])
        aim = xp.where(columns == picked[:, None], 1.0 - smoothing, 0.0) + smoothing / logits.shape[-1]  # [N, V]
        aim = (aim if weights is None else aim * xp.array(weights)).astype(logits.dtype)
        each = (aim * (xp.log(total) - shifted)).sum(-1)
    loss = (xp.where(valid, each, 0).sum() / count).astype(logits.dtype)
    exponentials /= total
    return loss, (exponentials, aim, valid, count)


@operation
def cross_entropy_backward(dloss: Array | float, state: Any) -> Array:
    """The gradient is the predicted distribution less the true one:

    dz = (softmax(z) - onehot(target)) / count

    With shares a of several classes:  dz = (softmax(z) · Σ_j a_j - a) / count.

    Derivation: docs/derivations/09-losses.md (9.2), (9.4)
    """
    probabilities, aim, valid, count = state
    xp = namespace(probabilities)
    weight = xp.where(valid, dloss / count, 0.0).astype(probabilities.dtype)  # [N]
    if aim.ndim == 2:
        return (probabilities * aim.sum(-1, keepdims=True) - aim) * weight[:, None]
    columns = xp.arange(probabilities.shape[-1])
    return (probabilities - (columns == aim[:, None])) * weight[:, None]


def softplus(z: Array) -> Array:
    """log(1 + exp(z)), without overflow. Derivation: docs/derivations/09-losses.md (9.6)."""
    xp = namespace(z)
    return xp.maximum(z, 0) + xp.log1p(xp.exp(-xp.abs(z)))


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z)) by tanh, which cannot overflow. Derivation: docs/derivations/09-losses.md (9.5)."""
    return 0.5 * (1.0 + namespace(z).tanh(0.5 * z))


@operation
def binary_cross_entropy(
    logits: Array, targets: Array, positive_weights: Sequence[float] | None = None
) -> tuple[Array, Any]:
    """One yes-or-no label per entry (one column: binary; many: multi-label); targets in [0, 1].

    `positive_weights` [columns] weigh positive targets by w, for labels that are rarely positive:

        w y · softplus(-z) + (1 - y) · softplus(z)  =  (1 - y) z + (1 + (w - 1) y) · softplus(-z)

    Derivation: docs/derivations/09-losses.md (9.7), (9.9)
    """
    xp = namespace(logits)
    logits = in_full(logits)
    valid = targets != IGNORED
    positive = xp.where(valid, targets, 0).astype(logits.dtype)
    count = xp.maximum(valid.sum(), 1)
    if positive_weights is None:
        factor = None
        each = xp.maximum(logits, 0) - logits * positive + xp.log1p(xp.exp(-xp.abs(logits)))
    else:
        factor = (1.0 + (xp.array(positive_weights) - 1.0) * positive).astype(logits.dtype)
        each = (1.0 - positive) * logits + factor * softplus(-logits)
    loss = (xp.where(valid, each, 0).sum() / count).astype(logits.dtype)
    return loss, (logits, positive, factor, valid, count)


@operation
def binary_cross_entropy_backward(dloss: Array | float, state: Any) -> Array:
    """dz = (σ(z) - y) / count; with weights, softplus(-z)' = σ(z) - 1 gives ((1 - y) - (1 + (w - 1) y)(1 - σ(z))).

    Derivation: docs/derivations/09-losses.md (9.8), (9.10)
    """
    logits, positive, factor, valid, count = state
    slope = sigmoid(logits) - positive if factor is None else 1.0 - positive - factor * (1.0 - sigmoid(logits))
    return namespace(logits).where(valid, slope, 0) * as_dtype(dloss / count, logits)


@operation
def mean_squared_error(outputs: Array, targets: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/09-losses.md (9.11)."""
    xp = namespace(outputs)
    outputs = in_full(outputs)
    valid = targets != IGNORED
    count = xp.maximum(valid.sum(), 1)
    difference = xp.where(valid, outputs - targets.astype(outputs.dtype), 0)
    return ((difference * difference).sum() / count).astype(outputs.dtype), (difference, count)


@operation
def mean_squared_error_backward(dloss: Array | float, state: Any) -> Array:
    """(d²)' = 2 d. Derivation: docs/derivations/09-losses.md (9.12)."""
    difference, count = state
    return 2.0 * difference * as_dtype(dloss / count, difference)
