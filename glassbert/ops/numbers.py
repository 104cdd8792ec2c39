"""Number embedding: a vector for a number, linear between the vectors of two knots.

    table[c, k] = step[c, 0] + ... + step[c, k]         k = 0 ... K - 1, the knots of column c
    table[c, K] = step[c, K]                            a missing value
    y = low · table[i] + high · table[i + 1]            i: the row of the knot below; low + high = 1, or 0 for no number

step [C, K + 1, H]; i [...], counted over the rows of all columns; low and high in weights [..., 2]; y [..., H]

A column learns the steps from knot to knot, not the knots: a step is shared by all numbers above it, so that near
numbers have near vectors and what is learned about one number helps with those around it.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace, scatter_rows
from glassbert.ops.embedding import embedding_backward
from glassbert.ops.registry import operation


@operation
def number_embedding(steps: Array, index: Array, weights: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/15-parts-of-families.md (15.14)."""
    xp = namespace(steps)
    table = xp.concatenate([xp.cumsum(steps[:, :-1], axis=1), steps[:, -1:]], 1)  # [C, K + 1, H]
    table = table.reshape(-1, steps.shape[-1])
    weights = weights.astype(steps.dtype)
    y = weights[..., :1] * table[index] + weights[..., 1:] * table[index + 1]
    return y, (index, weights, steps.shape)


@operation
def number_embedding_backward(dy: Array, state: Any) -> Array:
    """Both rows collect their share of dy. The step to knot k is part of that knot and of all knots above it:

    dstep[c, k] = dtable[c, k] + ... + dtable[c, K - 1]         a missing value has a row of its own

    Derivation: docs/derivations/15-parts-of-families.md (15.15)
    """
    index, weights, shape = state
    xp = namespace(dy)
    ids = xp.concatenate([index.reshape(-1), index.reshape(-1) + 1])  # [2 N]
    rows = xp.concatenate([(weights[..., i : i + 1] * dy).reshape(-1, shape[-1]) for i in (0, 1)])  # [2 N, H]
    found, sums = embedding_backward(rows, (ids, None))
    dtable = xp.zeros((shape[0] * shape[1], shape[2]), dtype=sums.dtype)
    dtable = scatter_rows(dtable, found, sums).astype(dy.dtype).reshape(shape)
    above = xp.cumsum(dtable[:, :-1][:, ::-1], axis=1)[:, ::-1]
    return xp.concatenate([above, dtable[:, -1:]], 1)
