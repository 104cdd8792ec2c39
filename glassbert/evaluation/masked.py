"""Scores of a language model at given positions, and pseudo-log-likelihoods of sentences.

Rows of one length are run together, so nothing is padded. The head is applied at the target positions only, and two
numbers per position are kept:

    log p(target) = score(target) - log Σ exp(score)       rank = tokens with a higher score (0: the first choice)

The pseudo-log-likelihood of a sentence masks each token in turn and sums the log-probabilities:

    PLL(s) = Σₜ log p(sₜ | s without sₜ)

A sentence of n tokens becomes n rows. Repeated sentences and repeated rows are computed once. A causal model needs one
row: the log-likelihood Σₜ log p(sₜ | s before t).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassbert.engines.threads import run_together, using_threads
from glassbert.evaluation.subject import Subject
from glassbert.models.inputs import output_rows
from glassbert.models.model import Model
from glassbert.training.evaluate import evaluation_mode

TOKENS_AT_ONCE = 8192  # in a pass through the encoder
SCORES_AT_ONCE = 1 << 23  # logits in memory at a time


class Scored(NamedTuple):
    log_probability: np.ndarray  # [M] float64, of the target
    rank: np.ndarray  # [M] int64: 0 if the target is the first choice


def score(model: Model, ids: np.ndarray, positions: np.ndarray, targets: np.ndarray) -> Scored:
    """Score the targets [M] at the flat positions [M] (row · T + position) of input rows [B, T]."""
    head: Any = model.head
    part = head.parts["mlm"] if "mlm" in head.parts else head.parts["causal"]
    at_once = max(1, SCORES_AT_ONCE // model.config.vocab_size)
    found = []
    with evaluation_mode(model), using_threads(model.engine.threads):
        missing = np.zeros(ids.shape, np.bool_)
        missing.reshape(-1)[positions] = True
        checked = model.check_missing(ids, missing)
        positions = output_rows(positions, checked)
        run = model.run(checked, inference=True)
        hidden, scope = run.encode(), run.head_scope().inside(part.name)
        for begin in range(0, len(positions), at_once):
            rows = model.engine.integers(positions[begin : begin + at_once])
            logits = model.engine.to_numpy(part.head.forward(hidden, run.batch, scope, rows))
            right = targets[begin : begin + at_once]
            cuts = np.array_split(np.arange(len(right)), min(model.engine.threads, len(right)))
            found += run_together(lambda some: _scored(logits[some], right[some]), cuts)  # noqa: B023
    return Scored(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _scored(logits: np.ndarray, right: np.ndarray) -> Scored:
    """[m, V] -> [m]. Ties rank as in argmax: the lowest id first."""
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
    """Rows of one length: their indices [B] in the caller's list, and their ids [B, T]."""

    rows: np.ndarray
    ids: np.ndarray


def blocks(rows: Sequence[np.ndarray], tokens: int = TOKENS_AT_ONCE) -> Iterator[Block]:
    """Group rows of equal length into blocks of about `tokens` tokens, the shortest first."""
    lengths = np.array([len(row) for row in rows])
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        size = max(1, tokens // int(length))
        for begin in range(0, len(same), size):
            some = same[begin : begin + size]
            yield Block(some, np.stack([rows[i] for i in some]))


MIN_TOKENS = 3  # one token between [CLS] and [SEP]


@dataclass(frozen=True)
class PseudoLikelihoods:
    """Log-probabilities of the tokens of every sentence, [n] each; None if it is empty or too long."""

    tokens: list[np.ndarray | None]
    too_long: int
    empty: int

    @property
    def notes(self) -> list[str]:
        long = (
            [f"{self.too_long:,} sentences are longer than the model's input and were left out"]
            if self.too_long
            else []
        )
        return long + ([f"{self.empty:,} sentences have no token and were left out"] if self.empty else [])


def pseudo_likelihoods(
    subject: Subject, sentences: Sequence[str], progress: Callable[..., None] = lambda *_: None
) -> PseudoLikelihoods:
    """The log-probability of every token of every sentence, each masked in turn."""
    distinct = list(dict.fromkeys(sentences))
    encoded = [np.array(e.ids, np.int64) for e in subject.tokenizer.encode_batch(distinct)] if distinct else []
    long = {s for s, ids in zip(distinct, encoded, strict=True) if len(ids) > subject.max_length}
    empty = {s for s, ids in zip(distinct, encoded, strict=True) if len(ids) < MIN_TOKENS}
    kept = [(s, ids) for s, ids in zip(distinct, encoded, strict=True) if s not in long and s not in empty]
    found: dict[str, np.ndarray] = {}
    total = sum((len(ids) - 2) * len(ids) for _, ids in kept)
    done = 0
    for rows, ids in _by_copies([ids for _, ids in kept]):
        inside = ids.shape[1] - 2
        for row, values in zip(rows, each_token_masked(subject, ids), strict=True):
            found[kept[row][0]] = values
        done += len(rows) * inside * ids.shape[1]
        progress(done, total)
    return PseudoLikelihoods(
        [found.get(sentence) for sentence in sentences],
        sum(sentence in long for sentence in sentences),
        sum(sentence in empty for sentence in sentences),
    )


def each_token_masked(subject: Subject, ids: np.ndarray) -> np.ndarray:
    """[S, T] sentences with [CLS] and [SEP] -> [S, T - 2] log-probabilities, each token masked in turn.

    A causal model reads every sentence once and predicts each token from those before it.
    """
    sentences, length = ids.shape
    inside = length - 2
    if subject.predicts_next:
        before = (np.arange(sentences)[:, None] * length + np.arange(inside)).reshape(-1)
        found = score(subject.model, ids, before, ids[:, 1:-1].reshape(-1))
        return found.log_probability.reshape(sentences, inside)
    copies = np.repeat(ids, inside, axis=0)  # [S · (T - 2), T]
    column = np.tile(np.arange(1, length - 1), sentences)
    row = np.arange(len(copies))
    targets = copies[row, column].copy()
    copies[row, column] = subject.tokenizer.mask_id
    # Sentences that differ in the masked token only are one row: about a tenth of the rows of minimal pairs.
    distinct, which = np.unique(np.column_stack([copies, column]), axis=0, return_inverse=True)
    found = score(subject.model, distinct[:, :-1], which.reshape(-1) * length + column, targets)
    return found.log_probability.reshape(sentences, inside)


def _by_copies(rows: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Groups of sentences of one length with about TOKENS_AT_ONCE tokens in all their masked copies."""
    found = []
    for block in blocks(rows, 1 << 40):
        length = block.ids.shape[1]
        size = max(1, TOKENS_AT_ONCE // (length * (length - 2)))
        found += [(block.rows[i : i + size], block.ids[i : i + size]) for i in range(0, len(block.rows), size)]
    return found
