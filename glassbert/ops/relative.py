"""Scores of relative positions: content against a vector for every distance (DeBERTa's disentangled attention).

    y[i, j] = scale · (q_i · K[δ(i - j)] + k_j · Q[δ(i - j)])
              content to position      position to content

    q, k [B, heads, T, d]; y [B, heads, T, T]
    K, Q [R, heads, d], keys and queries made from the embeddings of relative positions
    δ [2T - 1], the row of every distance i - j from -(T - 1) to T - 1, which never falls

The product of a query with the vectors of all 2T - 1 distances is a row of which its T keys are T neighbours, one place
further to the left in every row. So no score is gathered one by one: `shift` looks at the same memory with another
length of rows.

    before                 after
    . . a b c              a b c
    . d e f .              d e f
    g h i . .              g h i
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.ops.registry import operation


def shift(x: Array) -> Array:
    """[..., T, 2T - 1] -> [..., T, T]: entry j of row i is entry T - 1 - i + j. On NumPy a view of contiguous x."""
    length = x.shape[-2]
    if length == 1:
        return x
    flat = x.reshape(*x.shape[:-2], length * (2 * length - 1))
    flat = flat[..., length - 1 : length - 1 + length * (2 * length - 2)]
    return flat.reshape(*x.shape[:-2], length, 2 * length - 2)[..., :length]


def shift_backward(dy: Array) -> Array:
    """[..., T, T] -> [..., T, 2T - 1] with zeros at the distances that a row does not have."""
    length = dy.shape[-1]
    if length == 1:
        return dy
    lead = [(0, 0)] * (dy.ndim - 2)
    wide = namespace(dy).pad(dy, [*lead, (0, 0), (0, length - 2)])  # [..., T, 2T - 2]
    flat = wide.reshape(*dy.shape[:-2], length * (2 * length - 2))
    flat = namespace(dy).pad(flat, [*lead, (length - 1, 1)])
    return flat.reshape(*dy.shape[:-2], length, 2 * length - 1)


def by_distance(vectors: Array, index: np.ndarray) -> Array:
    """[R, heads, d] -> [heads, 2T - 1, d], the vector of every distance."""
    return vectors[index if is_numpy(vectors) else namespace(vectors).array(index)].transpose(1, 0, 2)


def by_distance_backward(dy: Array, index: np.ndarray, rows: int) -> Array:
    """Distances that share a row add up. Equal rows are neighbours in `index`."""
    dy = dy.transpose(1, 0, 2)  # [2T - 1, heads, d]
    if not is_numpy(dy):
        xp = namespace(dy)
        return xp.zeros((rows, *dy.shape[1:]), dtype=dy.dtype).at[xp.array(index)].add(dy)
    starts = np.flatnonzero(np.r_[True, index[1:] != index[:-1]])
    result = np.zeros((rows, *dy.shape[1:]), dy.dtype)
    result[index[starts]] = np.add.reduceat(dy, starts, axis=0)
    return result


@operation
def relative_scores(
    q: Array, k: Array, keys: Array | None, queries: Array | None, index: np.ndarray, scale: float
) -> tuple[Array, Any]:
    """The scores [B, heads, T, T]; without `keys` or `queries` [R, heads, d] that term is left out.

    Derivation: docs/derivations/15-parts-of-families.md (15.4)
    """
    total, tables = None, []
    for x, vectors, of_keys in ((q, keys, False), (k, queries, True)):
        table = None
        if vectors is not None:
            table = scale * by_distance(vectors, index)  # [heads, 2T - 1, d]
            table = table if of_keys else table[:, ::-1]
            scores = shift(x @ table.swapaxes(-1, -2))  # [B, heads, T, T]
            scores = scores.swapaxes(-1, -2) if of_keys else scores  # rows of keys, so far
            total = scores if total is None else total + scores
        tables.append(table)
    rows = next(len(vectors) for vectors in (keys, queries) if vectors is not None)
    return total, (q, k, *tables, index, rows, scale)


@operation
def relative_scores_backward(dy: Array, state: Any) -> tuple[Array | None, ...]:
    """Both terms are products with a table, so each gives a gradient of its content and one of its table:

    dx = dscores table        dtable = Σ over rows of the batch of dscoresᵀ x

    Derivation: docs/derivations/15-parts-of-families.md (15.5), (15.6)
    """
    q, k, key_table, query_table, index, rows, scale = state
    contents: list[Array | None] = []
    vectors: list[Array | None] = []
    for x, table, of_keys in ((q, key_table, False), (k, query_table, True)):
        if table is None:
            contents.append(None)
            vectors.append(None)
            continue
        dscores = shift_backward(dy.swapaxes(-1, -2) if of_keys else dy)  # [B, heads, T, 2T - 1]
        contents.append(dscores @ table)
        dtable = (dscores.swapaxes(-1, -2) @ x).sum(0)  # [heads, 2T - 1, d]
        dtable = dtable if of_keys else dtable[:, ::-1]
        vectors.append(scale * by_distance_backward(dtable, index, rows))
    return *contents, *vectors
