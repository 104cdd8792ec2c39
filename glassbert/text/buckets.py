"""Batches of texts of similar length, for fine-tuning, with little padding.

The cost of a batch is its number of rows times its longest text; a token budget limits this product. To keep the order
random, the texts are shuffled and divided into pools of many batches. Each pool is sorted by length and cut into
batches, and the batches of all pools are shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.text.random_numbers import permutation

POOL = 64  # batches per pool: a larger pool has less padding, a smaller pool mixes better


def batches_by_length(
    lengths: Sequence[int] | np.ndarray,
    token_budget: int,
    max_rows: int | None = None,
    seed: int = 0,
    epoch: int = 0,
) -> list[np.ndarray]:
    """The text indices of each batch of an epoch; every text occurs once.

    `lengths` [texts] counts tokens including special tokens. A batch has at most `max_rows` texts, and its number of
    texts times its longest text is at most `token_budget`. The same (seed, epoch) gives the same batches.
    """
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or (lengths.size and (lengths.dtype.kind not in "iu" or lengths.min() < 1)):
        raise InputError("lengths must be a list of whole numbers, each at least 1")
    if max_rows is not None and max_rows < 1:
        raise ConfigError(f"max_rows must be at least 1, got {max_rows}")
    if not lengths.size:
        return []
    if lengths.max() > token_budget:
        raise ConfigError(
            f"text {int(lengths.argmax())} has {int(lengths.max())} tokens, more than token_budget ({token_budget}): "
            "increase token_budget, or truncate the texts"
        )
    order = permutation(seed, "texts", epoch, len(lengths)).astype(np.int64)
    rows = max(1, int(token_budget // lengths.mean()))
    pool = POOL * min(rows, max_rows or rows)
    batches = []
    for begin in range(0, len(order), pool):
        texts = order[begin : begin + pool]
        texts = texts[np.argsort(-lengths[texts], kind="stable")]
        while len(texts):
            fit = token_budget // int(lengths[texts[0]])  # the first is the longest
            fit = min(fit, max_rows or fit)
            batches.append(texts[:fit])
            texts = texts[fit:]
    return [batches[i] for i in permutation(seed, "batches", epoch, len(batches))]


def padding_share(lengths: Sequence[int] | np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """The share of the positions in `batches` that are padding."""
    lengths = np.asarray(lengths)
    positions = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - sum(int(lengths[batch].sum()) for batch in batches) / max(positions, 1)
