"""Losses over pairs of vectors: near where the meanings are near.

    unit_length:       x̂ = x / √(x · x + ε)
    cosine_loss:       mean of  (â · b̂ - y)²                          y: how similar the pair should be, in [-1, 1]
    contrastive_loss:  mean of  -log softmax_j(â_i · b̂_j / τ) at j = i     (InfoNCE)

In the contrastive loss every other pair of the batch provides a wrong partner, so larger batches ask harder questions,
and a batch that is cut into parts asks easier ones. A small τ listens to the nearest wrong partners most.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.attention import FORBIDDEN
from glassbert.ops.losses import IGNORED, as_dtype, cross_entropy, cross_entropy_backward, in_full
from glassbert.ops.registry import operation

EPSILON = 1e-12  # a vector of zeros, as from a row of padding, stays one


@operation
def unit_length(x: Array) -> tuple[Array, Any]:
    x = in_full(x)
    shrink = ((x * x).sum(-1, keepdims=True) + EPSILON) ** -0.5  # [N, 1]
    unit = x * shrink
    return unit, (unit, shrink)


@operation
def unit_length_backward(dy: Array, state: Any) -> Array:
    """A step along x̂ itself changes only the length, which is gone: that part of dy is taken out.

    dx = (dy - x̂ · (x̂ · dy)) / |x|
    """
    unit, shrink = state
    return (dy - unit * (unit * dy).sum(-1, keepdims=True)) * shrink


@operation
def cosine_loss(first: Array, second: Array, targets: Array) -> tuple[Array, Any]:
    """first and second [N, H], targets [N]: the squared distance of the cosine from what it should be."""
    (a, a_state), (b, b_state) = unit_length(first), unit_length(second)
    xp = namespace(a)
    valid = targets != IGNORED
    count = xp.maximum(valid.sum(), 1)
    difference = xp.where(valid, (a * b).sum(-1) - targets.astype(a.dtype), 0)  # [N]
    return ((difference * difference).sum() / count).astype(a.dtype), (difference, count, a_state, b_state)


@operation
def cosine_loss_backward(dloss: Array, state: Any) -> tuple[Array, Array]:
    """(d²)' = 2 d, and in the product of two unit vectors each is the other's slope."""
    difference, count, a_state, b_state = state
    slope = (2.0 * difference * as_dtype(dloss / count, difference))[:, None]
    return unit_length_backward(slope * b_state[0], a_state), unit_length_backward(slope * a_state[0], b_state)


@operation
def contrastive_loss(first: Array, second: Array, targets: Array, temperature: float) -> tuple[Array, Any]:
    """Which of the batch's second vectors belongs to this first one? A pair whose target is -100 takes no part."""
    (a, a_state), (b, b_state) = unit_length(first), unit_length(second)
    xp = namespace(a)
    valid = targets != IGNORED  # [N]
    scores = a @ b.T / temperature  # [N, N]
    scores = xp.where(valid[None], scores, xp.array(FORBIDDEN, dtype=scores.dtype))
    partner = xp.where(valid, xp.arange(len(targets)), IGNORED)
    loss, choice = cross_entropy(scores, partner)
    return loss, (choice, a_state, b_state, temperature)


@operation
def contrastive_loss_backward(dloss: Array, state: Any) -> tuple[Array, Array]:
    """Cross-entropy over a product: dS from its gradient, then dâ = dS b̂ / τ and db̂ = dSᵀ â / τ.

    A second vector is pulled by its partner and pushed by all the others; forgetting the others leaves half of db̂.
    """
    choice, a_state, b_state, temperature = state
    dscores = cross_entropy_backward(dloss, choice) / temperature
    da, db = dscores @ b_state[0], dscores.T @ a_state[0]
    return unit_length_backward(da, a_state), unit_length_backward(db, b_state)
