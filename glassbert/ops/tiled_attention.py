"""Attention in tiles: the same numbers as `attention`, in memory that grows linearly with the length.

A tile is a run of queries against a run of keys. The softmax over all keys is built up tile by tile, the online way:
with the running maximum m and the running sum s of exp(score - m),

    m' = max(m, max of the tile)
    s' = s · exp(m - m') + Σ exp(score - m')
    context' = context · exp(m - m') + exp(score - m') v

and context / s at the end. Kept for backward: the context and one number a row, lse = m + log s, from which every
weight can be had again as exp(score - lse).

The plan of tiles follows the pattern: keys outside the window, after a causal query or in another document are never
touched, so local attention costs its window and packed documents cost the sum of their squares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from glassbert.engines.namespace import Array, is_numpy, namespace
from glassbert.ops.attention import FORBIDDEN, AttentionPattern
from glassbert.ops.dropout import dropout, dropout_backward
from glassbert.ops.registry import op

QUERY_TILE = 128
KEY_TILE = 512

# How a tile gets its dropout mask: called with (rows, queries, keys) and the shape [rows, heads, queries, keys]
KeepTile = Callable[[slice, slice, slice, tuple[int, ...]], Array]


def tile_plan(
    pattern: AttentionPattern, batch: int, length: int, on_host: bool
) -> Iterator[tuple[slice, slice, slice]]:
    """(rows, queries, keys) of every tile row: which keys a run of queries could see at all.

    On the host the values of masks and segments are known and used; inside a compiled device step only the shape is.
    """
    if not on_host or (pattern.segments is None and pattern.keys is None):
        for queries in _cut(0, length, QUERY_TILE):
            for row in range(batch) if on_host else [None]:
                rows = slice(0, batch) if row is None else slice(row, row + 1)
                yield rows, queries, _key_range(pattern, queries, 0, length)
        return
    for row in range(batch):
        for start, stop in _runs(pattern, row, length):
            for queries in _cut(start, stop, QUERY_TILE):
                first, last = (start, stop) if pattern.segments is not None else (0, _last_key(pattern, row))
                yield slice(row, row + 1), queries, _key_range(pattern, queries, first, last)


def _cut(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def _key_range(pattern: AttentionPattern, queries: slice, first: int, last: int) -> slice:
    if pattern.window is not None:
        first = max(first, queries.start - pattern.window)
        last = min(last, queries.stop + pattern.window)
    if pattern.causal:
        last = min(last, queries.stop)
    return slice(first, max(first, last))


def _runs(pattern: AttentionPattern, row: int, length: int) -> Iterator[tuple[int, int]]:
    """The documents of a packed row as (start, stop), or the whole row. Padding is no document."""
    if pattern.segments is None:
        yield 0, length
        return
    segments = np.asarray(pattern.segments[row])
    edges = np.flatnonzero(np.r_[True, segments[1:] != segments[:-1], True])
    names = segments[edges[:-1]]
    if len(set(names[names != 0].tolist())) < np.count_nonzero(names):  # a document in pieces: let the mask decide
        yield 0, length
        return
    for start, stop, name in zip(edges[:-1].tolist(), edges[1:].tolist(), names.tolist(), strict=True):
        if name != 0:
            yield start, stop


def _last_key(pattern: AttentionPattern, row: int) -> int:
    seen = np.flatnonzero(np.asarray(pattern.keys[row]))  # type: ignore[index]
    return int(seen[-1]) + 1 if seen.size else 0


def _scores(q: Array, k: Array, pattern: AttentionPattern, rows: slice, queries: slice, keys: slice) -> Array:
    xp = namespace(q)
    scores = (q[rows, :, queries] * q.shape[-1] ** -0.5) @ k[rows, :, keys].swapaxes(-1, -2)
    allowed = pattern.allowed(xp, rows, queries, keys)
    if allowed is None:
        return scores
    if is_numpy(scores):
        np.copyto(scores, scores.dtype.type(FORBIDDEN), where=~allowed)
        return scores
    return xp.where(allowed, scores, xp.array(FORBIDDEN, dtype=scores.dtype))


@op
def tiled_attention(
    q: Array, k: Array, v: Array, pattern: AttentionPattern, keep_tile: KeepTile | None = None, rate: float = 0.0
) -> tuple[Array, Array]:
    """context [B, heads, T, d] and lse [B, heads, T, 1]."""
    xp = namespace(q)
    batch, heads, length, _ = q.shape
    context = xp.zeros(q.shape, dtype=q.dtype)
    lse = xp.zeros((batch, heads, length, 1), dtype=q.dtype)
    for rows, queries, key_range in tile_plan(pattern, batch, length, is_numpy(q)):
        maximum: Array = None
        total: Array = None
        summed: Array = None
        for keys in _cut(key_range.start, key_range.stop, KEY_TILE):
            scores = _scores(q, k, pattern, rows, queries, keys)  # [b, heads, tq, tk]
            new_maximum = scores.max(-1, keepdims=True)
            if maximum is not None:
                new_maximum = xp.maximum(maximum, new_maximum)
            # A row that has seen no key yet still stands at FORBIDDEN; measured from 0 its exponentials vanish.
            base = xp.where(new_maximum <= FORBIDDEN / 2, xp.zeros_like(new_maximum), new_maximum)
            scores -= base
            weights = xp.exp(scores)
            tile_total = weights.sum(-1, keepdims=True)
            if keep_tile is not None:
                weights = dropout(weights, keep_tile(rows, queries, keys, weights.shape), rate)
            tile_sum = weights @ v[rows, :, keys]
            if maximum is None:
                total, summed = tile_total, tile_sum
            else:
                shrink = xp.exp(maximum - base)
                total = total * shrink + tile_total
                summed = summed * shrink + tile_sum
            maximum = new_maximum
        if maximum is None:
            continue
        seen = total > 0
        context[rows, :, queries] = summed / xp.where(seen, total, xp.ones_like(total))
        # +FORBIDDEN would make exp(score - lse) overflow; -FORBIDDEN makes every weight of an unseeing row 0.
        safe = xp.log(xp.where(seen, total, xp.ones_like(total))) + maximum
        lse[rows, :, queries] = xp.where(seen, safe, xp.full(safe.shape, -FORBIDDEN, dtype=safe.dtype))
    return context, lse


@op
def tiled_attention_backward(
    dcontext: Array,
    q: Array,
    k: Array,
    v: Array,
    context: Array,
    lse: Array,
    pattern: AttentionPattern,
    keep_tile: KeepTile | None = None,
    rate: float = 0.0,
) -> tuple[Array, Array, Array]:
    """Each tile's weights are computed again from lse; then as in `attention_backward`.

    The softmax needs Σ_j dweights_j · weights_j over all keys of a row, before any tile is seen whole. It is
    dcontext · context, because context was Σ_j weights_j v_j: one number a row, with dropout as well as without.
    """
    xp = namespace(q)
    batch, _, length, size = q.shape
    scale = size**-0.5
    dq, dk, dv = (xp.zeros(x.shape, dtype=x.dtype) for x in (q, k, v))
    inner = (dcontext * context).sum(-1, keepdims=True)  # [B, heads, T, 1]
    for rows, queries, key_range in tile_plan(pattern, batch, length, is_numpy(q)):
        dc = dcontext[rows, :, queries]
        for keys in _cut(key_range.start, key_range.stop, KEY_TILE):
            scores = _scores(q, k, pattern, rows, queries, keys)
            scores -= lse[rows, :, queries]
            weights = xp.exp(scores)  # [b, heads, tq, tk]
            keep = keep_tile(rows, queries, keys, weights.shape) if keep_tile is not None else None
            dv[rows, :, keys] += dropout(weights, keep, rate).swapaxes(-1, -2) @ dc
            dscores = dropout_backward(dc @ v[rows, :, keys].swapaxes(-1, -2), keep, rate)
            dscores -= inner[rows, :, queries]
            dscores *= weights
            dscores *= scale
            dq[rows, :, queries] += dscores @ k[rows, :, keys]
            dk[rows, :, keys] += dscores.swapaxes(-1, -2) @ q[rows, :, queries]
    return dq, dk, dv
