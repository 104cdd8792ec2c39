"""Pseudo-likelihood: how natural does a sentence sound to a model that cannot read it from left to right?

    PLL(s) = Σₜ log p(sₜ | s without sₜ)

Every token is masked in turn, and the log-probabilities of the right ones are added up. A sentence of n tokens so
becomes n rows; sentences of one length are asked together, and a sentence that comes twice is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from glassbert.evaluation.masked import TOKENS_AT_ONCE, blocks, score
from glassbert.evaluation.subject import Subject

SHORTEST = 3  # a token between [CLS] and [SEP]


@dataclass(frozen=True)
class PseudoLikelihoods:
    """By sentence: log-probabilities of its tokens, [n] each, or None where the sentence could not be asked."""

    tokens: list[np.ndarray | None]
    too_long: int
    empty: int

    @property
    def notes(self) -> list[str]:
        long = (
            [f"{self.too_long:,} sentences are longer than the model reads and were left out"] if self.too_long else []
        )
        return long + ([f"{self.empty:,} sentences have no token and were left out"] if self.empty else [])


def pseudo_likelihoods(
    subject: Subject, sentences: Sequence[str], progress: Callable[..., None] = lambda *_: None
) -> PseudoLikelihoods:
    distinct = list(dict.fromkeys(sentences))
    encoded = [np.array(e.ids, np.int64) for e in subject.tokenizer.encode_batch(distinct)] if distinct else []
    long = {s for s, ids in zip(distinct, encoded, strict=True) if len(ids) > subject.longest}
    empty = {s for s, ids in zip(distinct, encoded, strict=True) if len(ids) < SHORTEST}
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
    """[S, T] sentences with their [CLS] and [SEP] -> [S, T - 2] log-probabilities, each token masked in its turn."""
    sentences, length = ids.shape
    inside = length - 2
    copies = np.repeat(ids, inside, axis=0)  # [S · (T - 2), T]
    place = np.tile(np.arange(1, length - 1), sentences)
    line = np.arange(len(copies))
    targets = copies[line, place].copy()
    copies[line, place] = subject.tokenizer.mask_id
    found = score(subject.model, copies, line * length + place, targets)
    return found.log_probability.reshape(sentences, inside)


def _by_copies(rows: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sentences of one length together, as many as have about TOKENS_AT_ONCE tokens in all their copies."""
    found = []
    for block in blocks(rows, 1 << 40):
        length = block.ids.shape[1]
        size = max(1, TOKENS_AT_ONCE // (length * (length - 2)))
        found += [(block.rows[i : i + size], block.ids[i : i + size]) for i in range(0, len(block.rows), size)]
    return found
