"""`WordPieceTokenizer`: BERT's tokenizer in pure Python.

    text -> find special tokens -> normalise -> words -> pieces -> [CLS] ... [SEP]

Its tokens and offsets equal those of Hugging Face's `tokenizers`. The steps are in `normalise.py` and `wordpiece.py`;
`vocabulary_training.py` trains the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from glassbert.text import wordpiece_files
from glassbert.text.bulk_encoding import SPECIAL, ChunkIds
from glassbert.text.encoding import Encoding, added_token, truncated
from glassbert.text.tokenizer import SPECIAL_TOKENS, Progress, Tokenizer, check_texts
from glassbert.text.wordpiece import CONTINUATION_PREFIX, WordPiece, split_words
from glassbert.text.wordpiece_files import Description

# Punctuation that `decode` writes without a space before it.
NO_SPACE_BEFORE = (" .", " ?", " !", " ,")


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
        from glassbert.text.vocabulary_training import choose_normaliser, train_vocabulary

        normaliser, texts = choose_normaliser(texts, lowercase)
        tokens = train_vocabulary(texts, normaliser, vocab_size, min_frequency, progress)
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
        check_texts(texts, pairs)
        seconds: Sequence[str | None] = [None] * len(texts) if pairs is None else pairs
        rows = [
            self._joined(self._plain(text), None if second is None else self._plain(second), max_length, special_tokens)
            for text, second in zip(texts, seconds, strict=True)
        ]
        if padding is False:
            return rows
        length = max(map(len, rows), default=0) if padding is True else padding
        return [row.padded(length, "[PAD]", self.pad_id) for row in rows]

    def _plain(self, text: str) -> Encoding:
        """The tokens of a text, without [CLS] and [SEP]."""
        encoding = Encoding()
        start = word_number = 0
        for part in SPECIAL.split(text):  # alternates between plain text and special tokens
            if part in SPECIAL_TOKENS:
                encoding.append(part, self.vocabulary[part], (start, start + len(part)), word_number)
                word_number += 1
            else:
                normalised = self.normaliser(part)
                for word_start, word_end in split_words(normalised.text):
                    for piece in self.wordpiece.split(normalised.text[word_start:word_end]):
                        first, end = normalised.span(word_start + piece.start, word_start + piece.end)
                        encoding.append(piece.token, piece.id, (start + first, start + end), word_number)
                    word_number += 1
            start += len(part)
        return encoding

    def _joined(self, first: Encoding, second: Encoding | None, max_length: int | None, special: bool) -> Encoding:
        """[CLS] first [SEP] second [SEP], truncated to `max_length`."""
        if max_length is not None:
            added = (2 if second is None else 3) if special else 0
            first, second = truncated(first, second, max_length - added)
        if special:
            cls, sep = added_token("[CLS]", self.cls_id), added_token("[SEP]", self.sep_id)
            first, second = cls + first + sep, None if second is None else second + sep
        return first if second is None else first + second.with_type(1)

    def encode_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self._chunk_ids.encode(texts)

    # ---- ids to text ----

    def decode(self, ids: Sequence[int] | np.ndarray | Encoding, skip_special_tokens: bool = True) -> str:
        row = ids.ids if isinstance(ids, Encoding) else ids
        skipped = set(self.special_ids) if skip_special_tokens else set()
        tokens = [self.id_to_token(id) for id in row if int(id) not in skipped]
        return "".join(self._spelled(token, is_first=i == 0) for i, token in enumerate(tokens))

    @staticmethod
    def _spelled(token: str, is_first: bool) -> str:
        """A token as it is written in decoded text, with a space before it where one is needed."""
        if not is_first:
            token = token[len(CONTINUATION_PREFIX) :] if token.startswith(CONTINUATION_PREFIX) else f" {token}"
        for mark in NO_SPACE_BEFORE:
            token = token.replace(mark, mark[1:])
        return token

    # ---- the vocabulary ----

    @property
    def fingerprint(self) -> str:
        return self.description.fingerprint

    @cached_property
    def continues_word(self) -> np.ndarray:  # type: ignore[override]
        return np.array([token.startswith(CONTINUATION_PREFIX) for token in self.description.tokens])

    @cached_property
    def _chunk_ids(self) -> ChunkIds:
        return ChunkIds(self.wordpiece, self.normaliser)
