"""Embedding lookup: one row of a table for every id.

y[n] = table[ids[n]]          table [V, H]; ids [...]; y [..., H]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.ops.registry import operation


@operation
def embedding(table: Array, ids: Array, padding_id: int | None = None) -> tuple[Array, Any]:
    """Rows [..., H]. The row of `padding_id` is a constant: it gets no gradient.

    Derivation: docs/derivations/02-linear.md (2.5)
    """
    return table[ids], (ids, padding_id)


@operation
def embedding_backward(dy: Array, state: Any) -> tuple[Array, Array]:
    """An id that occurs several times collects the gradients of all its occurrences: rows are added, not overwritten.

    Only the rows that were looked up have a gradient. The result is `index` [M] and `rows` [M, H], to be added to a
    table of zeros (`glassbert.arrays.scatter_rows`).

    Derivation: docs/derivations/02-linear.md (2.6)
    """
    ids, padding_id = state
    flat_ids = ids.reshape(-1)  # [N]
    flat_dy = dy.reshape(-1, dy.shape[-1])  # [N, H]
    if not is_numpy(dy):  # MLX adds duplicates on the device; 16-bit additions there are slow and lose digits
        flat_dy = flat_dy.astype(namespace(dy).float32)
        if padding_id is not None:
            flat_dy = flat_dy * (flat_ids != padding_id)[:, None]
        return flat_ids, flat_dy
    order = np.argsort(flat_ids, kind="stable")
    if padding_id is not None:
        order = order[flat_ids[order] != padding_id]
    if order.size == 0:
        return np.zeros(0, flat_ids.dtype), np.zeros((0, dy.shape[-1]), dy.dtype)
    sorted_ids = flat_ids[order]
    starts = np.flatnonzero(np.r_[True, sorted_ids[1:] != sorted_ids[:-1]])
    return sorted_ids[starts], np.add.reduceat(flat_dy[order], starts, axis=0)
