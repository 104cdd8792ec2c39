"""Rows of tokens: the texts of a task as a model reads them, one after another in flat arrays.

A short text is one row, a long one several that overlap, and of a pair the second text is cut while the first stands
before every part of it. Rows are what `glassbert.tasks.cut_windows` cuts, bit by bit; where nobody asks which
characters a token stands for, the ids come straight from the tokenizer's bulk encoder, twenty times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from glassbert.errors import InputError
from glassbert.tasks.windows import Windows, prefix_length, window_starts
from glassbert.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]  # how much is done, of how much
AT_ONCE = 2_000  # texts encoded between two reports of progress


@dataclass(frozen=True)
class Rows:
    """Row r holds ids[starts[r] : starts[r + 1]] and belongs to text `owners[r]`; owners rise."""

    ids: np.ndarray
    types: np.ndarray | None  # 1 in the second text of a pair; None where there are no pairs
    starts: np.ndarray  # [rows + 1]
    owners: np.ndarray  # [rows]
    texts: int

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def padded(self, values: np.ndarray, rows: np.ndarray, filling: int, length: int) -> np.ndarray:
        """Flat values of these rows as [rows, length], filled up on the right."""
        begins, lengths = self.starts[rows], self.lengths[rows]
        places = np.arange(length)
        real = places < lengths[:, None]
        block = np.full((len(rows), length), filling, values.dtype)
        block[real] = values[(begins[:, None] + places)[real]]
        return block


def rows_of_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    length: int,
    stride: int | None = None,
    most: int | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Rows of at most `length` tokens; the arguments are those of `cut_windows`."""
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"there are {len(texts)} texts and {len(pairs)} partners for them")
    parts: list[np.ndarray] = []
    counts: list[int] = []
    second: list[int] = []  # how many tokens of a row belong to the second text
    owners: list[int] = []
    cls, sep = (np.array([id], np.int32) for id in (tokenizer.cls_id, tokenizer.sep_id))
    for begin in range(0, len(texts), AT_ONCE):
        end = min(begin + AT_ONCE, len(texts))
        bodies = _encoded(tokenizer, (texts if pairs is None else pairs)[begin:end])
        leaders = [] if pairs is None else _encoded(tokenizer, texts[begin:end])
        for owner, body in enumerate(bodies, begin):
            before, room = [cls], length - 2
            if pairs is not None:
                leader = leaders[owner - begin][: prefix_length(length, len(body))]
                before, room = [cls, leader, sep], length - 3 - len(leader)
            for start in window_starts(len(body), room, stride)[:most]:
                part = body[start : start + room]
                parts += [*before, part, sep]
                second.append(len(part) + 1)
                counts.append(sum(map(len, before)) + len(part) + 1)
                owners.append(owner)
        if progress is not None:
            progress(end, len(texts))
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    ids = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    types = None
    if pairs is not None:
        edges = np.zeros(len(ids) + 1, np.int32)
        edges[starts[1:] - np.array(second, np.int64)] += 1
        edges[starts[1:]] -= 1
        types = np.cumsum(edges[:-1], dtype=np.int32)
    return Rows(ids, types, starts, np.array(owners, np.int64), len(texts))


def rows_of_windows(windows: Windows, paired: bool) -> Rows:
    """The rows of windows that also know their characters."""
    counts = [len(encoding) for encoding in windows.encodings]
    ids = np.fromiter((id for encoding in windows.encodings for id in encoding.ids), np.int32, sum(counts))
    types = None
    if paired:
        types = np.fromiter((type for one in windows.encodings for type in one.type_ids), np.int32, sum(counts))
    return Rows(ids, types, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), windows.owners, windows.texts)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    ids, counts = tokenizer.encode_ids(texts)
    return np.split(ids.astype(np.int32), np.cumsum(counts)[:-1]) if len(counts) else []
