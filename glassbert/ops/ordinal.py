"""Ranks: answers that have an order, as stars or grades have (CORN, after Shi, Cao and Raschka).

K ranks are K - 1 questions, each asked only of those who passed the one before:

    σ(z_k) = P(rank > k | rank ≥ k)                                  k = 0 ... K - 2
    P(rank > k) = σ(z_0) · σ(z_1) · ... · σ(z_k)                     never grows with k, whatever the scores are

The probability of a rank is a product of answers, so the surprise at it is a sum of logistic losses: over the questions
up to and including the one where it stopped,

    -log P(rank = y) = Σ_{k ≤ y} softplus(z_k) - [k < y] · z_k

A cumulative link with one score and K - 1 thresholds would be smaller, but it must keep its thresholds in order and has
one direction for all steps. Here the order holds by itself, and every step has its own direction; the loss stays a mean
surprise, comparable with cross-entropy's, and one score too many ranks away costs several questions instead of one.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.losses import IGNORED, as_dtype, in_full, sigmoid, softplus
from glassbert.ops.registry import operation


@operation
def ordinal_loss(logits: Array, targets: Array) -> tuple[Array, Any]:
    """logits [N, K - 1], targets [N] from 0 to K - 1: the mean surprise at the right rank."""
    xp = namespace(logits)
    logits = in_full(logits)
    count = xp.maximum((targets != IGNORED).sum(), 1)
    step = xp.arange(logits.shape[-1])  # [K - 1]
    asked = step <= targets[:, None]  # [N, K - 1]; an ignored target is below every step
    passed = (step < targets[:, None]).astype(logits.dtype)
    each = xp.where(asked, softplus(logits) - passed * logits, 0)
    return (each.sum() / count).astype(logits.dtype), (logits, asked, passed, count)


@operation
def ordinal_loss_backward(dloss: Array, state: Any) -> Array:
    """dz = (σ(z) - passed) / count for the steps up to and including the rank; later steps get no gradient."""
    logits, asked, passed, count = state
    slope = namespace(logits).where(asked, sigmoid(logits) - passed, 0)
    return slope * as_dtype(dloss / count, logits)
