"""Long texts in windows that overlap: [CLS] a part of the text [SEP].

    length 8, stride 4:     [CLS] t0 t1 t2 t3 t4 t5 [SEP]
                            [CLS] t4 t5 t6 t7 t8 t9 [SEP]
                            [CLS] t8 t9 t10 [SEP]

Each window is an example of its own for the model; afterwards the logits of a text's windows are averaged. Of a pair
the second text is cut into windows, and the first stands whole before each, up to half of the room.
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
    """Window w belongs to text `owners[w]` and begins at token `starts[w]` of it; owners rise."""

    encodings: list[Encoding]
    owners: np.ndarray
    starts: np.ndarray
    texts: int

    def __len__(self) -> int:
        return len(self.encodings)

    @property
    def counts(self) -> np.ndarray:
        """How many windows each text has, [texts]."""
        return np.bincount(self.owners, minlength=self.texts)

    def combine(self, values: np.ndarray, how: Literal["mean", "max"] = "mean") -> np.ndarray:
        """Values of windows [W, ...] as values of texts [texts, ...]."""
        values = np.asarray(values)
        if len(values) != len(self):
            raise InputError(f"there are {len(self)} windows, and values for {len(values)}")
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
    most: int | None = None,
) -> Windows:
    """Windows of at most `length` tokens, special ones counted.

    `stride` is how far a window begins after the one before, half of the room unless said; `most` keeps so many
    windows of a text, its first ones.
    """
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"there are {len(texts)} texts and {len(pairs)} partners for them")
    bodies = tokenizer.encode_batch(texts if pairs is None else pairs, special_tokens=False)
    leaders = None if pairs is None else tokenizer.encode_batch(texts, special_tokens=False)
    encodings: list[Encoding] = []
    owners: list[int] = []
    starts: list[int] = []
    cls, sep = (added_token(tokenizer.id_to_token(id), id) for id in (tokenizer.cls_id, tokenizer.sep_id))
    for owner, body in enumerate(bodies):
        before = cls
        room = length - 2
        if leaders is not None:
            leader = leaders[owner].first(leader_length(length, len(body)))
            before, room = cls + leader + sep, length - 3 - len(leader)
        for start in window_starts(len(body), room, stride)[:most]:
            part = _part(body, start, start + room) + sep
            encodings.append(before + (part if leaders is None else part.with_type(1)))
            owners.append(owner)
            starts.append(start)
    return Windows(encodings, np.array(owners, np.int64), np.array(starts, np.int64), len(texts))


def leader_length(length: int, body: int) -> int:
    """How much of a pair's first text stands before each window of the second, which has `body` tokens."""
    return max(0, length - 3 - max(1, body), (length - 3) // 2)


def window_starts(tokens: int, room: int, stride: int | None = None) -> list[int]:
    """Where windows begin that hold `room` tokens each and together hold all; a single 0 where one is enough."""
    if room < 1:
        raise InputError("the length leaves no room for a token of text besides the special ones")
    stride = stride or max(1, room // 2)
    if not 1 <= stride <= room:
        raise InputError(f"stride must be between 1 and {room}, or tokens between windows would be lost; got {stride}")
    return [0] if tokens <= room else list(range(0, tokens - room + stride, stride))


def _part(encoding: Encoding, start: int, end: int) -> Encoding:
    if start == 0 and end >= len(encoding):
        return encoding
    return Encoding(*(column[start:end] for column in encoding._columns))
