"""Fast encoding of many texts to ids, with a cache of distinct strings.

Tokens never cross white space. A text is split at white space into chunks such as "dog,", and the ids of each distinct
chunk are computed once and cached. Ids are stored as bytes, because joining bytes is the fastest way to build a row.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

import numpy as np

from glassbert.errors import TextError
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS, check_text, check_texts
from glassbert.text.wordpiece import WORD, WordPiece

MAX_ENTRIES = 1 << 19  # of each cache: at most about 100 MB
MAX_CACHED_LENGTH = 64  # longer strings are not cached
SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
# str.split() treats these as white space, but BERT removes them. A text that contains one is not split into chunks.
NOT_A_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class WordIds(dict[str, bytes]):
    """Cache: normalised word -> its ids as bytes."""

    def __init__(self, wordpiece: WordPiece):
        super().__init__()
        self.wordpiece = wordpiece

    def __missing__(self, word: str) -> bytes:
        ids = array("I", [piece.id for piece in self.wordpiece.split(word)]).tobytes()
        if len(word) <= MAX_CACHED_LENGTH:
            if len(self) >= MAX_ENTRIES:
                self.clear()
            self[word] = ids
        return ids


class ChunkIds(dict[str, bytes]):
    """Cache: string between white space -> its ids as bytes."""

    def __init__(self, wordpiece: WordPiece, normaliser: Normaliser):
        super().__init__()
        self.words = WordIds(wordpiece)
        self.normaliser = normaliser
        vocabulary = wordpiece.vocabulary
        self.special = {token: array("I", [vocabulary[token]]).tobytes() for token in SPECIAL_TOKENS}

    def __missing__(self, chunk: str) -> bytes:
        check_text(chunk)
        if "[" in chunk:
            ids = b"".join(self.special.get(part) or self.plain(part) for part in SPECIAL.split(chunk))
        else:
            ids = self.plain(chunk)
        if len(chunk) <= MAX_CACHED_LENGTH:
            if len(self) >= MAX_ENTRIES:
                self.clear()
            self[chunk] = ids
        return ids

    def plain(self, text: str) -> bytes:
        """The ids of a text without special tokens."""
        return b"".join(map(self.words.__getitem__, WORD.findall(self.normaliser.text(text))))

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts, concatenated (uint32), and the number of ids of each text (int64)."""
        if isinstance(texts, str):
            check_texts(texts)
        ids_of = self.__getitem__
        try:
            rows = [b"".join(map(ids_of, split_chunks(text))) for text in texts]
        except (TextError, AttributeError, TypeError):
            check_texts(texts)  # raises an error that names the text
            raise
        counts = np.fromiter(map(len, rows), np.int64, len(rows)) // array("I").itemsize
        return np.frombuffer(b"".join(rows), np.uint32), counts


def split_chunks(text: str) -> list[str]:
    """Split a text at white space."""
    if not text.isprintable() and NOT_A_SPACE.search(text):
        return [text]
    return text.split()
