"""Samples of a softmax: which column every row chooses. No gradient passes through them.

    P(choice = j) = exp(z_j) / Σ_k exp(z_k)        choice: the first j with Σ_{k ≤ j} exp(z_k) > u · Σ_k exp(z_k)

One uniform number u a row decides. The sum is searched in two steps, first among blocks of columns and then inside one
block, so that no running sum over all columns is formed.
"""

from __future__ import annotations

from glassbert.arrays import Array, namespace

BLOCK = 64


def sample_columns(logits: Array, uniform: Array) -> Array:
    """logits [N, V], uniform [N] in [0, 1) -> the chosen columns [N]."""
    xp = namespace(logits)
    logits = logits if logits.dtype == getattr(xp, "float64", None) else logits.astype(xp.float32)
    rows, columns = logits.shape
    weights = xp.exp(logits - logits.max(-1, keepdims=True))  # [N, V]
    if columns % BLOCK:
        weights = xp.pad(weights, [(0, 0), (0, BLOCK - columns % BLOCK)])
    blocks = weights.reshape(rows, -1, BLOCK)
    reached = xp.cumsum(blocks.sum(-1), -1)  # [N, blocks]
    wanted = uniform.astype(reached.dtype)[:, None] * reached[:, -1:]  # [N, 1]
    block = xp.minimum((reached <= wanted).sum(-1), reached.shape[1] - 1)  # [N]
    before = xp.where(block > 0, xp.take_along_axis(reached, xp.maximum(block - 1, 0)[:, None], 1)[:, 0], 0.0)
    inside = xp.take_along_axis(blocks, block[:, None, None], 1)[:, 0]  # [N, BLOCK]
    place = (before[:, None] + xp.cumsum(inside, -1) <= wanted).sum(-1)
    return xp.minimum(block * BLOCK + xp.minimum(place, BLOCK - 1), columns - 1)
