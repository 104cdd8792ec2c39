"""NumPy kernels of attention in tiles: heads shared by threads, and short documents of packed rows as batches.

A packed row holds many short documents: a batch of sentences without its padding is one such row. The plain operation
multiplies document by document. Here those of about the same length are put side by side, filled up to the same
length, and go through the kernel of `attention` together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glassbert import ops
from glassbert.engines.kernels import State, register_in
from glassbert.engines.numpy_kernels import KERNELS, attention, attention_backward, shares
from glassbert.engines.threads import run_together, threads_to_use
from glassbert.ops.attention import AttentionPattern
from glassbert.ops.tiled_attention import documents_of

kernel = register_in(KERNELS)
LONGEST = 128  # tokens of a document; the plain operation is as fast for longer ones
STEP = 16  # documents whose lengths have the same number of these make a group


@kernel
def tiled_attention(q, k, v, pattern, bias=None, scale=None, tile_mask=None, dropout_rate=0.0, inference=False):
    """Heads are independent: outside a task every thread takes some. Dropout draws for all heads at once."""
    if bias is None and tile_mask is None:
        documents = groups_of_documents(q, k, pattern)
        found = None if documents is None else grouped_attention(q, k, v, documents, scale, inference)
        if found is not None:
            return found
    groups = shares(q.shape[1], min(q.shape[1], threads_to_use()) if tile_mask is None else 1)

    def work(h):
        mine = bias if bias is None or bias.shape[1] == 1 else bias[:, h]
        return ops.tiled_attention(q[:, h], k[:, h], v[:, h], pattern, mine, scale, tile_mask, dropout_rate)

    contexts, values = zip(*run_together(work, groups), strict=True)
    return _join_heads(contexts), (groups, values, bias is not None and bias.shape[1] == 1)


@kernel
def tiled_attention_backward(dcontext, state):
    groups, values, shared_bias = state

    def work(part):
        h, mine = part
        return ops.tiled_attention_backward(dcontext[:, h], mine)

    dq, dk, dv, dbias = zip(*run_together(work, list(zip(groups, values, strict=True))), strict=True)
    return *(_join_heads(parts) for parts in (dq, dk, dv)), _join_bias(dbias, shared_bias)


def _join_heads(parts):
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)


def _join_bias(parts, shared):
    if parts[0] is None or len(parts) == 1:
        return parts[0]
    return np.sum(parts, 0) if shared else _join_heads(parts)


# ---- short documents -----------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Documents of about the same length as a batch of rows.

    row     of the packed batch
    places  [D, L] of their tokens in that row
    real    [D, L] which of these are tokens of the document, or None if all are
    """

    row: int
    places: np.ndarray
    real: np.ndarray | None

    def take(self, x: np.ndarray) -> np.ndarray:
        """[B, heads, T, d] -> [D, heads, L, d], with zeros where there is no token: 0 · infinity would be NaN."""
        taken = np.take(x[self.row].transpose(1, 0, 2), self.places, axis=0)
        if self.real is not None:
            taken[~self.real] = 0.0
        return taken.transpose(0, 2, 1, 3)

    def put(self, values: np.ndarray, x: np.ndarray) -> None:
        """Write [D, heads, L, d] to the tokens in [B, heads, T, d]."""
        rows, tokens = values.transpose(0, 2, 1, 3), x[self.row].transpose(1, 0, 2)
        if self.real is None:
            tokens[self.places] = rows
        else:
            tokens[self.places[self.real]] = rows[self.real]


def groups_of_documents(q: np.ndarray, k: np.ndarray, pattern: AttentionPattern) -> list[Group] | None:
    """The documents of packed rows, grouped by length; None where a token does not attend to all of its document."""
    if pattern.segments is None or pattern.keys is not None or pattern.mask is not None or pattern.causal:
        return None
    if pattern.offset or pattern.always or q.shape != k.shape:
        return None
    longest = LONGEST if pattern.window is None else min(LONGEST, pattern.window + 1)
    groups = []
    for row, segments in enumerate(pattern.segments):
        documents = documents_of(segments)
        if documents is None:
            return None
        starts, lengths = documents[:, :1], documents[:, 1] - documents[:, 0]
        if lengths.max(initial=0) > longest:
            return None
        steps = -(-lengths // STEP)
        for step in np.unique(steps):
            mine = steps == step
            inside = np.arange(lengths[mine].max())
            last = lengths[mine][:, None] - 1
            real = None if (last == inside[-1]).all() else inside <= last
            groups.append(Group(row, starts[mine] + np.minimum(inside, last), real))
    return groups


def over_threads(work: Callable[[int], None], count: int) -> None:
    """work(i) for every i below `count`; outside a task every thread takes some."""
    threads = max(1, min(count, threads_to_use()))

    def mine(first: int) -> None:
        for i in range(first, count, threads):
            work(i)

    run_together(mine, range(threads))


def grouped_attention(q, k, v, groups, scale, inference):
    """Context and state; None where a number is not finite, because places without a token would change it."""
    context = np.zeros((q.shape[0], q.shape[2], q.shape[1], q.shape[3]), q.dtype).transpose(0, 2, 1, 3)
    states, sums = [None] * len(groups), [0.0] * len(groups)

    def work(i):
        pattern = AttentionPattern(keys=groups[i].real)
        found, states[i] = attention(*map(groups[i].take, (q, k, v)), pattern, scale=scale, inference=inference)
        groups[i].put(found, context)
        sums[i] = found.sum(dtype=np.float64)

    over_threads(work, len(groups))
    if not np.isfinite(sums).all():
        return None
    return context, State(grouped_attention_backward, (groups, states, q.shape, q.dtype), frozenset())


def grouped_attention_backward(dcontext, state):
    groups, states, (batch, heads, length, size), dtype = state
    gradients = np.zeros((batch, length, 3, heads, size), dtype).transpose(2, 0, 3, 1, 4)  # side by side, for the layer

    def work(i):
        for found, x in zip(attention_backward(groups[i].take(dcontext), states[i])[:3], gradients, strict=True):
            groups[i].put(found, x)

    over_threads(work, len(groups))
    return *gradients, None
