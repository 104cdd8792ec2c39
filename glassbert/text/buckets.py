"""Batches by length, for fine-tuning: texts of about the same length together, so that little is padded.

A batch costs its rows times its longest text, and that product is kept below a token budget: many short texts or few
long ones. To have the order random all the same, the texts are shuffled, dealt into pools of many batches, sorted by
length only within their pool, cut into batches, and the batches of all pools shuffled again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.text.random_numbers import permutation

POOL = 64  # batches sorted together: more pad less, fewer mix more


def batches_by_length(
    lengths: Sequence[int] | np.ndarray,
    token_budget: int,
    max_rows: int | None = None,
    seed: int = 0,
    epoch: int = 0,
) -> list[np.ndarray]:
    """The numbers of the texts in each batch of an epoch; every text comes once.

    `lengths` [texts] counts tokens with their special ones; a batch has at most `max_rows` texts, and its texts
    times the longest of them are at most `token_budget`. The same (seed, epoch) gives the same batches.
    """
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or (lengths.size and (lengths.dtype.kind not in "iu" or lengths.min() < 1)):
        raise InputError("lengths must be a list of whole numbers, each at least 1")
    if max_rows is not None and max_rows < 1:
        raise ConfigError(f"a batch has at least one row, got max_rows {max_rows}")
    if not lengths.size:
        return []
    if lengths.max() > token_budget:
        raise ConfigError(
            f"text {int(lengths.argmax())} has {int(lengths.max())} tokens, more than the {token_budget} of a whole "
            "batch: raise token_budget, or truncate the texts"
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
    """The share of positions in `batches` that is padding."""
    lengths = np.asarray(lengths)
    positions = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - sum(int(lengths[batch].sum()) for batch in batches) / max(positions, 1)
