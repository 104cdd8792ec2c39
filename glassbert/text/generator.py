"""The stream of packed, masked batches that a model is pretrained on.

generator = MLMDataGenerator("corpus/", tokenizer, max_seq_length=128, batch_size=512)
for batch in prefetch(generator.at, range(steps)):
    loss, cache = model.loss(**batch.as_inputs())
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from glassbert.text.batches import Batch, RowReader
from glassbert.text.corpus.reader import Corpus
from glassbert.text.plan_cache import cached_plan
from glassbert.text.stream import BatchStream
from glassbert.text.tokenizer import Tokenizer


class MLMDataGenerator(BatchStream):
    """Rows of several pieces of text without padding, as `packing` lays them out; see `BatchStream` for the rest."""

    def __init__(
        self,
        data_path: str | Path | Corpus,
        tokenizer: Tokenizer,
        max_seq_length: int,
        batch_size: int,
        *,
        packing: str = "sentences",
        **options: Any,
    ):
        self.packing = packing
        super().__init__(data_path, tokenizer, max_seq_length, batch_size, **options)

    def prepare(self) -> int:
        tokenizer = self.tokenizer
        self.plan = cached_plan(
            self.corpus, self.split.name, self.length, self.packing, tokenizer.continues_word, self.sources
        )
        self._read = RowReader(self.split, self.plan, tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
        return len(self.plan)

    def make(self, rows: np.ndarray, epoch: int, places: np.ndarray, mask_rate: float | None) -> Batch:
        ids, segments, positions = self._read(rows)
        return Batch(*self.masked(ids, epoch, places, mask_rate), segments, positions)
