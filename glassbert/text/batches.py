"""Batches: what is handed to the model.

`Batch` holds arrays of the shape [B, T], all int32. `RowReader` lays the rows of a packing plan out as such arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from glassbert.text.corpus.reader import Split
from glassbert.text.masking import NOT_ASKED
from glassbert.text.packing import AROUND, PackingPlan


@dataclass(frozen=True)
class Batch:
    """`model.loss(**batch.as_inputs())` takes it whole."""

    input_ids: np.ndarray  # [B, T] int32
    labels: np.ndarray  # [B, T] int32: the right token where one is asked for, -100 elsewhere
    segment_ids: np.ndarray  # [B, T] int32: the pieces of a row from 1, and 0 for padding
    position_ids: np.ndarray  # [B, T] int32: every piece counts from 0
    token_type_ids: np.ndarray | None = None  # [B, T] int32: 1 in the second part of a pair
    pair_labels: np.ndarray | None = None  # [B] int32: what became of a sentence pair, see `pairs`

    def __len__(self) -> int:
        return len(self.input_ids)

    def as_inputs(self) -> dict[str, np.ndarray]:
        """Keyword arguments of `model.loss`; the pair labels belong to another head and are left out."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "pair_labels"}
        return {name: array for name, array in given.items() if array is not None}

    def rows(self, some: slice) -> Batch:
        """A part of the batch: a micro-batch, or the share of one worker."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: array[some] for name, array in given.items() if array is not None})

    @property
    def tokens(self) -> int:
        """Positions that are not padding."""
        return int(np.count_nonzero(self.segment_ids))

    @property
    def asked(self) -> int:
        """Tokens that the model is asked for."""
        return int(np.count_nonzero(self.labels != NOT_ASKED))


class TokenStore:
    """The tokens of a split under one numbering, its shards one after the other."""

    def __init__(self, split: Split):
        self.shards: Sequence[np.ndarray] = [np.asarray(shard.tokens) for shard in split.shards]  # still on disk
        self.starts = np.cumsum([0, *(len(shard) for shard in self.shards)])[:-1]

    def shard_of(self, tokens: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts, tokens, side="right") - 1

    def read(self, index: np.ndarray, shards: np.ndarray) -> np.ndarray:
        """index [B, T] -> tokens [B, T] int32, row r from the shard shards[r]; outside of it, any token is given."""
        found = np.empty(index.shape, np.int32)
        for number in np.unique(shards):
            here = np.flatnonzero(shards == number) if len(self.shards) > 1 else slice(None)
            found[here] = self.shards[number].take(index[here] - self.starts[number], mode="clip")
        return found


class RowReader:
    """Rows of a plan as arrays: [CLS] piece [SEP] [CLS] piece [SEP] ... and padding at the end."""

    def __init__(self, split: Split, plan: PackingPlan, cls_id: int, sep_id: int, pad_id: int):
        self.plan = plan
        self.tokens = TokenStore(split)
        self.cls_id, self.sep_id, self.pad_id = cls_id, sep_id, pad_id

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """rows [B] -> ids, segment_ids, position_ids, each [B, T] int32."""
        plan, length = self.plan, self.plan.length
        ends = plan.row_ends[rows].astype(np.int64)
        firsts = np.where(rows > 0, plan.row_ends[np.maximum(rows, 1) - 1], 0).astype(np.int64)
        # The blocks of row r: its pieces, numbered from 1, and a last one of padding, perhaps empty.
        counts = ends - firsts + 1
        last = np.cumsum(counts) - 1
        row = np.repeat(np.arange(len(rows)), counts)
        segment = np.arange(1, len(row) + 1) - np.repeat(last - counts + 1, counts)
        segment[last] = 0
        piece = np.repeat(firsts, counts) + segment - 1
        piece[last] = firsts
        starts = plan.starts[piece].astype(np.int64)
        widths = plan.lengths[piece].astype(np.int64) + AROUND
        widths[last] = 0
        widths[last] = length - np.bincount(row, widths, minlength=len(rows)).astype(np.int64)
        begins = np.cumsum(widths) - widths  # in the batch laid out as one line

        shape = (len(rows), length)
        positions = np.arange(len(rows) * length) - np.repeat(begins, widths)
        index = positions + np.repeat(starts - 1, widths)
        ids = self.tokens.read(index.reshape(shape), self.tokens.shard_of(starts[last]))
        segments = np.repeat(segment.astype(np.int32), widths)
        real = segment > 0
        line = ids.reshape(-1)
        line[begins[real]] = self.cls_id
        line[(begins + widths)[real] - 1] = self.sep_id
        line[segments == 0] = self.pad_id
        return ids, segments.reshape(shape), positions.astype(np.int32).reshape(shape)
