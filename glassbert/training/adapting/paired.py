"""Held-out rows of one text in two vocabularies: the same words in a row, the same words masked.

Rows that are cut by tokens hold other words in other pieces, so that losses before and after an extension would be of
other text. Here rows are cut between words, where the pieces of either vocabulary would no longer fit:

    words          w1 w2 w3 ... | w8 w9 ...          a row ends at the same word in both
    old pieces     file ##name is ...
    new pieces     filename is ...

Rows come in two halves, one to choose by and one to report. A half has blocks of up to BLOCK rows of a document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glassbert.errors import TrainingError
from glassbert.models.model import Model
from glassbert.text.corpus.reader import Corpus
from glassbert.text.corpus.storage import VALIDATION
from glassbert.text.masking import IGNORED
from glassbert.text.packing import ADDED_TOKENS
from glassbert.text.random_numbers import permutation, random_bits, row_seeds
from glassbert.training.evaluate import Evaluation, evaluate

if TYPE_CHECKING:
    from glassbert.training.trainer import Trainer

GENERAL = "general"
BLOCK = 16  # rows
BATCH = 64  # rows
GROUPS = 8  # at least, where there are as many rows: their spread gives an error
RATE = 0.15


class Words(NamedTuple):
    """The held-out tokens of a corpus by words."""

    tokens: np.ndarray  # [tokens]
    begins: np.ndarray  # [words + 1], into the tokens
    documents: np.ndarray  # [words], the number of the document


class Measured(NamedTuple):
    """Nats of whole words that were masked, and their number, in groups of rows."""

    nats: np.ndarray
    words: np.ndarray

    @property
    def per_word(self) -> float:
        """NaN where no word could be masked."""
        return float(self.nats.sum() / self.words.sum()) if len(self.words) else math.nan


def held_out_words(corpus: Corpus) -> Words:
    tokens, begins, documents = [np.zeros(0, np.int64)], [], []
    size = count = 0
    for shard in corpus.split(VALIDATION).shards:
        own = np.asarray(shard.tokens).astype(np.int64)
        if not len(own):
            continue
        starts = ~corpus.tokenizer.continues_word[own]
        starts[0] = True
        starts[np.asarray(shard.sentence_ends, np.int64)[:-1]] = True
        first = np.flatnonzero(starts)
        documents.append(count + np.searchsorted(shard.document_token_ends, first, side="right"))
        tokens.append(own)
        begins.append(size + first)
        size += len(own)
        count += len(shard.document_ends)
    return Words(np.concatenate(tokens), np.concatenate([*begins, [size]]), np.concatenate(documents))


class PairedRows:
    """The rows of a corpus in the old and in the new pieces (`side` "old" and "new"). Rows are in random order."""

    def __init__(self, old: Corpus, new: Corpus, length: int):
        self.length = length
        self.corpora = {"old": old, "new": new}
        self.words = {"new": held_out_words(new)}
        self.words["old"] = self.words["new"] if old is new else held_out_words(old)
        widths = np.maximum(*(np.diff(side.begins) for side in (self.words["old"], self.words["new"])))
        self.spans, self.blocks = _cut(widths, self.words["new"].documents, length - ADDED_TOKENS)  # [rows, 2], [rows]
        if not len(self.spans):
            raise TrainingError(f"no held-out word of {new.folder} fits rows of {length} tokens; raise --length")
        self.order = permutation(0, "paired rows", 0, len(self.spans)).astype(np.int64)

    @property
    def separate(self) -> bool:
        """Whether there are two halves."""
        return bool(self.blocks.any())

    def half(self, number: int, most: int) -> np.ndarray:
        """At most so many rows of the half 0 or 1; of all rows, where there are not two halves."""
        mine = self.order[self.blocks[self.order] % 2 == number] if self.separate else self.order
        return mine[:most]

    def whole(self, most: int) -> np.ndarray:
        return self.order[:most]

    # ---- losses -----------------------------------------------------------------------------------------------------

    def whole_words(self, model: Model, side: str, rows: np.ndarray) -> Measured:
        """The loss of masked words, by groups of rows. Its numbers of words are the same for both sides."""
        size = max(1, min(BATCH, len(rows) // GROUPS))
        nats, words = [], []
        for group in (rows[first : first + size] for first in range(0, len(rows), size)):
            batch, count = self._masked_words(side, group)
            if count:
                found = evaluate(model, [batch], objective="mlm")
                nats.append(found.loss * int((batch["labels"] != IGNORED).sum()))
                words.append(count)
        return Measured(np.array(nats), np.array(words))

    def single_tokens(self, model: Model, side: str, rows: np.ndarray) -> Evaluation | None:
        """Loss and accuracy of single masked tokens; None where all are unknown. Each side has masks of its own."""
        groups = (rows[first : first + BATCH] for first in range(0, len(rows), BATCH))
        batches = [self._masked_tokens(side, group) for group in groups]
        if not any((batch["labels"] != IGNORED).any() for batch in batches):
            return None
        return evaluate(model, batches, objective="mlm")

    def _masked_words(self, side: str, rows: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
        ids, targets = self._ids(side, rows), np.zeros((len(rows), self.length), np.bool_)
        begins, count = self.words[side].begins, 0
        for place, row in enumerate(rows):
            first, last = self.spans[row]
            chosen = first + _chosen("paired words", row, self._maskable[first:last])
            for word in chosen:
                start = 1 - begins[first]
                targets[place, start + begins[word] : start + begins[word + 1]] = True
            count += len(chosen)
        return self._batch(side, ids, targets), count

    def _masked_tokens(self, side: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        ids, targets = self._ids(side, rows), np.zeros((len(rows), self.length), np.bool_)
        special = list(self.corpora[side].tokenizer.special_ids)
        for place, row in enumerate(rows):
            targets[place, _chosen("paired tokens", row, ~np.isin(ids[place], special))] = True
        return self._batch(side, ids, targets)

    @cached_property
    def _maskable(self) -> np.ndarray:
        """[words] whether a word is known to both vocabularies."""
        known = np.ones(len(self.words["new"].documents), np.bool_)
        for side, words in self.words.items():
            special = np.isin(words.tokens, list(self.corpora[side].tokenizer.special_ids))
            known &= ~np.logical_or.reduceat(special, words.begins[:-1])
        return known

    def _ids(self, side: str, rows: np.ndarray) -> np.ndarray:
        words, tokenizer = self.words[side], self.corpora[side].tokenizer
        ids = np.full((len(rows), self.length), tokenizer.pad_id, np.int32)
        for place, row in enumerate(rows):
            first, last = words.begins[self.spans[row]]
            ids[place, : last - first + ADDED_TOKENS] = [
                tokenizer.cls_id,
                *words.tokens[first:last],
                tokenizer.sep_id,
            ]
        return ids

    def _batch(self, side: str, ids: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        tokenizer = self.corpora[side].tokenizer
        return {
            "input_ids": np.where(targets, np.int32(tokenizer.mask_id), ids),
            "labels": np.where(targets, ids, np.int32(IGNORED)),
            "segment_ids": (ids != tokenizer.pad_id).astype(np.int32),
        }


def _cut(widths: np.ndarray, documents: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows as spans of words [rows, 2], and their blocks [rows]. A word that is too long for a row is left out."""
    ends = np.cumsum(widths)
    stops = np.flatnonzero(np.diff(documents, append=-1)) + 1  # of documents
    too_long = np.flatnonzero(widths > room)
    spans, blocks, block = [], [], -1
    begin = 0
    for stop in stops.tolist():
        number = 0  # of the row in its document
        while begin < stop:
            fits = int(np.searchsorted(ends, ends[begin] - widths[begin] + room, side="right"))
            barrier = np.searchsorted(too_long, begin)
            end = min(fits, stop, *too_long[barrier : barrier + 1].tolist())
            if end > begin:
                block += number % BLOCK == 0
                number += 1
                spans.append((begin, end))
                blocks.append(block)
            begin = max(end, begin + 1)
    return np.array(spans, np.int64).reshape(-1, 2), np.array(blocks, np.int64)


