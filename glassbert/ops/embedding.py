"""Embedding lookup: a row of a table for every id.

y[n] = table[ids[n]]          table [V, H]; ids [...]; y [..., H]
"""

from __future__ import annotations

import numpy as np

from glassbert.engines.namespace import Array, is_numpy, namespace
from glassbert.ops.registry import op


@op
def embedding(table: Array, ids: Array) -> Array:
    return table[ids]


@op
def embedding_backward(dy: Array, ids: Array, padding_id: int | None = None) -> tuple[Array, Array]:
    """An id that occurs often collects the gradients of all its places, so rows are added, never overwritten.

    Only the rows that were looked up have a gradient. The result says which and how much: `index` [M] and
    `rows` [M, H], to be added into a table of zeros (`scatter_rows`). The padding id stays frozen: it is no word.
    """
    flat_ids = ids.reshape(-1)  # [N]
    flat_dy = dy.reshape(-1, dy.shape[-1])  # [N, H]
    if not is_numpy(dy):  # MLX adds duplicates on the device; 16-bit additions there are slow and lose digits
        xp = namespace(dy)
        flat_dy = flat_dy.astype(xp.float32)
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


def scatter_rows(table: Array, index: Array, rows: Array) -> Array:
    """table, with `rows` added at `index`; in place on NumPy, where an index occurs at most once."""
    if is_numpy(table):
        table[index] += rows
        return table
    return table.at[index].add(rows)


@op
def take_rows(x: Array, rows: Array) -> Array:
    """The chosen rows of x, seen as [N, H]: a masked language model scores only what was masked."""
    return x.reshape(-1, x.shape[-1])[rows]  # [M, H]


@op
def take_rows_backward(dy: Array, rows: Array, shape: tuple[int, ...]) -> Array:
    """Rows that were not chosen had no influence: their gradient is zero."""
    xp = namespace(dy)
    dx = xp.zeros((int(np.prod(shape[:-1])), shape[-1]), dtype=dy.dtype)
    if not is_numpy(dy):
        dx = dx.at[rows].add(dy)
    elif len(np.unique(rows)) == len(rows):
        dx[rows] = dy
    else:  # a row chosen twice collects both gradients
        np.add.at(dx, rows, dy)
    return dx.reshape(shape)
