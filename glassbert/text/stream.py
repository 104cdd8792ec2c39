"""Batches as a pure function of (seed, epoch, index), whatever their rows are made of.

An epoch is all rows of the data in an order of its own, with masks of its own. Both hang on the place of a row in its
epoch and not on the batch, so a part of a batch, made anywhere, is that part of the whole batch. The rows that do not
fill the last batch of an epoch sit that epoch out: a batch always has its full size, and the next epoch, in another
order, leaves out others. Held-out text is different: there every row counts, and the last batch is short.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from glassbert.errors import ConfigError, TextError
from glassbert.text.batches import Batch
from glassbert.text.corpus.layout import TRAIN, VALIDATION
from glassbert.text.corpus.reader import Corpus
from glassbert.text.masking import Masker, Masking
from glassbert.text.open_text import open_corpus
from glassbert.text.random_numbers import permutation, row_starts
from glassbert.text.tokenizer import Tokenizer


class BatchStream(ABC):
    """Masked batches of a corpus folder, an open `Corpus`, or a text file.

    `split` "validation" gives the held-out documents, and `sources` (names or numbers of the manifest) keeps to some
    of them. Epoch 0 of the validation split is the same in every run that leaves `seed` alone, so that held-out losses
    can be compared.
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
            raise ConfigError(f"a batch has at least one row, got batch_size {batch_size}")
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
        self._masker = Masker(
            self.masking, tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids, tokenizer.continues_word
        )
        self._orders: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()
        self.rows = self.prepare()
        if len(self) == 0:
            raise TextError(
                f"the {split} text makes {self.rows} rows of {max_seq_length} tokens, fewer than a batch of "
                f"{batch_size}: take a larger corpus, a smaller batch or shorter rows"
            )

    @abstractmethod
    def prepare(self) -> int:
        """Get ready to make rows, and say how many there are."""

    @abstractmethod
    def make(self, rows: np.ndarray, epoch: int, places: np.ndarray, mask_rate: float | None) -> Batch:
        """Rows of the data [B] that have these places [B] in an epoch."""

    def __len__(self) -> int:
        """Batches in an epoch."""
        whole, rest = divmod(self.rows, self.batch_size)
        return whole + (self.keep_last and rest > 0)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return (self.batch(epoch, index) for index in range(len(self)))

    def at(self, step: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Batch:
        """The batch of a training step, counted from 0 over all epochs."""
        return self.batch(*divmod(step, len(self)), rows=rows, mask_rate=mask_rate)

    def batch(self, epoch: int, index: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Batch:
        """Batch `index` of an epoch, or only some of its `rows`; `mask_rate` takes the place of the masking's own."""
        if epoch < 0 or not 0 <= index < len(self):
            raise IndexError(f"an epoch has the batches 0 to {len(self) - 1}; asked for {index} of epoch {epoch}")
        first = index * self.batch_size
        places = np.arange(first, min(first + self.batch_size, self.rows))
        if rows is not None:
            places = places[rows]
        return self.make(self._order(epoch)[places].astype(np.int64), epoch, places, mask_rate)

    def masked(
        self, ids: np.ndarray, epoch: int, places: np.ndarray, mask_rate: float | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """What the model sees and the labels, for the rows at these places of an epoch."""
        return self._masker(ids, row_starts(self.seed, "masks", epoch, places), mask_rate)

    def _order(self, epoch: int) -> np.ndarray:
        """[rows] all rows in the order of an epoch; two epochs are remembered, for workers may be at the border."""
        with self._lock:
            if epoch not in self._orders:
                if len(self._orders) > 1:
                    self._orders.pop(next(iter(self._orders)))
                self._orders[epoch] = permutation(self.seed, "rows", epoch, self.rows)
            return self._orders[epoch]


def source_numbers(corpus: Corpus, sources: Sequence[str | int]) -> list[int]:
    """Sources by number, by name in the manifest, or by file name: `novels` for `texts/novels.txt.xz`."""
    names = [source["name"] for source in corpus.manifest["sources"]]
    numbers: set[int] = set()
    for wanted in sources:
        found = [number for number, name in enumerate(names) if wanted in (number, name, *_file_names(name))]
        if not found:
            raise TextError(f"the corpus has the sources {', '.join(names)}; {wanted!r} is none of them")
        numbers.update(found)
    return sorted(numbers)


def _file_names(name: str) -> tuple[str, str]:
    file = Path(name).name
    return file, file.split(".")[0]
