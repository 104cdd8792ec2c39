"""`Batch`: the input arrays of a model. `RowReader` makes the arrays of the rows of a packing plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from glassbert.text.corpus.mapping import require_whole
from glassbert.text.corpus.reader import Split
from glassbert.text.packing import ADDED_TOKENS, PackingPlan


@dataclass(frozen=True)
class Batch:
    """The inputs of one training step: `model.loss(**batch.as_inputs())`."""

    input_ids: np.ndarray  # [B, T] int32
    labels: np.ndarray  # [B, T] int32: the original token at targets, -100 elsewhere
    segment_ids: np.ndarray  # [B, T] int32: the segments of a row, counted from 1; 0 on padding
    position_ids: np.ndarray  # [B, T] int32: positions within the segment, from 0
    token_type_ids: np.ndarray | None = None  # [B, T] int32: 1 in the second part of a pair
    pair_labels: np.ndarray | None = None  # [B] int32: the label of the sentence pair, see `pairs`
    prediction_order: np.ndarray | None = None  # [B, T] int32: 0 for given tokens, n for the n-th to be predicted

    def __len__(self) -> int:
        return len(self.input_ids)

    def as_inputs(self) -> dict[str, np.ndarray]:
        """Keyword arguments of `model.loss`, without `pair_labels`, which belong to another head."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "pair_labels"}
        return {name: array for name, array in arrays.items() if array is not None}

    def rows(self, some: slice) -> Batch:
        """A slice of the batch: a micro-batch, or the rows of one worker."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: array[some] for name, array in arrays.items() if array is not None})

    @property
    def tokens(self) -> int:
        """The number of positions that are not padding."""
        return int(np.count_nonzero(self.segment_ids))


class TokenStore:
    """The tokens of a split, indexed as if its shards were concatenated."""

    def __init__(self, split: Split):
        self.shards: Sequence[np.ndarray] = [np.asarray(shard.tokens) for shard in split.shards]  # memory-mapped
        self.files = [shard.files[:1] for shard in split.shards]
        self.starts = np.cumsum([0, *(len(shard) for shard in self.shards)])[:-1]

    def shard_of(self, tokens: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts, tokens, side="right") - 1

    def read(self, index: np.ndarray, shards: np.ndarray) -> np.ndarray:
        """index [B, T] -> tokens [B, T] int32, row r from shard shards[r]; an index outside of it gives any token."""
        found = np.empty(index.shape, np.int32)
        for number in np.unique(shards):
            require_whole(self.files[number])
            here = np.flatnonzero(shards == number) if len(self.shards) > 1 else slice(None)
            found[here] = self.shards[number].take(index[here] - self.starts[number], mode="clip")
        return found


class RowReader:
    """Makes the rows of a plan: [CLS] segment [SEP] [CLS] segment [SEP] ... and padding at the end."""

    def __init__(self, split: Split, plan: PackingPlan, cls_id: int, sep_id: int, pad_id: int):
        self.plan = plan
        self.tokens = TokenStore(split)
        self.cls_id, self.sep_id, self.pad_id = cls_id, sep_id, pad_id

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """rows [B] -> ids, segment_ids, position_ids, each [B, T] int32."""
        plan, length = self.plan, self.plan.length
        require_whole(plan.files)
        ends = plan.row_ends[rows].astype(np.int64)
        firsts = np.where(rows > 0, plan.row_ends[np.maximum(rows, 1) - 1], 0).astype(np.int64)
        # The blocks of row r: its segments, numbered from 1, and a last block of padding, possibly empty.
        counts = ends - firsts + 1
        last = np.cumsum(counts) - 1
        row = np.repeat(np.arange(len(rows)), counts)
        segment = np.arange(1, len(row) + 1) - np.repeat(last - counts + 1, counts)
        segment[last] = 0
        index_in_plan = np.repeat(firsts, counts) + segment - 1
        index_in_plan[last] = firsts
        starts = plan.starts[index_in_plan].astype(np.int64)
        widths = plan.lengths[index_in_plan].astype(np.int64) + ADDED_TOKENS
        widths[last] = 0
        widths[last] = length - np.bincount(row, widths, minlength=len(rows)).astype(np.int64)
        begins = np.cumsum(widths) - widths  # in the flattened batch

        shape = (len(rows), length)
        positions = np.arange(len(rows) * length) - np.repeat(begins, widths)
        index = positions + np.repeat(starts - 1, widths)
        ids = self.tokens.read(index.reshape(shape), self.tokens.shard_of(starts[last]))
        segments = np.repeat(segment.astype(np.int32), widths)
        real = segment > 0
        flat = ids.reshape(-1)
        flat[begins[real]] = self.cls_id
        flat[(begins + widths)[real] - 1] = self.sep_id
        flat[segments == 0] = self.pad_id
        return ids, segments.reshape(shape), positions.astype(np.int32).reshape(shape)
