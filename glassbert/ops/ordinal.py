"""The loss for ordered labels (ranks), such as stars or grades: CORN, after Shi, Cao and Raschka.

K ranks are K - 1 binary steps; each is conditional on the step before:

    σ(z_k) = P(rank > k | rank ≥ k)                                  k = 0 ... K - 2
    P(rank > k) = σ(z_0) · σ(z_1) · ... · σ(z_k)                     decreasing in k for any scores

The probability of a rank is a product, so its negative logarithm is a sum of logistic losses over the steps up to and
including the rank:

    -log P(rank = y) = Σ_{k ≤ y} softplus(z_k) - [k < y] · z_k

A cumulative link model with one score and K - 1 thresholds would have fewer parameters, but its thresholds must be kept
in order, and all steps share one direction. Here the order holds by construction, every step has its own direction, and
the loss is a mean of -log P, comparable with cross-entropy.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.losses import IGNORED, as_dtype, in_full, sigmoid, softplus
from glassbert.ops.registry import operation


@operation
def ordinal_loss(logits: Array, targets: Array) -> tuple[Array, Any]:
    """logits [N, K - 1], targets [N] from 0 to K - 1: the mean of -log P(rank = target).

    Derivation: docs/derivations/09-losses.md (9.19)
    """
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
    """dz = (σ(z) - passed) / count for the steps up to and including the rank; later steps get no gradient.

    Derivation: docs/derivations/09-losses.md (9.20)
    """
    logits, asked, passed, count = state
    slope = namespace(logits).where(asked, sigmoid(logits) - passed, 0)
    return slope * as_dtype(dloss / count, logits)
