"""Ids for whole corpora: every distinct string is tokenised once, all others are looked up.

The pieces of a word depend on the word alone, and nothing that happens on one side of a space is felt on the other. So
a text is cut at white space, and a table says which ids each part has: "dog," is worked out once and found a thousand
times. The ids are kept as bytes, because joining bytes is the fastest way to put a row together.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

import numpy as np

from glassbert.errors import TextError
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS, check_text, checked
from glassbert.text.wordpiece import WordPiece
from glassbert.text.words import WORD

ENTRIES = 1 << 19  # of either table: at most some 100 MB
LONGEST = 64  # characters of a part that is worth keeping
SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
# Where Python's split() sees white space and BERT sees something to remove: such a text is not cut at all.
NO_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class WordIds(dict[str, bytes]):
    """Normalised word -> its ids as bytes; filled as words are met."""

    def __init__(self, wordpiece: WordPiece):
        super().__init__()
        self.wordpiece = wordpiece

    def __missing__(self, word: str) -> bytes:
        ids = array("I", [piece.id for piece in self.wordpiece.split(word)]).tobytes()
        if len(word) <= LONGEST:
            if len(self) >= ENTRIES:
                self.clear()
            self[word] = ids
        return ids


class PartIds(dict[str, bytes]):
    """Anything between white space -> its ids as bytes; filled as parts are met."""

    def __init__(self, wordpiece: WordPiece, normaliser: Normaliser):
        super().__init__()
        self.words = WordIds(wordpiece)
        self.normaliser = normaliser
        vocabulary = wordpiece.vocabulary
        self.special = {token: array("I", [vocabulary[token]]).tobytes() for token in SPECIAL_TOKENS}

    def __missing__(self, part: str) -> bytes:
        check_text(part)
        if "[" in part:
            ids = b"".join(self.special.get(piece) or self.plain(piece) for piece in SPECIAL.split(part))
        else:
            ids = self.plain(part)
        if len(part) <= LONGEST:
            if len(self) >= ENTRIES:
                self.clear()
            self[part] = ids
        return ids

    def plain(self, text: str) -> bytes:
        """Ids of what holds no special token."""
        return b"".join(map(self.words.__getitem__, WORD.findall(self.normaliser.text(text))))

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in a row, and how many each has."""
        if isinstance(texts, str):
            checked(texts)
        ids_of = self.__getitem__
        try:
            rows = [b"".join(map(ids_of, cut(text))) for text in texts]
        except (TextError, AttributeError, TypeError):
            checked(texts)  # knows how to say which text is none
            raise
        counts = np.fromiter(map(len, rows), np.int64, len(rows)) // array("I").itemsize
        return np.frombuffer(b"".join(rows), np.uint32), counts


def cut(text: str) -> list[str]:
    """The parts of a text between white space."""
    if not text.isprintable() and NO_SPACE.search(text):
        return [text]
    return text.split()
