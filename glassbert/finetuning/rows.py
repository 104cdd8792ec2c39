"""Rows of token ids in flat arrays.

A short text is one row, a long text several overlapping rows. Of a pair only the second text is split, and the first
precedes every part. The rows are identical to those of `glassbert.tasks.cut_windows`, but without character offsets:
the ids come from the bulk encoder of the tokenizer, which is twenty times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from glassbert.errors import InputError
from glassbert.tasks.template import Segment
from glassbert.tasks.windows import Windows, prefix_length, window_starts
from glassbert.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]  # done, total
CHUNK = 2_000  # texts encoded between two progress updates


@dataclass(frozen=True)
class Rows:
    """Row r is ids[starts[r] : starts[r + 1]] and belongs to text `owners[r]`; owners are sorted."""

    ids: np.ndarray
    types: np.ndarray | None  # 1 in the second text of a pair; None without pairs
    starts: np.ndarray  # [rows + 1]
    owners: np.ndarray  # [rows]
    texts: int
    fields: np.ndarray | None = None  # the column of the number at each token, 0: none; None: no numbers
    values: np.ndarray | None = None  # that number
    cut: int = 0  # texts whose end is in no row

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def padded(self, values: np.ndarray, rows: np.ndarray, filling: float, length: int) -> np.ndarray:
        """Values of tokens, [tokens, ...], as [rows, length, ...], padded on the right with `filling`."""
        begins, lengths = self.starts[rows], self.lengths[rows]
        positions = np.arange(length)
        is_token = positions < lengths[:, None]
        block = np.full((len(rows), length, *values.shape[1:]), filling, values.dtype)
        block[is_token] = values[(begins[:, None] + positions)[is_token]]
        return block


def rows_of_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    length: int,
    stride: int | None = None,
    max_windows: int | None = None,
    separate: bool = False,
    progress: Progress | None = None,
) -> Rows:
    """Rows of at most `length` tokens; the arguments are those of `cut_windows`.

    `separate`: the second text of a pair also begins with [CLS], as if it stood alone.
    """
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"there are {len(texts)} texts and {len(pairs)} second texts")
    parts: list[np.ndarray] = []
    counts: list[int] = []
    second: list[int] = []  # tokens per row that belong to the second text
    owners: list[int] = []
    cut = 0
    cls, sep = (np.array([id], np.int32) for id in (tokenizer.cls_id, tokenizer.sep_id))
    for begin in range(0, len(texts), CHUNK):
        end = min(begin + CHUNK, len(texts))
        bodies = _encoded(tokenizer, (texts if pairs is None else pairs)[begin:end])
        leaders = [] if pairs is None else _encoded(tokenizer, texts[begin:end])
        for owner, body in enumerate(bodies, begin):
            prefix, space = [cls], length - 2
            if pairs is not None:
                between = [sep, cls] if separate else [sep]
                leader = leaders[owner - begin][: prefix_length(length - separate, len(body))]
                prefix, space = [cls, leader, *between], length - 2 - len(between) - len(leader)
            begins = window_starts(len(body), space, stride)
            cut += len(begins) > len(begins[:max_windows])
            for start in begins[:max_windows]:
                part = body[start : start + space]
                parts += [*prefix, part, sep]
                second.append(len(part) + 1 + separate)
                counts.append(sum(map(len, prefix)) + len(part) + 1)
                owners.append(owner)
        if progress is not None:
            progress(end, len(texts))
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    ids = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    types = None
    if pairs is not None:
        changes = np.zeros(len(ids) + 1, np.int32)
        changes[starts[1:] - np.array(second, np.int64)] += 1
        changes[starts[1:]] -= 1
        types = np.cumsum(changes[:-1], dtype=np.int32)
    return Rows(ids, types, starts, np.array(owners, np.int64), len(texts), cut=cut)


def rows_of_segments(
    tokenizer: Tokenizer,
    texts: Sequence[Sequence[Segment]],
    *,
    length: int,
    stride: int | None = None,
    max_windows: int | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Rows of texts with numbers between them; a number is one token, [MASK], whose vector gets that of the number."""
    known = list(dict.fromkeys(one.text for segments in texts for one in segments if not one.field))
    pieces = dict(zip(known, _encoded(tokenizer, known), strict=True))
    number = np.array([tokenizer.mask_id], np.int32)
    parts: list[np.ndarray] = []
    owners: list[int] = []
    for owner, segments in enumerate(texts):
        tokens = [np.zeros((0, 3))]
        for segment in segments:
            ids = number if segment.field else pieces[segment.text]
            block = np.stack([ids, np.zeros(len(ids)), np.zeros(len(ids))], 1)
            if segment.field:
                block[0, 1:] = segment.field, segment.value
            tokens.append(block)
        body = np.concatenate(tokens)  # [tokens, 3]: id, field, value
        first, last = [[tokenizer.cls_id, 0, 0]], [[tokenizer.sep_id, 0, 0]]
        for start in window_starts(len(body), length - 2, stride)[:max_windows]:
            parts.append(np.concatenate([first, body[start : start + length - 2], last]))
            owners.append(owner)
        if progress is not None and (owner + 1) % CHUNK == 0:
            progress(owner + 1, len(texts))
    flat = np.concatenate(parts) if parts else np.zeros((0, 3))
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)])
    ids, fields = flat[:, 0].astype(np.int32), flat[:, 1].astype(np.int32)
    return Rows(ids, None, starts, np.array(owners, np.int64), len(texts), fields, flat[:, 2])


def rows_of_windows(windows: Windows, paired: bool) -> Rows:
    """The rows of windows that have character offsets."""
    counts = [len(encoding) for encoding in windows.encodings]
    ids = np.fromiter((id for encoding in windows.encodings for id in encoding.ids), np.int32, sum(counts))
    types = None
    if paired:
        types = np.fromiter((type for one in windows.encodings for type in one.type_ids), np.int32, sum(counts))
    return Rows(ids, types, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), windows.owners, windows.texts)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    ids, counts = tokenizer.encode_ids(texts)
    return np.split(ids.astype(np.int32), np.cumsum(counts)[:-1]) if len(counts) else []
