"""Random batches for all contenders: token ids with word-like frequencies, 15 % of them masked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from glassbert.ops import IGNORED

CLS, SEP, MASK, SPECIAL = 2, 3, 4, 5  # the first five ids are [PAD] [UNK] [CLS] [SEP] [MASK]
MASKED_SHARE = 0.15


class MaskedBatch(NamedTuple):
    input_ids: np.ndarray  # [B, T] int64
    labels: np.ndarray  # [B, T] int64, -100 except at masked tokens

    @property
    def masked(self) -> int:
        """The number of masked tokens."""
        return int((self.labels != IGNORED).sum())


def zipf_ids(vocab_size: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Ids with a frequency of 1 / (rank + 2.7), up to a factor (Zipf-Mandelbrot)."""
    weights = 1.0 / (np.arange(vocab_size - SPECIAL) + 2.7)
    cumulative = np.cumsum(weights / weights.sum())
    return SPECIAL + np.minimum(np.searchsorted(cumulative, rng.random(shape)), vocab_size - SPECIAL - 1)


def masked_batches(vocab_size: int, batch: int, length: int, count: int, seed: int = 0) -> list[MaskedBatch]:
    """Rows without padding from [CLS] to [SEP]. Of the masked 15 %: 80 % become [MASK], 10 % a random token."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        ids = zipf_ids(vocab_size, (batch, length), rng)
        ids[:, 0], ids[:, -1] = CLS, SEP
        chosen = rng.random(ids.shape) < MASKED_SHARE
        chosen[:, 0] = chosen[:, -1] = False
        chosen[0, 1] = True  # at least one masked token
        labels = np.where(chosen, ids, IGNORED)
        draw = rng.random(ids.shape)
        ids = np.where(chosen & (draw < 0.8), MASK, ids)
        random_ids = rng.integers(SPECIAL, vocab_size, ids.shape)
        ids = np.where(chosen & (draw >= 0.8) & (draw < 0.9), random_ids, ids)
        batches.append(MaskedBatch(ids, labels))
    return batches
