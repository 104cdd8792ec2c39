"""Attention in tiles: the same numbers as `attention`, in memory that grows linearly with the length.

A tile is a run of queries against a run of keys. The softmax over all keys is accumulated tile by tile (online
softmax): with the running maximum m and the running sum s of exp(score - m),

    m' = max(m, max of the tile)
    s' = s · exp(m - m') + Σ exp(score - m')
    context' = context · exp(m - m') + exp(score - m') v

and context / s at the end. The state holds the context and one number per query, lse = m + log s, from which every
weight is computed again as exp(score - lse).

The plan of tiles follows the pattern: keys outside the window, after a causal query or in another document are never
touched, so local attention costs its window and packed documents cost the sum of their squares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.ops.attention import FORBIDDEN, AttentionPattern, scale_of
from glassbert.ops.dropout import dropout, dropout_backward
from glassbert.ops.registry import operation

QUERY_TILE = 128
KEY_TILE = 512

# The dropout mask of a tile: called with (rows, queries, keys) and the shape [rows, heads, queries, keys]
TileMask = Callable[[slice, slice, slice, tuple[int, ...]], Array]


def tile_plan(
    pattern: AttentionPattern, batch: int, queries: int, keys: int, on_host: bool
) -> Iterator[tuple[slice, slice, list[slice]]]:
    """(rows, queries, runs of keys) of every row of tiles: which keys a run of queries may attend to at all.

    On the host the values of masks and segments are known and used; inside a compiled device step only the shape is.
    """
    if not on_host or (pattern.segments is None and pattern.keys is None):
        for run in _cut(0, queries, QUERY_TILE):
            for row in range(batch) if on_host else [None]:
                rows = slice(0, batch) if row is None else slice(row, row + 1)
                yield rows, run, _key_runs(pattern, run, 0, keys)
        return
    for row in range(batch):
        if pattern.segments is None:
            for run in _cut(0, queries, QUERY_TILE):
                yield slice(row, row + 1), run, _key_runs(pattern, run, 0, _last_key(pattern, row))
            continue
        documents = documents_of(pattern.segments[row])
        for start, stop in [(0, keys)] if documents is None else documents.tolist():  # else the mask decides
            first_query, last_query = max(start - pattern.offset, 0), min(stop - pattern.offset, queries)
            for run in _cut(first_query, last_query, QUERY_TILE):
                yield slice(row, row + 1), run, _key_runs(pattern, run, start, stop)


def _cut(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def _tiles(runs: list[slice]) -> Iterator[slice]:
    for run in runs:
        yield from _cut(run.start, run.stop, KEY_TILE)


def _key_runs(pattern: AttentionPattern, queries: slice, first: int, last: int) -> list[slice]:
    """The keys from `first` to `last` that are near these queries, after those that are always in the window."""
    always = slice(first, min(last, pattern.always))
    if pattern.window is not None:
        first = max(first, queries.start + pattern.offset - pattern.window)
        last = min(last, queries.stop + pattern.offset + pattern.window)
    if pattern.causal:
        last = min(last, queries.stop + pattern.offset)
    if always.stop <= always.start or pattern.window is None:
        return [slice(first, max(first, last))]
    first = max(first, always.stop)
    return [always, slice(first, max(first, last))]


def documents_of(of_row: Array) -> np.ndarray | None:
    """The documents [D, 2] of a packed row as (start, stop), without padding; None where one is not contiguous."""
    segments = np.asarray(of_row)
    edges = np.flatnonzero(np.r_[True, segments[1:] != segments[:-1], True])
    names = segments[edges[:-1]]
    real = names != 0
    if len(set(names[real].tolist())) < np.count_nonzero(real):
        return None
    return np.stack([edges[:-1], edges[1:]], 1)[real]


def _last_key(pattern: AttentionPattern, row: int) -> int:
    seen = np.flatnonzero(np.asarray(pattern.keys[row]))  # type: ignore[index]
    return int(seen[-1]) + 1 if seen.size else 0


def _scores(
    q: Array, k: Array, pattern: AttentionPattern, bias: Array | None, scale: float, rows: slice, queries: slice,
    keys: slice,
) -> Array:  # fmt: skip
    xp = namespace(q)
    scores = (q[rows, :, queries] * scale) @ k[rows, :, keys].swapaxes(-1, -2)
    if bias is not None:
        scores = scores + bias[rows if bias.shape[0] > 1 else slice(0, 1), :, queries, keys]
    allowed = pattern.allowed(xp, rows, queries, keys)
    if allowed is None:
        return scores
    if is_numpy(scores):
        np.copyto(scores, scores.dtype.type(FORBIDDEN), where=~allowed)
        return scores
    return xp.where(allowed, scores, xp.array(FORBIDDEN, dtype=scores.dtype))


@operation
def tiled_attention(
    q: Array,
    k: Array,
    v: Array,
    pattern: AttentionPattern,
    bias: Array | None = None,
    scale: float | None = None,
    tile_mask: TileMask | None = None,
    dropout_rate: float = 0.0,
) -> tuple[Array, Any]:
    """The context [B, heads, Tq, d]. `bias` is [B or 1, heads or 1, Tq, Tk]; `tile_mask` gives dropout masks.

    Derivation: docs/derivations/06-tiled-attention.md (6.1), (6.2), (6.3), (6.4)
    """
    xp = namespace(q)
    batch, heads, length, _ = q.shape
    factor = scale_of(q, scale)
    context = xp.zeros(q.shape, dtype=q.dtype)
    lse = xp.zeros((batch, heads, length, 1), dtype=q.dtype)
    for rows, queries, runs in tile_plan(pattern, batch, length, k.shape[2], is_numpy(q)):
        maximum: Array = None
        total: Array = None
        summed: Array = None
        for keys in _tiles(runs):
            scores = _scores(q, k, pattern, bias, factor, rows, queries, keys)  # [b, heads, tq, tk]
            new_maximum = scores.max(-1, keepdims=True)
            if maximum is not None:
                new_maximum = xp.maximum(maximum, new_maximum)
            # A query without an allowed key so far has the maximum FORBIDDEN; with base 0 its exponentials are 0.
            base = xp.where(new_maximum <= FORBIDDEN / 2, xp.zeros_like(new_maximum), new_maximum)
            scores -= base
            weights = xp.exp(scores)
            tile_total = weights.sum(-1, keepdims=True)
            if tile_mask is not None:
                weights, _ = dropout(weights, tile_mask(rows, queries, keys, weights.shape), dropout_rate)
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
        # +FORBIDDEN would make exp(score - lse) overflow; -FORBIDDEN makes every weight of a row without keys 0.
        safe = xp.log(xp.where(seen, total, xp.ones_like(total))) + maximum
        lse[rows, :, queries] = xp.where(seen, safe, xp.full(safe.shape, -FORBIDDEN, dtype=safe.dtype))
    return context, (q, k, v, context, lse, pattern, bias, factor, tile_mask, dropout_rate)


@operation
def tiled_attention_backward(dcontext: Array, state: Any) -> tuple[Array, Array, Array, Array | None]:
    """The weights of each tile are computed again from lse; then as in `attention_backward`.

    The softmax needs Σ_j dweights_j · weights_j over all keys of a row before the first tile is complete. It equals
    dcontext · context, because context was Σ_j weights_j v_j: one number per query, with and without dropout.

    Derivation: docs/derivations/06-tiled-attention.md (6.5), (6.6)
    """
    q, k, v, context, lse, pattern, bias, scale, tile_mask, dropout_rate = state
    xp = namespace(q)
    batch, _, length, _ = q.shape
    dq, dk, dv = (xp.zeros(x.shape, dtype=x.dtype) for x in (q, k, v))
    dbias = None if bias is None else xp.zeros(bias.shape, dtype=bias.dtype)
    inner = (dcontext * context).sum(-1, keepdims=True)  # [B, heads, Tq, 1]
    for rows, queries, runs in tile_plan(pattern, batch, length, k.shape[2], is_numpy(q)):
        dc = dcontext[rows, :, queries]
        for keys in _tiles(runs):
            scores = _scores(q, k, pattern, bias, scale, rows, queries, keys)
            scores -= lse[rows, :, queries]
            weights = xp.exp(scores)  # [b, heads, tq, tk]
            mask = tile_mask(rows, queries, keys, weights.shape) if tile_mask is not None else None
            dropped, drop_state = dropout(weights, mask, dropout_rate)
            dv[rows, :, keys] += dropped.swapaxes(-1, -2) @ dc
            dscores = dropout_backward(dc @ v[rows, :, keys].swapaxes(-1, -2), drop_state)
            dscores -= inner[rows, :, queries]
            dscores *= weights
            if dbias is not None:
                shared = rows if dbias.shape[0] > 1 else slice(0, 1)
                term = dscores if dbias.shape[0] > 1 else dscores.sum(0, keepdims=True)
                dbias[shared, :, queries, keys] += term if dbias.shape[1] > 1 else term.sum(1, keepdims=True)
            dscores *= scale
            dq[rows, :, queries] += dscores @ k[rows, :, keys]
            dk[rows, :, keys] += dscores.swapaxes(-1, -2) @ q[rows, :, queries]
    return dq, dk, dv, dbias
