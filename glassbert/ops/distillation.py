"""Losses of a student against a teacher, whose values are constants: only the student has a gradient.

    soft_target_loss:      mean over rows of  T² · Σ_j p_j (log p_j - log q_j)    p = softmax(w / T), q = softmax(z / T)
    cosine_distance_loss:  mean over rows of  1 - x̂ · ŵ                           x̂ = x / √(x · x + ε)
    relation_loss:         mean over rows of  Σ_j p_j (log p_j - log q_j)         p = softmax(w wᵀ / √d'),
                                                                                  q = softmax(x xᵀ / √d)

z and x are the student's, w the teacher's. Relations compare each token with the others of its text, so that the
widths d and d' of student and teacher may differ. A temperature T above 1 flattens both distributions, so that the
student also learns which wrong answers are nearly right. The gradient of the divergence falls with T as 1 / T²; the
factor T² cancels that, so the weight of this loss in a sum does not depend on T.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.losses import IGNORED, as_dtype, in_full
from glassbert.ops.registry import operation
from glassbert.ops.similarity import unit_length, unit_length_backward

PADDING_SCORE = -1e4  # of a relation to padding: its share is 0


def log_softmax(z: Array) -> Array:
    """log softmax of every row, [N, V], without overflow."""
    xp = namespace(z)
    shifted = z - z.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))


@operation
def soft_target_loss(logits: Array, wanted: Array, targets: Array, temperature: float = 1.0) -> tuple[Array, Any]:
    """logits and wanted [N, V]; a row whose target [N] is -100 is ignored. With no other row the loss is 0.

    Derivation: docs/derivations/14-teacher.md (14.1)
    """
    xp = namespace(logits)
    log_q = log_softmax(in_full(logits) / temperature)  # [N, V]
    log_p = log_softmax(in_full(wanted) / temperature)
    p = xp.exp(log_p)
    valid = targets != IGNORED  # [N]
    count = xp.maximum(valid.sum(), 1)
    each = temperature * temperature * (p * (log_p - log_q)).sum(-1)
    loss = (xp.where(valid, each, 0).sum() / count).astype(log_q.dtype)
    return loss, (xp.exp(log_q) - p, valid, count, temperature)


@operation
def soft_target_loss_backward(dloss: Array | float, state: Any) -> Array:
    """The gradient at z / T is the student's distribution less the teacher's, so dz = T² · (q - p) / T / count.

    Derivation: docs/derivations/14-teacher.md (14.2)
    """
    difference, valid, count, temperature = state
    weight = namespace(difference).where(valid, temperature * dloss / count, 0.0).astype(difference.dtype)  # [N]
    return difference * weight[:, None]


@operation
def cosine_distance_loss(x: Array, wanted: Array, targets: Array) -> tuple[Array, Any]:
    """x and wanted [N, H]: 0 where they have the same direction, 2 where opposite. A target [N] of -100 is ignored.

    Derivation: docs/derivations/14-teacher.md (14.3)
    """
    (unit, x_state), (aim, _) = unit_length(x), unit_length(wanted)
    xp = namespace(unit)
    valid = targets != IGNORED
    count = xp.maximum(valid.sum(), 1)
    each = xp.where(valid, 1.0 - (unit * aim).sum(-1), 0)  # [N]
    return (each.sum() / count).astype(unit.dtype), (aim, valid, count, x_state)


@operation
def cosine_distance_loss_backward(dloss: Array | float, state: Any) -> Array:
    """The gradient of -x̂ · ŵ at x̂ is -ŵ; the norm removes its part along x.

    Derivation: docs/derivations/14-teacher.md (14.4)
    """
    aim, valid, count, x_state = state
    weight = namespace(aim).where(valid, as_dtype(-dloss / count, aim), 0)  # [N]
    return unit_length_backward(aim * weight[:, None].astype(aim.dtype), x_state)


def relations(x: Array, heads: int, real: Array) -> Array:
    """log softmax(x xᵀ / √d) over the real tokens: x [B, T, heads · d], real [B, T] -> [B, heads, T, T]."""
    xp = namespace(x)
    rows, length, width = x.shape
    parts = in_full(x).reshape(rows, length, heads, width // heads).swapaxes(1, 2)  # [B, heads, T, d]
    scores = parts @ parts.swapaxes(-1, -2) * (width // heads) ** -0.5
    return log_softmax(xp.where(real[:, None, None] != 0, scores, as_dtype(xp.array(PADDING_SCORE), scores)))


@operation
def relation_loss(x: Array, wanted: Array, real: Array, heads: int = 1) -> tuple[Array, Any]:
    """x [B, T, H] and wanted [B, T, H']: each width is cut into `heads` parts. Padding, 0 in real [B, T], is ignored.

    Derivation: docs/derivations/14-teacher.md (14.5)
    """
    xp = namespace(x)
    log_q, log_p = relations(x, heads, real), relations(wanted, heads, real)  # [B, heads, T, T]
    p = xp.exp(log_p)
    valid = (real != 0)[:, None]  # [B, 1, T]
    count = heads * xp.maximum(valid.sum(), 1)
    each = (p * (log_p - log_q)).sum(-1)  # [B, heads, T]
    loss = (xp.where(valid, each, 0).sum() / count).astype(log_q.dtype)
    return loss, (x, xp.exp(log_q) - p, valid, count, heads)


@operation
def relation_loss_backward(dloss: Array | float, state: Any) -> Array:
    """dS = (Q - P) / count at S = x xᵀ / √d, where x stands twice: dx = (dS + dSᵀ) x / √d.

    Derivation: docs/derivations/14-teacher.md (14.6)
    """
    x, difference, valid, count, heads = state
    rows, length, width = x.shape
    parts = in_full(x).reshape(rows, length, heads, width // heads).swapaxes(1, 2)
    weight = namespace(difference).where(valid, as_dtype(dloss / count, difference), 0)[..., None]  # [B, 1, T, 1]
    dscores = difference * weight.astype(difference.dtype)
    dparts = (dscores + dscores.swapaxes(-1, -2)) @ parts * (width // heads) ** -0.5
    return dparts.swapaxes(1, 2).reshape(x.shape).astype(x.dtype)
