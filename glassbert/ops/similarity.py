"""Losses over pairs of embeddings.

    unit_length:       x̂ = x / √(x · x + ε)
    cosine_loss:       mean of  (â · b̂ - y)²                          y: the target similarity in [-1, 1]
    contrastive_loss:  mean of  -log softmax_j(â_i · b̂_j / τ) at j = i     (InfoNCE)
    ranking_loss:      log(1 + Σ exp((c_j - c_i) / τ)) over i, j with y_i > y_j,  c = â · b̂     (CoSENT)

In the contrastive loss the other pairs of the batch are the negatives: the task is harder in a larger batch, and easier
if a batch is cut into parts. With a small τ the most similar negatives dominate. The ranking loss compares the pairs of
a batch with each other, so the same holds for it.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.attention import FORBIDDEN
from glassbert.ops.losses import IGNORED, as_dtype, cross_entropy, cross_entropy_backward, in_full
from glassbert.ops.registry import operation

EPSILON = 1e-12  # keeps a vector of zeros (a row of padding) zero


@operation
def unit_length(x: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/10-similarity.md (10.1)."""
    x = in_full(x)
    shrink = ((x * x).sum(-1, keepdims=True) + EPSILON) ** -0.5  # [N, 1]
    unit = x * shrink
    return unit, (unit, shrink)


@operation
def unit_length_backward(dy: Array, state: Any) -> Array:
    """The length of x has no effect, so the component of dy along x̂ is removed:

    dx = (dy - x̂ · (x̂ · dy)) / |x|

    Derivation: docs/derivations/10-similarity.md (10.2)
    """
    unit, shrink = state
    return (dy - unit * (unit * dy).sum(-1, keepdims=True)) * shrink


@operation
def cosine_loss(first: Array, second: Array, targets: Array) -> tuple[Array, Any]:
    """first and second [N, H], targets [N]: the mean squared difference of cosine and target.

    Derivation: docs/derivations/10-similarity.md (10.3)
    """
    (a, a_state), (b, b_state) = unit_length(first), unit_length(second)
    xp = namespace(a)
    valid = targets != IGNORED
    count = xp.maximum(valid.sum(), 1)
    difference = xp.where(valid, (a * b).sum(-1) - targets.astype(a.dtype), 0)  # [N]
    return ((difference * difference).sum() / count).astype(a.dtype), (difference, count, a_state, b_state)


@operation
def cosine_loss_backward(dloss: Array, state: Any) -> tuple[Array, Array]:
    """(d²)' = 2 d, and the gradient of â · b̂ is b̂ at â and â at b̂.

    Derivation: docs/derivations/10-similarity.md (10.4)
    """
    difference, count, a_state, b_state = state
    slope = (2.0 * difference * as_dtype(dloss / count, difference))[:, None]
    return unit_length_backward(slope * b_state[0], a_state), unit_length_backward(slope * a_state[0], b_state)


@operation
def contrastive_loss(first: Array, second: Array, targets: Array, temperature: float) -> tuple[Array, Any]:
    """Cross-entropy of choosing the matching second vector for every first one. Pairs with target -100 are ignored.

    Derivation: docs/derivations/10-similarity.md (10.5)
    """
    (a, a_state), (b, b_state) = unit_length(first), unit_length(second)
    xp = namespace(a)
    valid = targets != IGNORED  # [N]
    scores = a @ b.T / temperature  # [N, N]
    scores = xp.where(valid[None], scores, xp.array(FORBIDDEN, dtype=scores.dtype))
    partner = xp.where(valid, xp.arange(targets.shape[0]), IGNORED)
    loss, choice = cross_entropy(scores, partner)
    return loss, (choice, a_state, b_state, temperature)


@operation
def contrastive_loss_backward(dloss: Array, state: Any) -> tuple[Array, Array]:
    """Cross-entropy over a product: dS from its gradient, then dâ = dS b̂ / τ and db̂ = dSᵀ â / τ.

    A second vector gets a gradient from all rows of S, not only from that of its own pair.

    Derivation: docs/derivations/10-similarity.md (10.6)
    """
    choice, a_state, b_state, temperature = state
    dscores = cross_entropy_backward(dloss, choice) / temperature
    da, db = dscores @ b_state[0], dscores.T @ a_state[0]
    return unit_length_backward(da, a_state), unit_length_backward(db, b_state)


@operation
def ranking_loss(first: Array, second: Array, targets: Array, temperature: float) -> tuple[Array, Any]:
    """Cosines in the order of their targets: the loss grows where a pair with a lower target has the higher cosine.

    Only the order of the targets counts. Pairs with equal targets are not compared, pairs with target -100 with none.
    Where nothing can be compared, the loss is 0.

    Derivation: docs/derivations/10-similarity.md (10.7)
    """
    (a, a_state), (b, b_state) = unit_length(first), unit_length(second)
    xp = namespace(a)
    valid = targets != IGNORED  # [N]
    ordered = (targets[:, None] > targets[None]) & valid[:, None] & valid[None]  # [N, N]: i above j
    cosines = (a * b).sum(-1)  # [N]
    excess = (cosines[None] - cosines[:, None]) / temperature  # c_j - c_i
    excess = xp.where(ordered, excess, xp.array(FORBIDDEN, dtype=excess.dtype))
    highest = xp.maximum(excess.max(), 0.0)  # the exponents become at most 0
    exponentials = xp.exp(excess - highest)
    total = xp.exp(-highest) + exponentials.sum()
    return (highest + xp.log(total)).astype(a.dtype), (exponentials / total, a_state, b_state, temperature)


@operation
def ranking_loss_backward(dloss: Array | float, state: Any) -> tuple[Array, Array]:
    """The weight of a comparison is its share of the sum; it raises c_i and lowers c_j:

    dc_k = (Σ_i P_ik - Σ_j P_kj) / τ

    Derivation: docs/derivations/10-similarity.md (10.8)
    """
    weights, a_state, b_state, temperature = state
    slope = (weights.sum(0) - weights.sum(1)) * as_dtype(dloss / temperature, weights)  # [N]
    da, db = slope[:, None] * b_state[0], slope[:, None] * a_state[0]
    return unit_length_backward(da, a_state), unit_length_backward(db, b_state)