def _chosen(purpose: str, row: int, maskable: np.ndarray) -> np.ndarray:
    """The places of RATE of the maskable ones, at least one where there is one; the same for every call."""
    places = np.flatnonzero(maskable)
    keys = random_bits(row_seeds(0, purpose, 0, np.array([row])), len(maskable))[0][places]
    return places[np.argsort(keys, kind="stable")[: max(1, round(RATE * len(places)))]]


# ---- the parts of an adaptation -------------------------------------------------------------------------------------


class Part(NamedTuple):
    """The held-out rows of a text, those that are reported, and those that a share is chosen on (`mixing`)."""

    rows: PairedRows
    report: np.ndarray
    choice: np.ndarray


def part_of(name: str, rows: PairedRows, most: int) -> Part:
    """General text has a half to choose on; of the domain all rows are reported."""
    if name == GENERAL:
        return Part(rows, rows.half(1, most), rows.half(0, most))
    return Part(rows, rows.whole(most), np.zeros(0, np.int64))


def parts_of(trainer: Trainer, content: Mapping[str, Any]) -> dict[str, Part]:
    """The parts of an adaptation at its end, with the rows of its beginning."""
    found = {}
    for (name, entry), corpus in zip(content["parts"].items(), trainer.data.corpora, strict=True):
        old = corpus if entry["old_pieces"] is None else Corpus.open(trainer.run.path / entry["old_pieces"])
        found[name] = part_of(name, PairedRows(old, corpus, trainer.settings.length), content["rows"])
    return found


def text_counts(corpus: Corpus, split: str = VALIDATION) -> dict[str, int]:
    """Tokens, words and unknown words of a split."""
    continues, unknown = corpus.tokenizer.continues_word, corpus.tokenizer.unknown_id
    tokens = [np.asarray(shard.tokens) for shard in corpus.split(split).shards]
    return {
        "tokens": sum(map(len, tokens)),
        "words": int(sum((~continues[ids]).sum() for ids in tokens)),
        "unknown": int(sum((ids == unknown).sum() for ids in tokens)),
    }


def measured(part: Part, model: Model, side: str, entry: Mapping[str, Any]) -> dict[str, float]:
    """The reported losses of a model on a side; those are left out for which no token is known."""
    counts = entry["counts_before" if side == "old" else "counts_after"]
    found = {"tokens_per_word": counts["tokens"] / counts["words"]}
    if (tokens := part.rows.single_tokens(model, side, part.report)) is not None:
        per_old_token = tokens.loss * counts["tokens"] / entry["counts_before"]["tokens"]
        found |= {"loss": tokens.loss, "accuracy": tokens.accuracy, "per_old_token": per_old_token}
    per_word = part.rows.whole_words(model, side, part.report).per_word
    return found if math.isnan(per_word) else {**found, "per_word": per_word}
