"""Rows of ids of one tokenizer as rows of ids of another, word by word.

    translator = RowTranslator(load_tokenizer("mini"), load_tokenizer("minilm"), longest=512)
    rows = translator(ids, segments)

A word is a token and the tokens that continue it. It is decoded, and encoded by the other tokenizer by itself. Special
tokens become those of the other tokenizer. `rows.first` and `rows.pieces` say where the word of each token has gone:

    pieces     [CLS]  the   her  ##na  ##nd  ##ez  [SEP]
    others     [CLS]  the   hernandez              [SEP]
    first      0      1     2    2     2     2     3
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from glassbert.text.fast import SPACE_MARKS, FastTokenizer
from glassbert.text.wordpiece import CONTINUATION_PREFIX

ROUND_LENGTH = 16  # rows are padded to a multiple of it, so that few shapes occur
MOST_WORDS = 1_000_000  # whose translation is kept: some 300 MB


@dataclass(frozen=True)
class TranslatedRows:
    """Rows [B, U] of the other tokenizer, and for each token of the given rows [B, T] the place of its word."""

    ids: np.ndarray  # [B, U]
    segments: np.ndarray  # [B, U], 0 for padding
    first: np.ndarray  # [B, T]: the first piece of its word
    pieces: np.ndarray  # [B, T]: their number; 0 for padding, and for a word that did not fit into a row


class RowTranslator:
    """Translates rows of `own` ids; no row becomes longer than `longest`, where it is given."""

    def __init__(self, own: FastTokenizer, other: FastTokenizer, longest: int | None = None):
        self.own, self.other, self.longest = own, other, longest
        self.continues = np.zeros(own.vocab_size, bool)
        self.continues[: len(own.continues_word)] = own.continues_word
        self.is_special = np.zeros(own.vocab_size, bool)
        self.is_special[list(own.special_ids)] = True
        self._words: dict[tuple[int, ...], tuple[int, ...]] = {
            (own.vocabulary[own.special_names[role]],): (other.vocabulary[other.special_names[role]],)
            for role in (4, 0, 1, 2, 3)  # the last one counts where a token has several: the end of a text
        }

    def __call__(self, ids: np.ndarray, segments: np.ndarray) -> TranslatedRows:
        """`ids` and `segments` [B, T]; a segment of 0 is padding, and a word does not go on in the next segment."""
        count, length = ids.shape
        begins = ~self.continues[ids] | self.is_special[ids]
        begins[:, 0] = True
        begins[:, 1:] |= (segments[:, 1:] != segments[:, :-1]) | self.is_special[ids[:, :-1]]
        starts = np.flatnonzero(begins)  # [W], of the words of all rows
        row, segment, tokens = starts // length, segments.reshape(-1)[starts], np.diff(starts, append=ids.size)
        given, ends = ids.reshape(-1).tolist(), (starts + tokens).tolist()
        words = [
            self.word(tuple(given[start:end])) if number else ()
            for start, end, number in zip(starts.tolist(), ends, segment.tolist(), strict=True)
        ]
        pieces = np.fromiter(map(len, words), np.int64, len(words))
        before = np.cumsum(pieces) - pieces
        first = before - before[np.searchsorted(row, np.arange(count))][row]  # in its row
        if self.longest is not None:
            pieces[first + pieces > self.longest] = 0  # a row that is too long ends with the last word that fits
        first[pieces == 0] = 0
        width = -(-max(1, int((first + pieces).max())) // ROUND_LENGTH) * ROUND_LENGTH
        if self.longest is not None:
            width = min(width, self.longest)
        rows = np.full((count, width), self.other.pad_id, np.int64)
        numbers = np.zeros((count, width), np.int64)
        within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # 0, 1, ... in each word
        place = np.repeat(row, pieces), np.repeat(first, pieces) + within
        kept = itertools.compress(words, pieces.tolist())
        rows[place] = np.fromiter(itertools.chain.from_iterable(kept), np.int64, len(within))
        numbers[place] = np.repeat(segment, pieces)
        of_tokens = [np.repeat(values, tokens).reshape(count, length) for values in (first, pieces)]
        return TranslatedRows(rows, numbers, *of_tokens)

    def word(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The ids of the other tokenizer for a word of own ids; empty for a word without a character it knows."""
        found = self._words.get(ids)
        if found is None:
            text = self.own.decode(ids, skip_special_tokens=False).strip()
            if self.own.space_mark is None:  # of a word that began in the row before
                text = text.removeprefix(CONTINUATION_PREFIX)
            lead = " " if self.other.space_mark == SPACE_MARKS["ByteLevel"] else ""  # others add it themselves
            found = tuple(int(id) for id in self.other.encode_ids([lead + text])[0])
            if len(self._words) < MOST_WORDS:
                self._words[ids] = found
        return found
