"""Focal loss: examples that are already classified well get a small weight.

    classes:       L = mean of  -w (1 - p)^γ log p              p: the probability of the target class, w its weight
    binary labels: L = mean of  w y f(z) + (1 - y) f(-z)        f(z) = (1 - σ(z))^γ · softplus(-z)

γ = 0 is cross-entropy. A larger γ also makes the loss and its gradients smaller in total.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.losses import IGNORED, as_dtype, in_full, sigmoid, softplus
from glassbert.ops.registry import operation

TINY = 1e-30  # replaces 1 - p if p rounds to 1


@operation
def focal_loss(
    logits: Array, targets: Array, gamma: float, weights: Sequence[float] | None = None
) -> tuple[Array, Any]:
    """logits [N, V], targets [N]; `weights` [V] by class. Derivation: docs/derivations/09-losses.md (9.15)."""
    xp = namespace(logits)
    logits = in_full(logits)
    valid = targets != IGNORED
    picked = xp.where(valid, targets, 0)
    count = xp.maximum(valid.sum(), 1)
    shifted = logits - logits.max(-1, keepdims=True)  # [N, V]
    log_total = xp.log(xp.exp(shifted).sum(-1, keepdims=True))  # [N, 1]
    log_p = (xp.take_along_axis(shifted, picked[:, None], -1) - log_total)[:, 0]  # [N]
    rest = xp.maximum(-xp.expm1(log_p), TINY)  # 1 - p, without cancelling near p = 1
    weight = xp.where(valid, 1.0, 0.0).astype(logits.dtype)
    if weights is not None:
        weight = weight * xp.array(weights).astype(logits.dtype)[picked]
    loss = ((weight * rest**gamma * -log_p).sum() / count).astype(logits.dtype)
    columns = xp.arange(logits.shape[-1])
    belief = xp.exp(shifted - log_total) - (columns == picked[:, None])  # softmax(z) - onehot
    return loss, (belief, log_p, rest, weight, count, gamma)


@operation
def focal_loss_backward(dloss: Array, state: Any) -> Array:
    """L depends on z through log p alone, and d log p / dz = onehot - softmax(z):

        dz = w (1 - p)^γ · (1 + γ p (-log p) / (1 - p)) · (softmax(z) - onehot) / count

    The factor in parentheses comes from the derivative of (1 - p)^γ.

    Derivation: docs/derivations/09-losses.md (9.16)
    """
    belief, log_p, rest, weight, count, gamma = state
    xp = namespace(belief)
    slope = weight * rest**gamma * (1.0 + gamma * xp.exp(log_p) * -log_p / rest)
    return belief * (slope * as_dtype(dloss / count, belief))[:, None]


@operation
def binary_focal_loss(
    logits: Array, targets: Array, gamma: float, positive_weights: Sequence[float] | None = None
) -> tuple[Array, Any]:
    """One binary label per entry; `positive_weights` [columns] weight positive targets.

    Derivation: docs/derivations/09-losses.md (9.17)
    """
    xp = namespace(logits)
    logits = in_full(logits)
    valid = targets != IGNORED
    answers = xp.where(valid, targets, 0).astype(logits.dtype)
    count = xp.maximum(valid.sum(), 1)
    yes = answers if positive_weights is None else answers * xp.array(positive_weights).astype(logits.dtype)
    no = 1.0 - answers
    # 1 - σ(z) = exp(-softplus(z)): a power of it is a factor in the exponent
    each = yes * xp.exp(-gamma * softplus(logits)) * softplus(-logits)
    each = each + no * xp.exp(-gamma * softplus(-logits)) * softplus(logits)
    loss = (xp.where(valid, each, 0).sum() / count).astype(logits.dtype)
    return loss, (logits, yes, no, valid, count, gamma)


@operation
def binary_focal_loss_backward(dloss: Array, state: Any) -> Array:
    """σ' = σ (1 - σ) and softplus' = σ, and f(-z) changes the sign:

    f'(z) = -(1 - σ)^γ · (γ σ · softplus(-z) + 1 - σ)

    Derivation: docs/derivations/09-losses.md (9.18)
    """
    logits, yes, no, valid, count, gamma = state
    xp = namespace(logits)
    p = sigmoid(logits)
    of_yes = -xp.exp(-gamma * softplus(logits)) * (gamma * p * softplus(-logits) + 1.0 - p)
    of_no = xp.exp(-gamma * softplus(-logits)) * (gamma * (1.0 - p) * softplus(logits) + p)
    return xp.where(valid, yes * of_yes + no * of_no, 0) * as_dtype(dloss / count, logits)
