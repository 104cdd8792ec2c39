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

from dataclasses import dataclass

import numpy as np

from glassbert.text.fast import SPACE_MARKS, FastTokenizer
from glassbert.text.wordpiece import CONTINUATION_PREFIX

ROUND_LENGTH = 16  # rows are padded to a multiple of it, so that few shapes occur


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
            (own.vocabulary[mine],): (other.vocabulary[theirs],)
            for mine, theirs in zip(own.special_names, other.special_names, strict=True)
        }

    def __call__(self, ids: np.ndarray, segments: np.ndarray) -> TranslatedRows:
        """`ids` and `segments` [B, T]; a segment of 0 is padding, and a word does not go on in the next segment."""
        count, length = ids.shape
        first, pieces = np.zeros((count, length), np.int64), np.zeros((count, length), np.int64)
        begins = ~self.continues[ids] | self.is_special[ids]
        begins[:, 0] = True
        begins[:, 1:] |= (segments[:, 1:] != segments[:, :-1]) | self.is_special[ids[:, :-1]]
        rows, places = [], []
        for row in range(count):
            translated: list[int] = []
            place: list[int] = []
            starts = np.nonzero(begins[row])[0].tolist()
            given, numbers = ids[row].tolist(), segments[row].tolist()
            for start, stop in zip(starts, [*starts[1:], length], strict=True):
                if not numbers[start]:
                    continue
                word = self.word(tuple(given[start:stop]))
                if not word or (self.longest is not None and len(translated) + len(word) > self.longest):
                    continue
                first[row, start:stop], pieces[row, start:stop] = len(translated), len(word)
                translated += word
                place += [numbers[start]] * len(word)
            rows.append(translated)
            places.append(place)
        longest = max(1, *map(len, rows))
        width = -(-longest // ROUND_LENGTH) * ROUND_LENGTH
        if self.longest is not None:
            width = min(width, self.longest)
        return TranslatedRows(_padded(rows, width, self.other.pad_id), _padded(places, width, 0), first, pieces)

    def word(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The ids of the other tokenizer for a word of own ids; empty for a word without a character it knows."""
        found = self._words.get(ids)
        if found is None:
            text = self.own.decode(ids, skip_special_tokens=False).strip().removeprefix(CONTINUATION_PREFIX)
            lead = " " if self.other.space_mark == SPACE_MARKS["ByteLevel"] else ""  # others add it themselves
            found = tuple(int(id) for id in self.other.encode_ids([lead + text])[0])
            self._words[ids] = found
        return found


def _padded(rows: list[list[int]], width: int, value: int) -> np.ndarray:
    result = np.full((len(rows), width), value, np.int64)
    for row, values in zip(result, rows, strict=True):
        row[: len(values)] = values
    return result
