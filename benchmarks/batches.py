"""Batches for everybody: token ids as often as words are in real text, 15 % of them masked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CLS, SEP, MASK, SPECIAL = 2, 3, 4, 5  # the first five ids are [PAD] [UNK] [CLS] [SEP] [MASK]
IGNORED = -100
MASKED_SHARE = 0.15


class MaskedBatch(NamedTuple):
    input_ids: np.ndarray  # [B, T] int64
    labels: np.ndarray  # [B, T] int64, -100 where nothing is asked

    @property
    def masked(self) -> int:
        return int((self.labels != IGNORED).sum())


def zipf_ids(vocab_size: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Ids whose frequency falls with their rank r like 1 / (r + 2.7), the law of Zipf and Mandelbrot."""
    weights = 1.0 / (np.arange(vocab_size - SPECIAL) + 2.7)
    reached = np.cumsum(weights / weights.sum())
    return SPECIAL + np.minimum(np.searchsorted(reached, rng.random(shape)), vocab_size - SPECIAL - 1)


def masked_batches(vocab_size: int, batch: int, length: int, count: int, seed: int = 0) -> list[MaskedBatch]:
    """Full rows from [CLS] to [SEP]. Of the chosen 15 %: 80 % become [MASK], 10 % any word, 10 % stay."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        ids = zipf_ids(vocab_size, (batch, length), rng)
        ids[:, 0], ids[:, -1] = CLS, SEP
        chosen = rng.random(ids.shape) < MASKED_SHARE
        chosen[:, 0] = chosen[:, -1] = False
        chosen[0, 1] = True  # never a batch without a question
        labels = np.where(chosen, ids, IGNORED)
        fate = rng.random(ids.shape)
        ids = np.where(chosen & (fate < 0.8), MASK, ids)
        anything = rng.integers(SPECIAL, vocab_size, ids.shape)
        ids = np.where(chosen & (fate >= 0.8) & (fate < 0.9), anything, ids)
        batches.append(MaskedBatch(ids, labels))
    return batches
