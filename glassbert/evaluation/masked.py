"""Asking a masked language model: how likely is the right word, and how many words does the model prefer to it?

Everything here is about `asked` places: row and position of a token, in rows of one length, so that nothing is padded.
Only these places go through the head, and of their scores over the vocabulary two numbers are kept:

    log p(right) = score(right) - log Σ exp(score)         rank = words with a higher score (0: the first choice)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.engines.threads import run_together, using_threads
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.models.passes import part_scope
from glassbert.training.evaluate import quietly

TOKENS_AT_ONCE = 8192  # in a pass through the encoder
SCORES_AT_ONCE = 1 << 23  # numbers of the vocabulary in memory at a time


class Scored(NamedTuple):
    log_probability: np.ndarray  # [M] float64, of the right token
    rank: np.ndarray  # [M] int64: 0 where the right token is the first choice


def score(model: Model, ids: np.ndarray, asked: np.ndarray, targets: np.ndarray) -> Scored:
    """Rows of what the model sees [B, T], places asked [M] counted through all of them (row · T + position), and the
    right tokens [M]."""
    head: Any = model.head
    part = head.parts["mlm"]
    at_once = max(1, SCORES_AT_ONCE // model.config.vocab_size)
    found = []
    with quietly(model), using_threads(model.engine.threads):
        run = model.run(check_inputs(model.config, ids), inference=True)
        hidden, scope = run.encode(), part_scope(part, run.head_scope())
        for begin in range(0, len(asked), at_once):
            rows = model.engine.integers(asked[begin : begin + at_once])
            logits = model.engine.to_numpy(part.head.forward(hidden, run.batch, scope, rows))
            right = targets[begin : begin + at_once]
            cuts = np.array_split(np.arange(len(right)), min(model.engine.threads, len(right)))
            found += run_together(lambda some: _of(logits[some], right[some]), cuts)  # noqa: B023
    return Scored(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _of(logits: np.ndarray, right: np.ndarray) -> Scored:
    """[m, V] -> [m]; of words with equal scores the one with the lowest number comes first."""
    logits = logits if logits.dtype == np.float64 else logits.astype(np.float32, copy=False)
    rows = np.arange(len(right))
    own = logits[rows, right]
    rank = (logits > own[:, None]).sum(1)
    equal = logits == own[:, None]
    for row in np.flatnonzero(equal.sum(1) > 1):
        rank[row] += equal[row, : right[row]].sum()
    largest = logits.max(1)
    logits = np.exp(logits - largest[:, None])
    return Scored((own - largest).astype(np.float64) - np.log(logits.sum(1, dtype=np.float64)), rank)


class Block(NamedTuple):
    """Rows of one length: their numbers [B] in the caller's list, and their ids [B, T]."""

    rows: np.ndarray
    ids: np.ndarray


def blocks(rows: Sequence[np.ndarray], tokens: int = TOKENS_AT_ONCE) -> Iterator[Block]:
    """Rows of equal length together, as many as make up about `tokens`; the shortest first."""
    lengths = np.array([len(row) for row in rows])
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        size = max(1, tokens // int(length))
        for begin in range(0, len(same), size):
            some = same[begin : begin + size]
            yield Block(some, np.stack([rows[i] for i in some]))
