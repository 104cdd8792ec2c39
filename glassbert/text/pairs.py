"""Sentence pairs [CLS] A [SEP] B [SEP] with a label per pair.

    next    next-sentence prediction (BERT): label 0, B follows A; label 1, B comes from another document
    order   sentence-order prediction (ALBERT): label 0, B follows A; label 1, A and B are swapped

A row is the longest run of sentences of one document that fits, split at a random sentence; half of the rows get label
1. A B from another document starts inside a run, as a true B does, and takes as many whole sentences as fit (a sentence
is cut only if none of eight documents has one that fits). So the length of a row does not reveal its label. All random
choices are drawn again in every epoch. Documents of one sentence are left out. A row has one pair; the rest is padding.
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
from glassbert.text.generator import BatchStream
from glassbert.text.random_numbers import integers_below, random_bits, row_seeds
from glassbert.text.segments import select_documents, sentence_runs
from glassbert.text.tokenizer import Tokenizer

ADDED_TOKENS = 3  # [CLS], [SEP] and [SEP]
TASKS = ("next", "order")
TRIES = 8  # documents to try until one has a sentence that fits


class PairDataGenerator(BatchStream):
    """Masked batches of sentence pairs with `token_type_ids` and `pair_labels`; see `BatchStream`."""

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
            raise ConfigError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
        if max_seq_length < ADDED_TOKENS + 2:
            raise ConfigError(f"max_seq_length must be at least {ADDED_TOKENS + 2} for pairs, got {max_seq_length}")
        self.task = task
        super().__init__(data_path, tokenizer, max_seq_length, batch_size, **options)

    def prepare(self) -> int:
        self._tokens = TokenStore(self.split)
        self._runs = find_runs(self.split, self.length - ADDED_TOKENS, self.tokenizer.continues_word, self.sources)
        if self.task == "next" and len(self._runs.first) and self._runs.same.max() == len(self._runs.first):
            raise TextError("the task 'next' needs sentences of other documents, but the corpus has only one document")
        return len(self._runs.first)

    def make(self, rows: np.ndarray, epoch: int, indices: np.ndarray, mask_rate: float | None) -> Batch:
        drawn = random_bits(row_seeds(self.seed, "pairs", epoch, indices), 2 + 2 * TRIES)  # [B, numbers]
        runs = self._runs
        middle = runs.first[rows] + 1 + integers_below(runs.count[rows] - 1, drawn[:, 0])
        end = runs.first[rows] + runs.count[rows]
        first = np.stack([runs.begins[runs.first[rows]], runs.begins[middle] - runs.begins[runs.first[rows]]])
        second = np.stack([runs.begins[middle], runs.ends[end - 1] - runs.begins[middle]])  # [start and length, B]
        changed = drawn[:, 1] >> np.uint64(63) == 1
        if self.task == "order":
            first, second = np.where(changed, second, first), np.where(changed, first, second)
        else:
            other = self._other_document(rows, self.length - ADDED_TOKENS - first[1], drawn[:, 2:])
            second = np.where(changed, other, second)
        ids, segments, positions, types = self._lay_out(first, second)
        masked_ids, labels = self.masked(ids, epoch, indices, mask_rate)
        return Batch(masked_ids, labels, segments, positions, types, changed.astype(np.int32))

    def _other_document(self, rows: np.ndarray, space: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """[start and length, B]: for every row, sentences of another document that fit into its `space` [B]."""
        runs = self._runs
        others = integers_below((len(runs.first) - runs.same[rows])[:, None], drawn[:, :TRIES])  # [B, tries]
        others += np.where(others >= runs.before[rows][:, None], runs.same[rows][:, None], 0)  # skip the own document
        sentence = runs.first[others] + 1 + integers_below(runs.count[others] - 1, drawn[:, TRIES:])
        fits = runs.ends[sentence] - runs.begins[sentence] <= space[:, None]
        choice = np.argmax(fits, axis=1)[:, None]  # the first that fits; 0 if none does
        sentence, others = (np.take_along_axis(array, choice, axis=1)[:, 0] for array in (sentence, others))
        end = np.searchsorted(runs.ends, runs.begins[sentence] + space, side="right")
        end = np.clip(end, sentence + 1, runs.document_end[others])
        return np.stack([runs.begins[sentence], np.minimum(runs.ends[end - 1] - runs.begins[sentence], space)])

    def _lay_out(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
        """ids, segment_ids, position_ids and token_type_ids, [B, T] each, of pairs given as [start and length, B]."""
        position = np.arange(self.length)
        (starts_a, a), (starts_b, b) = first[..., None], second[..., None]  # [B, 1] each
        ids_a = self._tokens.read(starts_a + position - 1, self._tokens.shard_of(first[0]))
        ids_b = self._tokens.read(starts_b + position - (a + 2), self._tokens.shard_of(second[0]))
        ids = np.where(position > a, ids_b, ids_a)
        ids[:, 0] = self.tokenizer.cls_id
        real = position < a + b + ADDED_TOKENS
        ids[(position == a + 1) | (position == a + b + 2)] = self.tokenizer.sep_id
        ids[~real] = self.tokenizer.pad_id
        types = (position > a + 1) & real
        return ids, real.astype(np.int32), (position * real).astype(np.int32), types.astype(np.int32)


@dataclass(frozen=True)
class PairRuns:
    """Runs of at least two sentences, in text order; sentences and tokens are numbered across all shards."""

    begins: np.ndarray  # [sentences] int64, start in the tokens
    ends: np.ndarray  # [sentences] int64
    first: np.ndarray  # [runs] int64, the first sentence
    count: np.ndarray  # [runs] int64, the number of sentences
    document_end: np.ndarray  # [runs] int64, the sentence after the last of the document
    before: np.ndarray  # [runs] int64, the number of runs before this document
    same: np.ndarray  # [runs] int64, the number of runs of this document


def find_runs(
    split: Split, longest: int, continues_word: np.ndarray | None, sources: Sequence[int] | None = None
) -> PairRuns:
    """All runs of a split whose sentences have at most `longest` tokens together."""
    begins, ends, first, count, document_ends = [], [], [], [], []
    tokens = sentences = 0
    for shard in split.shards:
        runs = sentence_runs(shard, select_documents(shard, sources), longest, continues_word)
        begins.append(runs.starts + tokens)
        ends.append(runs.starts + runs.lengths + tokens)
        counts = np.diff(runs.run_starts, append=len(runs.starts))
        kept = counts > 1
        run_starts = runs.run_starts[kept]
        last = np.searchsorted(runs.starts, shard.document_token_ends)  # the sentence after each document
        document = np.searchsorted(shard.document_token_ends, runs.starts[run_starts], side="right")
        first.append(run_starts + sentences)
        count.append(counts[kept])
        document_ends.append(last[document] + sentences)
        tokens += len(shard.tokens)
        sentences += len(runs.starts)
    if not sum(len(runs) for runs in first):
        raise TextError(
            f"the {split.name} text has no two adjacent sentences that fit into {longest} tokens; give longer rows, or "
            f"text in which more sentences follow each other"
        )
    document_end = np.concatenate(document_ends)
    _, before, number, same = np.unique(document_end, return_index=True, return_inverse=True, return_counts=True)
    return PairRuns(
        np.concatenate(begins), np.concatenate(ends), np.concatenate(first), np.concatenate(count),
        document_end, before[number], same[number],
    )  # fmt: skip
