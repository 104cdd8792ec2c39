"""The batches of an epoch: a pure function of (lengths, seed, epoch), so that a resumed run finds its place again.

Rows of like length come together (`glassbert.text.buckets`), at most `batch` of them and at most `batch_tokens` tokens
with their padding: short texts make full batches, very long ones smaller batches that still fit into memory.
"""

from __future__ import annotations

import numpy as np

from glassbert.text.buckets import batches_by_length


def epoch_batches(
    lengths: np.ndarray, *, batch: int, batch_tokens: int, group: int = 1, seed: int = 0, epoch: int = 0
) -> list[np.ndarray]:
    """The units of every batch; `lengths` are those of units, each of which has `group` rows."""
    budget = max(batch_tokens // group, int(lengths.max(initial=1)))
    return batches_by_length(lengths, budget, batch, seed, epoch)
