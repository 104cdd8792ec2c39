"""WordPiece: split a text into words, and a word into tokens of the vocabulary.

    unaffable -> un ##aff ##able

The match is greedy from the left: at each position the longest token of the vocabulary wins. A token inside a word has
the prefix `##`. If no token matches at some position, not even one character, the whole word becomes [UNK]. The tokens
of a word depend on the word alone, not on its context.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from glassbert.text import character_ranges as ranges
from glassbert.text.characters import character_class

CONTINUATION_PREFIX = "##"
_space, _mark = character_class(ranges.WHITESPACE), character_class(ranges.PUNCTUATION)
WORD = re.compile(f"[^{_space}{_mark}]+|[{_mark}]")


def split_words(text: str) -> list[tuple[int, int]]:
    """The (start, end) of each word in a normalised text. Words are separated by white space.

    Each punctuation mark is a word of its own: "don't stop" has the words don, ', t and stop.
    """
    return [match.span() for match in WORD.finditer(text)]


class Piece(NamedTuple):
    """A token that covers word[start:end]."""

    token: str
    id: int
    start: int
    end: int


class WordPiece:
    """Splits words by greedy longest match. Words of more than `longest_word` characters become `unknown`."""

    def __init__(self, vocabulary: Mapping[str, int], unknown: str = "[UNK]", longest_word: int = 100):
        self.vocabulary = vocabulary
        self.unknown = unknown
        self.longest_word = longest_word
        self.longest_piece = max((len(token.removeprefix(CONTINUATION_PREFIX)) for token in vocabulary), default=0)

    def split(self, word: str) -> list[Piece]:
        """The pieces of a word, or one unknown token that covers all of it."""
        pieces = self.known_pieces(word)
        if not pieces or pieces[-1].end < len(word):
            return [Piece(self.unknown, self.vocabulary[self.unknown], 0, len(word))]
        return pieces

    def known_pieces(self, word: str) -> list[Piece]:
        """The pieces up to the first position without a match; none for a word longer than `longest_word`."""
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
        """(end, token) of every possible token at `start`, longest first."""
        prefix = CONTINUATION_PREFIX if start else ""
        for end in range(min(len(word), start + self.longest_piece), start, -1):
            yield end, prefix + word[start:end]
