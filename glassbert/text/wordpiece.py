"""WordPiece: a word as a row of pieces that the vocabulary has.

    unaffable -> un ##aff ##able

From the left, take the longest piece that the vocabulary has; go on behind it, where pieces are written with `##` to
say that they continue a word. If at some place nothing fits, not even one character, the whole word is unknown. The
pieces depend on the word alone, never on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

CONTINUES = "##"


class Piece(NamedTuple):
    """word[start:end] and its entry of the vocabulary."""

    token: str
    id: int
    start: int
    end: int


class WordPiece:
    def __init__(self, vocabulary: Mapping[str, int], unknown: str = "[UNK]", longest_word: int = 100):
        self.vocabulary = vocabulary
        self.unknown = unknown
        self.longest_word = longest_word
        self.longest_piece = max((len(token.removeprefix(CONTINUES)) for token in vocabulary), default=0)

    def split(self, word: str) -> list[Piece]:
        """The pieces of a word, or one unknown token for all of it."""
        pieces = self.known_pieces(word)
        if not pieces or pieces[-1].end < len(word):
            return [Piece(self.unknown, self.vocabulary[self.unknown], 0, len(word))]
        return pieces

    def known_pieces(self, word: str) -> list[Piece]:
        """The pieces up to the place where nothing fits; none for a word that is too long to be tried."""
        pieces: list[Piece] = []
        start = 0
        while start < len(word) <= self.longest_word:
            for end, token in self.candidates(word, start):
                if token in self.vocabulary:
                    pieces.append(Piece(token, self.vocabulary[token], start, end))
                    start = end
                    break
            else:
                break
        return pieces

    def candidates(self, word: str, start: int) -> Iterator[tuple[int, str]]:
        """What could stand at `start`, the longest first, and where it would end."""
        prefix = CONTINUES if start else ""
        for end in range(min(len(word), start + self.longest_piece), start, -1):
            yield end, prefix + word[start:end]
