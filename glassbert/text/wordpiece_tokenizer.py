"""`WordPieceTokenizer`: BERT's tokenizer by hand, from the text to the ids and back.

    text -> special tokens found -> normalised -> words -> pieces -> [CLS] ... [SEP]

It gives what Hugging Face's `tokenizers` gives, token for token and offset for offset. Read it first, then
`normalise.py`, `words.py` and `wordpiece.py`; how a vocabulary is learnt is told in `learning.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from glassbert.text import wordpiece_files
from glassbert.text.bulk import SPECIAL, PartIds
from glassbert.text.encoding import Encoding, added_token, truncated
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS, Progress, Tokenizer, checked
from glassbert.text.wordpiece import CONTINUES, WordPiece
from glassbert.text.wordpiece_files import Description
from glassbert.text.words import split_words

# Punctuation that is written without a space before it.
CLOSES_UP = (" .", " ?", " !", " ,")


class WordPieceTokenizer(Tokenizer):
    special_names = SPECIAL_TOKENS

    def __init__(self, description: Description):
        self.description = description
        self.vocabulary = description.vocabulary
        self.normaliser = description.normaliser
        self.wordpiece = WordPiece(self.vocabulary, "[UNK]", description.longest_word)
        self.special_ids = tuple(sorted(self.vocabulary[token] for token in SPECIAL_TOKENS))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8192,
        lowercase: bool = True,
        min_frequency: int = 2,
        progress: Progress | None = None,
    ) -> Self:
        from glassbert.text.learning import learn_vocabulary

        normaliser = Normaliser(lowercase=lowercase)
        tokens = learn_vocabulary(texts, normaliser, vocab_size, min_frequency, progress)
        return cls(Description(tokens, normaliser))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls(wordpiece_files.read(path))

    def save(self, folder: str | Path) -> None:
        wordpiece_files.write(folder, self.description)

    # ---- text to ids ----

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        special_tokens: bool = True,
        padding: bool | int = False,
    ) -> list[Encoding]:
        checked(texts, pairs)
        partners: Sequence[str | None] = [None] * len(texts) if pairs is None else pairs
        rows = [
            self._joined(
                self._plain(text), None if partner is None else self._plain(partner), max_length, special_tokens
            )
            for text, partner in zip(texts, partners, strict=True)
        ]
        if padding is False:
            return rows
        length = max(map(len, rows), default=0) if padding is True else padding
        return [row.padded(length, "[PAD]", self.pad_id) for row in rows]

    def _plain(self, text: str) -> Encoding:
        """The tokens of a text and nothing around them."""
        encoding = Encoding()
        start = word_number = 0
        for stretch in SPECIAL.split(text):  # plain text and special tokens by turns
            if stretch in SPECIAL_TOKENS:
                encoding.append(stretch, self.vocabulary[stretch], (start, start + len(stretch)), word_number)
                word_number += 1
            else:
                normalised = self.normaliser(stretch)
                for word_start, word_end in split_words(normalised.text):
                    for piece in self.wordpiece.split(normalised.text[word_start:word_end]):
                        first, end = normalised.span(word_start + piece.start, word_start + piece.end)
                        encoding.append(piece.token, piece.id, (start + first, start + end), word_number)
                    word_number += 1
            start += len(stretch)
        return encoding

    def _joined(self, first: Encoding, second: Encoding | None, max_length: int | None, special: bool) -> Encoding:
        """[CLS] first [SEP] second [SEP], cut to `max_length`."""
        if max_length is not None:
            added = (2 if second is None else 3) if special else 0
            first, second = truncated(first, second, max_length - added)
        if special:
            cls, sep = added_token("[CLS]", self.cls_id), added_token("[SEP]", self.sep_id)
            first, second = cls + first + sep, None if second is None else second + sep
        return first if second is None else first + second.with_type(1)

    def encode_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._part_ids.encode(texts)

    # ---- ids to text ----

    def decode(self, ids: Sequence[int] | np.ndarray | Encoding, skip_special_tokens: bool = True) -> str:
        row = ids.ids if isinstance(ids, Encoding) else ids
        skipped = set(self.special_ids) if skip_special_tokens else set()
        tokens = [self.id_to_token(id) for id in row if int(id) not in skipped]
        return "".join(self._spelled(token, is_first=i == 0) for i, token in enumerate(tokens))

    @staticmethod
    def _spelled(token: str, is_first: bool) -> str:
        """A token with the space before it, if there is one."""
        if not is_first:
            token = token[len(CONTINUES) :] if token.startswith(CONTINUES) else f" {token}"
        for mark in CLOSES_UP:
            token = token.replace(mark, mark[1:])
        return token

    # ---- the vocabulary ----

    @property
    def fingerprint(self) -> str:
        return self.description.fingerprint

    @cached_property
    def continues_word(self) -> np.ndarray:  # type: ignore[override]
        return np.array([token.startswith(CONTINUES) for token in self.description.tokens])

    @cached_property
    def _part_ids(self) -> PartIds:
        return PartIds(self.wordpiece, self.normaliser)
