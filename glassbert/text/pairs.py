"""Pairs of sentences: [CLS] A [SEP] B [SEP], and whether B belongs there.

    next    next-sentence prediction (BERT): label 0, B follows A; label 1, B comes from another document
    order   sentence-order prediction (ALBERT): label 0, B follows A; label 1, the two were swapped

A row begins as the longest run of sentences of one document that fits, cut in two at a random sentence; half of the
rows become label 1. The B of another document begins inside one of its runs as a true B does, and also takes as many
whole sentences as fit (one is cut off only where none of eight documents has one short enough), so that the length of
a row does not give its label away. Where to cut, whether to change and what to take are drawn anew in every epoch. A
document of one sentence has no pairs and is left out; a row holds one pair, and what it does not fill is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import ConfigError, TextError
from glassbert.text.batches import Batch, TokenStore
from glassbert.text.corpus.reader import Corpus, Split
from glassbert.text.pieces import document_token_ends, sentence_runs
from glassbert.text.random_numbers import below, row_starts, streams
from glassbert.text.stream import BatchStream
from glassbert.text.tokenizer import Tokenizer

AROUND = 3  # [CLS], [SEP] and [SEP]
TASKS = ("next", "order")
TRIES = 8  # other documents looked at until one has a sentence that fits


class PairDataGenerator(BatchStream):
    """Batches of pairs with `token_type_ids` and `pair_labels`, masked like all others; see `BatchStream`."""

    def __init__(
        self,
        data_path: str | Path | Corpus,
        tokenizer: Tokenizer,
        max_seq_length: int,
        batch_size: int,
        *,
        task: str = "order",
        **options: Any,
    ):
        if task not in TASKS:
            raise ConfigError(f"the task of sentence pairs is one of {', '.join(TASKS)}, got {task!r}")
        if max_seq_length < AROUND + 2:
            raise ConfigError(f"a row of {max_seq_length} positions has no room for a pair: it needs {AROUND + 2}")
        self.task = task
        super().__init__(data_path, tokenizer, max_seq_length, batch_size, **options)

    def prepare(self) -> int:
        self._tokens = TokenStore(self.split)
        self._runs = find_runs(self.split, self.length - AROUND, self.tokenizer.continues_word, self.sources)
        if self.task == "next" and len(self._runs.first) and self._runs.same.max() == len(self._runs.first):
            raise TextError("next-sentence prediction takes sentences from other documents, and there is only one")
        return len(self._runs.first)

    def make(self, rows: np.ndarray, epoch: int, places: np.ndarray, mask_rate: float | None) -> Batch:
        drawn = streams(row_starts(self.seed, "pairs", epoch, places), 2 + 2 * TRIES)  # [B, numbers]
        runs = self._runs
        middle = runs.first[rows] + 1 + below(runs.count[rows] - 1, drawn[:, 0])
        end = runs.first[rows] + runs.count[rows]
        first = np.stack([runs.begins[runs.first[rows]], runs.begins[middle] - runs.begins[runs.first[rows]]])
        second = np.stack([runs.begins[middle], runs.ends[end - 1] - runs.begins[middle]])  # [start and length, B]
        changed = drawn[:, 1] >> np.uint64(63) == 1
        if self.task == "order":
            first, second = np.where(changed, second, first), np.where(changed, first, second)
        else:
            other = self._from_elsewhere(rows, self.length - AROUND - first[1], drawn[:, 2:])
            second = np.where(changed, other, second)
        ids, segments, positions, types = self._lay_out(first, second)
        seen, labels = self.masked(ids, epoch, places, mask_rate)
        return Batch(seen, labels, segments, positions, types, changed.astype(np.int32))

    def _from_elsewhere(self, rows: np.ndarray, room: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """[start and length, B]: for every row, sentences of another document that fit into its `room`."""
        runs = self._runs
        others = below((len(runs.first) - runs.same[rows])[:, None], drawn[:, :TRIES])  # [B, tries]
        others += np.where(others >= runs.before[rows][:, None], runs.same[rows][:, None], 0)  # skip the own document
        sentence = runs.first[others] + 1 + below(runs.count[others] - 1, drawn[:, TRIES:])
        fits = runs.ends[sentence] - runs.begins[sentence] <= room[:, None]
        one = np.argmax(fits, axis=1)[:, None]  # the first that fits; the first of all where none does
        sentence, others = (np.take_along_axis(array, one, axis=1)[:, 0] for array in (sentence, others))
        end = np.searchsorted(runs.ends, runs.begins[sentence] + room, side="right")
        end = np.clip(end, sentence + 1, runs.document_end[others])
        return np.stack([runs.begins[sentence], np.minimum(runs.ends[end - 1] - runs.begins[sentence], room)])

    def _lay_out(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
        """ids, segment_ids, position_ids and token_type_ids [B, T] of pairs given as [start and length, B]."""
        place = np.arange(self.length)
        (starts_a, a), (starts_b, b) = first[..., None], second[..., None]  # [B, 1] each
        ids_a = self._tokens.read(starts_a + place - 1, self._tokens.shard_of(first[0]))
        ids_b = self._tokens.read(starts_b + place - (a + 2), self._tokens.shard_of(second[0]))
        ids = np.where(place > a, ids_b, ids_a)
        ids[:, 0] = self.tokenizer.cls_id
        real = place < a + b + AROUND
        ids[(place == a + 1) | (place == a + b + 2)] = self.tokenizer.sep_id
        ids[~real] = self.tokenizer.pad_id
        types = (place > a + 1) & real
        return ids, real.astype(np.int32), (place * real).astype(np.int32), types.astype(np.int32)


@dataclass(frozen=True)
class PairRuns:
    """Runs of at least two sentences, in the order of the text; sentences and tokens are numbered over all shards."""

    begins: np.ndarray  # [sentences] int64, where each begins in the tokens
    ends: np.ndarray  # [sentences] int64
    first: np.ndarray  # [runs] int64, the first sentence
    count: np.ndarray  # [runs] int64, how many sentences
    document_end: np.ndarray  # [runs] int64, the sentence after the last of the document
    before: np.ndarray  # [runs] int64, how many runs come before this document
    same: np.ndarray  # [runs] int64, how many runs this document has


def find_runs(
    split: Split, longest: int, continues_word: np.ndarray | None, sources: Sequence[int] | None = None
) -> PairRuns:
    begins, ends, first, count, document_ends = [], [], [], [], []
    tokens = sentences = 0
    for shard in split.shards:
        wanted = np.ones(len(shard.document_ends), np.bool_)
        if sources is not None:
            wanted = np.isin(shard.document_sources, sources)
        runs = sentence_runs(shard, wanted, longest, continues_word)
        begins.append(runs.starts + tokens)
        ends.append(runs.starts + runs.lengths + tokens)
        counts = np.diff(runs.run_starts, append=len(runs.starts))
        kept = counts > 1
        run_starts = runs.run_starts[kept]
        last = np.searchsorted(runs.starts, document_token_ends(shard))  # the sentence after each document
        document = np.searchsorted(document_token_ends(shard), runs.starts[run_starts], side="right")
        first.append(run_starts + sentences)
        count.append(counts[kept])
        document_ends.append(last[document] + sentences)
        tokens += len(shard.tokens)
        sentences += len(runs.starts)
    if not sum(len(runs) for runs in first):
        raise TextError(f"the {split.name} text has no two neighbouring sentences that fit into {longest} tokens")
    document_end = np.concatenate(document_ends)
    _, before, number, same = np.unique(document_end, return_index=True, return_inverse=True, return_counts=True)
    return PairRuns(
        np.concatenate(begins), np.concatenate(ends), np.concatenate(first), np.concatenate(count),
        document_end, before[number], same[number],
    )  # fmt: skip
