"""Batches for pretraining: `BatchStream`, the base class; packed rows with masked words or next tokens; `prefetch`.

    generator = MLMDataGenerator("corpus/", tokenizer, max_seq_length=128, batch_size=512)
    for batch in prefetch(generator.at, range(steps)):
        loss, cache = model.loss(**batch.as_inputs())

A batch is a pure function of (seed, epoch, index). Each epoch has its own order of all rows, and its own masks. Both
depend on the position of a row in the epoch, not on the batch, so any slice of a batch can be made separately. Rows
that do not fill the last batch of a training epoch are skipped in that epoch. For held-out text every row counts, and
the last batch is smaller.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from glassbert.errors import ConfigError, TextError
from glassbert.text.batches import Batch, RowReader
from glassbert.text.corpus.build import open_corpus
from glassbert.text.corpus.reader import Corpus
from glassbert.text.corpus.storage import TRAIN, VALIDATION
from glassbert.text.masking import IGNORED, Masker, Masking
from glassbert.text.plan_cache import cached_plan
from glassbert.text.random_numbers import permutation, random_bits, row_seeds
from glassbert.text.tokenizer import Tokenizer

LAST_KEY = np.uint64(2**64 - 1)
Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchStream(ABC):
    """Masked batches of a corpus folder, an open `Corpus`, or a text file.

    `split` "validation" gives the held-out documents. `sources` (names or numbers of the manifest) selects documents.
    Epoch 0 of the validation split is the same in every run with the default `seed`, so held-out losses are comparable.
    """

    def __init__(
        self,
        data_path: str | Path | Corpus,
        tokenizer: Tokenizer,
        max_seq_length: int,
        batch_size: int,
        *,
        seed: int = 0,
        split: str = TRAIN,
        masking: Masking | None = None,
        sources: Sequence[str | int] | None = None,
        keep_last: bool | None = None,
    ):
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        self.corpus = open_corpus(data_path, tokenizer)
        self.corpus.check_tokenizer(tokenizer)
        self.tokenizer = tokenizer
        self.length = max_seq_length
        self.batch_size = batch_size
        self.seed = seed
        self.split = self.corpus.split(split)
        self.sources = None if sources is None else source_numbers(self.corpus, sources)
        self.keep_last = split == VALIDATION if keep_last is None else keep_last
        self.masking = masking or Masking()
        self._orders: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()
        self.rows = self.prepare()
        if len(self) == 0:
            raise TextError(
                f"the {split} text gives {self.rows} rows of {max_seq_length} tokens, fewer than a batch of "
                f"{batch_size}: use a larger corpus, a smaller --batch or a smaller --length"
            )

    @abstractmethod
    def prepare(self) -> int:
        """Prepare the row data and return the number of rows."""

    @abstractmethod
    def make(self, rows: np.ndarray, epoch: int, indices: np.ndarray, mask_rate: float | None) -> Batch:
        """A batch of the rows `rows` [B], which are at the positions `indices` [B] of the epoch."""

    def __len__(self) -> int:
        """The number of batches per epoch."""
        full, rest = divmod(self.rows, self.batch_size)
        return full + (self.keep_last and rest > 0)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return (self.batch(epoch, index) for index in range(len(self)))

    def at(self, step: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Batch:
        """The batch of a training step, counted from 0 over all epochs."""
        return self.batch(*divmod(step, len(self)), rows=rows, mask_rate=mask_rate)

    def batch(self, epoch: int, index: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Batch:
        """Batch `index` of an epoch, or only a slice `rows` of it. `mask_rate` overrides the rate of `masking`."""
        if epoch < 0 or not 0 <= index < len(self):
            raise IndexError(f"batch {index} of epoch {epoch} does not exist; an epoch has 0 to {len(self) - 1}")
        first = index * self.batch_size
        indices = np.arange(first, min(first + self.batch_size, self.rows))
        if rows is not None:
            indices = indices[rows]
        return self.make(self._order(epoch)[indices].astype(np.int64), epoch, indices, mask_rate)

    @cached_property
    def _masker(self) -> Masker:
        one = self.tokenizer
        return Masker(self.masking, one.vocab_size, one.mask_id, one.special_ids, one.continues_word)

    def masked(
        self, ids: np.ndarray, epoch: int, indices: np.ndarray, mask_rate: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The masked ids and the labels of the rows at the positions `indices` of an epoch."""
        return self._masker(ids, row_seeds(self.seed, "masks", epoch, indices), mask_rate)

    def _order(self, epoch: int) -> np.ndarray:
        """[rows] the row order of an epoch. Two epochs are cached, because threads may be in different epochs."""
        with self._lock:
            if epoch not in self._orders:
                if len(self._orders) > 1:
                    self._orders.pop(next(iter(self._orders)))
                self._orders[epoch] = permutation(self.seed, "rows", epoch, self.rows)
            return self._orders[epoch]


