"""Overlapping windows of long texts: [CLS] a part of the text [SEP].

    length 8, stride 4:     [CLS] t0 t1 t2 t3 t4 t5 [SEP]
                            [CLS] t4 t5 t6 t7 t8 t9 [SEP]
                            [CLS] t8 t9 t10 [SEP]

Each window is a separate example for the model; afterwards the logits of a text's windows are averaged. Of a pair the
second text is cut into windows, and each window begins with the first text, truncated to about half of the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from glassbert.errors import InputError
from glassbert.text.encoding import Encoding, added_token
from glassbert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Windows:
    """Window w belongs to text `owners[w]` and begins at its token `starts[w]`; `owners` is sorted."""

    encodings: list[Encoding]
    owners: np.ndarray
    starts: np.ndarray
    texts: int

    def __len__(self) -> int:
        return len(self.encodings)

    @property
    def counts(self) -> np.ndarray:
        """The number of windows of each text, [texts]."""
        return np.bincount(self.owners, minlength=self.texts)

    def combine(self, values: np.ndarray, how: Literal["mean", "max"] = "mean") -> np.ndarray:
        """Values of windows [W, ...] -> values of texts [texts, ...], by mean or maximum."""
        values = np.asarray(values)
        if len(values) != len(self):
            raise InputError(f"there are {len(self)} windows, but values for {len(values)}")
        firsts = np.searchsorted(self.owners, np.arange(self.texts))
        if how == "max":
            return np.maximum.reduceat(values, firsts, axis=0)
        counts = self.counts.reshape(-1, *[1] * (values.ndim - 1))
        return np.add.reduceat(values, firsts, axis=0) / counts


def cut_windows(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    length: int,
    stride: int | None = None,
    max_windows: int | None = None,
) -> Windows:
    """Windows of at most `length` tokens, special tokens included.

    `stride` is the distance between the starts of two windows (default: half of a window's text tokens). Only the
    first `max_windows` windows of a text are kept.
    """
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"there are {len(texts)} texts, but {len(pairs)} second texts")
    bodies = tokenizer.encode_batch(texts if pairs is None else pairs, special_tokens=False)
    prefixes = None if pairs is None else tokenizer.encode_batch(texts, special_tokens=False)
    encodings: list[Encoding] = []
    owners: list[int] = []
    starts: list[int] = []
    cls, sep = (added_token(tokenizer.id_to_token(id), id) for id in (tokenizer.cls_id, tokenizer.sep_id))
    for owner, body in enumerate(bodies):
        before = cls
        capacity = length - 2
        if prefixes is not None:
            prefix = prefixes[owner].first(prefix_length(length, len(body)))
            before, capacity = cls + prefix + sep, length - 3 - len(prefix)
        for start in window_starts(len(body), capacity, stride)[:max_windows]:
            part = _slice(body, start, start + capacity) + sep
            encodings.append(before + (part if prefixes is None else part.with_type(1)))
            owners.append(owner)
            starts.append(start)
    return Windows(encodings, np.array(owners, np.int64), np.array(starts, np.int64), len(texts))


def prefix_length(length: int, body: int) -> int:
    """How many tokens of a pair's first text each window begins with; the second text has `body` tokens."""
    return max(0, length - 3 - max(1, body), (length - 3) // 2)


def window_starts(tokens: int, capacity: int, stride: int | None = None) -> list[int]:
    """The starts of windows of `capacity` tokens that together cover `tokens` tokens; [0] if one is enough."""
    if capacity < 1:
        raise InputError("the length is too small: it must leave space for a text token besides the special tokens")
    stride = stride or max(1, capacity // 2)
    if not 1 <= stride <= capacity:
        raise InputError(f"stride must be between 1 and {capacity}, or windows would skip tokens; got {stride}")
    return [0] if tokens <= capacity else list(range(0, tokens - capacity + stride, stride))


def _slice(encoding: Encoding, start: int, end: int) -> Encoding:
    if start == 0 and end >= len(encoding):
        return encoding
    return Encoding(*(column[start:end] for column in encoding._columns))
