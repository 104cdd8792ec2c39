"""Alignment of words and tokens (pieces): tags belong to words, models take pieces.

    words     Jennifer   lives
    pieces    jen ##ni ##fer   lives
    labels    B   -100 -100    O          a word's tag is on its first piece; -100 is ignored by the loss

The text is the words joined by spaces. A piece belongs to the word that contains its last character. This also holds
for byte-level pieces that begin with the space. A word for which the tokenizer gives no piece, such as a control
character, is listed in `lost`; `to_words` gives it a default value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassbert.errors import InputError
from glassbert.ops import IGNORED
from glassbert.tasks.windows import Windows, cut_windows
from glassbert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class WordPieces:
    """Sentences as windows of pieces. `firsts[w]` has a row (word, piece) for each word that begins in window w."""

    windows: Windows
    firsts: list[np.ndarray]
    words: np.ndarray  # the number of words of each sentence

    @property
    def lost(self) -> list[tuple[int, int]]:
        """(sentence, word) of each word without a piece."""
        return [(row, int(word)) for row in range(len(self.words)) for word in np.flatnonzero(~self._has_piece(row))]

    def labels(self, tags: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The labels of each window's pieces, int32: the word's tag on its first piece, -100 elsewhere.

        A word in the overlap of windows has its label in each of them.
        """
        if len(tags) != len(self.words):
            raise InputError(f"there are {len(self.words)} sentences, but tags for {len(tags)}")
        found = []
        for encoding, owner, firsts in zip(self.windows.encodings, self.windows.owners, self.firsts, strict=True):
            if len(tags[owner]) != self.words[owner]:
                raise InputError(f"sentence {owner} has {self.words[owner]} words and {len(tags[owner])} tags")
            labels = np.full(len(encoding), IGNORED, np.int32)
            labels[firsts[:, 1]] = np.asarray(tags[owner])[firsts[:, 0]]
            found.append(labels)
        return found

    def to_words(self, values: Sequence[np.ndarray], lost: float = 0) -> list[np.ndarray]:
        """Values of pieces, [pieces, ...] per window -> values of words, [words, ...] per sentence.

        A word in several windows takes the value of the window in which it is farthest from an edge. Words without a
        piece get `lost`.
        """
        if len(values) != len(self.windows):
            raise InputError(f"there are {len(self.windows)} windows, but values for {len(values)}")
        shape = np.asarray(values[0]).shape[1:] if len(values) else ()
        kind = np.asarray(values[0]).dtype if len(values) else np.dtype(np.float64)
        words = [np.full((count, *shape), lost, kind) for count in self.words]
        depth = [np.full(count, -1, np.int64) for count in self.words]
        for window, (owner, firsts) in enumerate(zip(self.windows.owners, self.firsts, strict=True)):
            word, piece = firsts.T
            deep = np.minimum(piece, len(self.windows.encodings[window]) - 1 - piece)
            better = deep > depth[owner][word]
            words[owner][word[better]] = np.asarray(values[window])[piece[better]]
            depth[owner][word[better]] = deep[better]
        return words

    def _has_piece(self, row: int) -> np.ndarray:
        found = np.zeros(self.words[row], bool)
        for window in range(*np.searchsorted(self.windows.owners, [row, row + 1])):
            found[self.firsts[window][:, 0]] = True
        return found


def align_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], *, length: int, stride: int | None = None
) -> WordPieces:
    """Tokenise sentences of words; sentences longer than `length` are cut into overlapping windows."""
    windows = cut_windows(tokenizer, [" ".join(words) for words in sentences], length=length, stride=stride)
    word_starts = [_word_starts(words) for words in sentences]
    firsts = []
    before: tuple[int, int] = (-1, -1)  # sentence and start of the previous window
    words_before = np.zeros(0, np.int64)
    for encoding, owner, start in zip(windows.encodings, windows.owners.tolist(), windows.starts.tolist(), strict=True):
        ends = np.array([end for _, end in encoding.offsets], np.int64)
        own = np.flatnonzero(ends > np.array([begin for begin, _ in encoding.offsets], np.int64))  # no special tokens
        word = np.searchsorted(word_starts[owner], ends[own] - 1, side="right") - 1
        new = np.ones(len(word), bool)
        new[1:] = word[1:] != word[:-1]
        if len(word) and start and before[0] == owner:
            # The first piece continues a word if the piece before it, in the previous window, belongs to that word.
            previous = start - 1 - before[1]
            new[0] = words_before[previous] != word[0]
        firsts.append(np.stack([word[new], own[new]], 1))
        before, words_before = (owner, start), word
    return WordPieces(windows, firsts, np.array([len(words) for words in sentences], np.int64))


def _word_starts(words: Sequence[str]) -> np.ndarray:
    """The character at which each word begins in the joined text."""
    lengths = np.array([len(word) + 1 for word in words], np.int64)
    return np.cumsum(lengths) - lengths