class PackedRows(BatchStream):
    """Batches of packed rows without padding. `packing` is "sentences" or "tokens"; see `packing.plan_rows`."""

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

    def make(self, rows: np.ndarray, epoch: int, indices: np.ndarray, mask_rate: float | None) -> Batch:
        ids, segments, positions = self._read(rows)
        ids, labels, more = self.targets(ids, segments, positions, epoch, indices, mask_rate)
        return Batch(ids, labels, segments, positions, **more)

    @abstractmethod
    def targets(
        self,
        ids: np.ndarray,
        segments: np.ndarray,
        positions: np.ndarray,
        epoch: int,
        indices: np.ndarray,
        mask_rate: float | None,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """The input ids and labels [B, T] of these rows, and further fields of the batch."""


class MLMDataGenerator(PackedRows):
    """Rows with masked words."""

    def targets(self, ids, segments, positions, epoch, indices, mask_rate):  # type: ignore[no-untyped-def]
        return *self.masked(ids, epoch, indices, mask_rate), {}


class NextTokenGenerator(PackedRows):
    """Rows as they are: every token is the target of the token before it, except the first of a document."""

    def targets(self, ids, segments, positions, epoch, indices, mask_rate):  # type: ignore[no-untyped-def]
        return ids, np.where((segments != 0) & (positions > 0), ids, np.int32(IGNORED)), {}


class PermutedGenerator(PackedRows):
    """Rows as they are, with some tokens to be predicted in a random order. Both depend on (seed, epoch, row) alone."""

    def targets(self, ids, segments, positions, epoch, indices, mask_rate):  # type: ignore[no-untyped-def]
        seeds = row_seeds(self.seed, "masks", epoch, indices)
        rate = self.masking.rate if mask_rate is None else mask_rate
        chosen = self._masker.choose(ids, random_bits(seeds, ids.shape[1]), seeds, rate)
        keys = random_bits(row_seeds(self.seed, "order", epoch, indices), ids.shape[1]) >> np.uint64(1)
        keys[~chosen] = LAST_KEY
        ranks = np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1, kind="stable")
        order = np.where(chosen, ranks + 1, 0).astype(np.int32)
        return ids, np.where(chosen, ids, np.int32(IGNORED)), {"prediction_order": order}


def source_numbers(corpus: Corpus, sources: Sequence[str | int]) -> list[int]:
    """The numbers of sources given by number, manifest name or file name (`novels` for `texts/novels.txt.xz`)."""
    names = [source["name"] for source in corpus.manifest["sources"]]
    numbers: set[int] = set()
    for wanted in sources:
        found = [number for number, name in enumerate(names) if wanted in (number, name, *_file_names(name))]
        if not found:
            raise TextError(f"the corpus has no source {wanted!r}; its sources are {', '.join(names)}")
        numbers.update(found)
    return sorted(numbers)


def _file_names(name: str) -> tuple[str, str]:
    file = Path(name).name
    return file, file.split(".")[0]


def prefetch(
    make: Callable[[Item], Result], items: Iterable[Item], workers: int = 1, ahead: int | None = None
) -> Iterator[Result]:
    """Yield make(item) for every item, in order, computed in `workers` threads up to `ahead` items in advance.

        for batch in prefetch(generator.at, range(first_step, last_step), workers=2): ...

    `ahead` is 2 per worker by default. An error in `make` is raised at the position of its result. All threads end
    when the iterator is closed.
    """
    ahead = 2 * workers if ahead is None else ahead
    if workers < 1 or ahead < 1:
        raise ConfigError(f"prefetch needs workers and ahead of at least 1, got {workers} and {ahead}")
    return _prefetch(make, iter(items), workers, ahead)


def _prefetch(make: Callable[[Item], Result], items: Iterator[Item], workers: int, ahead: int) -> Iterator[Result]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="glassbert-prefetch")
    try:
        waiting: deque[Future[Result]] = deque(pool.submit(make, item) for item in islice(items, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(items, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
