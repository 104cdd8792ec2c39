"""What every tokenizer can do, whoever does the work.

`WordPieceTokenizer` is written by hand and meant to be read; `FastTokenizer` hands the work to Hugging Face's
`tokenizers`. They write the same files and give the same tokens, so a program can use either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from glassbert.errors import TextError
from glassbert.text.encoding import Encoding

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROLES = ("pad", "unknown", "cls", "sep", "mask")

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much (0: not known)


class Tokenizer(ABC):
    """Text to ids and back. `special_names` holds the five special tokens in the order of `ROLES`."""

    special_names: tuple[str, str, str, str, str]
    vocabulary: dict[str, int]
    special_ids: tuple[int, ...]

    # ---- making, opening, keeping ----

    @classmethod
    @abstractmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8192,
        lowercase: bool = True,
        min_frequency: int = 2,
        progress: Progress | None = None,
    ) -> Self:
        """A WordPiece tokenizer whose vocabulary of exactly `vocab_size` entries is learnt from `texts`."""

    @classmethod
    @abstractmethod
    def load(cls, path: str | Path) -> Self:
        """From a folder with a tokenizer.json or a vocab.txt, or from such a file."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the files that `load` and Hugging Face's AutoTokenizer open."""

    # ---- text to ids ----

    @abstractmethod
    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        special_tokens: bool = True,
        padding: bool | int = False,
    ) -> list[Encoding]:
        """An encoding for every text, or every text with its partner of `pairs`.

        `max_length` cuts what is longer, special tokens counted; of a pair the longer text is cut first. `padding`
        fills up to the longest of the batch, or to a given length.
        """

    @abstractmethod
    def encode_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts one after another (uint32), and how many each text has (int64).

        The way for whole corpora: no special tokens added, no offsets, nothing but ids, as fast as can be.
        """

    def encode(
        self, text: str, pair: str | None = None, *, max_length: int | None = None, special_tokens: bool = True
    ) -> Encoding:
        pairs = None if pair is None else [pair]
        return self.encode_batch([text], pairs, max_length=max_length, special_tokens=special_tokens)[0]

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text, without special ones around them."""
        return self.encode(text, special_tokens=False).tokens

    def batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """input_ids, attention_mask and token_type_ids, [texts, longest], as a model takes them."""
        rows = self.encode_batch(texts, pairs, max_length=max_length, padding=True)
        return {
            "input_ids": np.array([row.ids for row in rows], np.int64),
            "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
            "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
        }

    # ---- ids to text ----

    @abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray | Encoding, skip_special_tokens: bool = True) -> str:
        """The text of ids: pieces joined to words again."""

    # ---- the vocabulary ----

    @cached_property
    def _tokens(self) -> dict[int, str]:
        return {id: token for token, id in self.vocabulary.items()}

    @property
    def vocab_size(self) -> int:
        """How many rows the embedding of a model needs: one more than the largest id."""
        return max(self._tokens) + 1

    def token_to_id(self, token: str) -> int | None:
        return self.vocabulary.get(token)

    def id_to_token(self, id: int) -> str:
        try:
            return self._tokens[int(id)]
        except KeyError:
            raise TextError(f"{id} is no id of this tokenizer, whose ids are 0 to {self.vocab_size - 1}") from None

    @property
    def pad_id(self) -> int:
        return self.vocabulary[self.special_names[0]]

    @property
    def unknown_id(self) -> int:
        return self.vocabulary[self.special_names[1]]

    @property
    def cls_id(self) -> int:
        return self.vocabulary[self.special_names[2]]

    @property
    def sep_id(self) -> int:
        return self.vocabulary[self.special_names[3]]

    @property
    def mask_id(self) -> int:
        return self.vocabulary[self.special_names[4]]

    @property
    @abstractmethod
    def continues_word(self) -> np.ndarray:
        """bool [vocab_size]: True where a token continues the word before it, as `##ing` does."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A checksum of all that decides which ids a text gets; equal for the two twins of one tokenizer."""

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size:,} entries, fingerprint {self.fingerprint[:12]})"


def checked(texts: Sequence[str], pairs: Sequence[str] | None = None) -> None:
    """Refuse what is no list of strings, and strings that are no text."""
    for name, given in (("texts", texts), ("pairs", pairs)):
        if isinstance(given, str):
            raise TextError(f"{name} must be a list of strings, got one string; use encode for a single text")
        for i, text in enumerate(given or ()):
            check_text(text, f"{name}[{i}]")
    if pairs is not None and len(pairs) != len(texts):
        raise TextError(f"there are {len(texts)} texts and {len(pairs)} partners for them")


def check_text(text: str, name: str = "the text") -> None:
    if not isinstance(text, str):
        raise TextError(f"{name} must be a string, got {type(text).__name__}")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"{name} has half a surrogate pair (U+{ord(text[error.start]):04X}) at character {error.start}: it is no "
            "valid Unicode; decode its bytes with errors='replace'"
        ) from None
