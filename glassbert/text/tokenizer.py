"""`Tokenizer`: the interface of all tokenizers.

`WordPieceTokenizer` is pure Python. `FastTokenizer` uses Hugging Face's `tokenizers`. Both write the same files and
give the same tokens.
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

Progress = Callable[[str, int, int], None]  # the name of the stage, amount done, total amount (0: unknown)


class Tokenizer(ABC):
    """Converts text to ids and back. `special_names` has the five special tokens in the order of `ROLES`."""

    special_names: tuple[str, str, str, str, str]
    vocabulary: dict[str, int]
    special_ids: tuple[int, ...]

    # ---- training, loading, saving ----

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
        """Train a WordPiece tokenizer with exactly `vocab_size` entries on `texts`."""

    @classmethod
    @abstractmethod
    def load(cls, path: str | Path) -> Self:
        """Load a folder with a tokenizer.json or a vocab.txt, or one of these files."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the files that `load` and Hugging Face's AutoTokenizer read."""

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
        """One encoding per text, or per pair (texts[i], pairs[i]).

        `max_length` includes the special tokens; of a pair the longer text is truncated first. `padding` pads to the
        longest encoding of the batch (True) or to a given length.
        """

    @abstractmethod
    def encode_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts, concatenated (uint32), and the number of ids of each text (int64).

        The fast method for corpora: it adds no special tokens and computes no offsets.
        """

    def encode(
        self, text: str, pair: str | None = None, *, max_length: int | None = None, special_tokens: bool = True
    ) -> Encoding:
        pairs = None if pair is None else [pair]
        return self.encode_batch([text], pairs, max_length=max_length, special_tokens=special_tokens)[0]

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text, without [CLS] and [SEP]."""
        return self.encode(text, special_tokens=False).tokens

    def batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """The model inputs input_ids, attention_mask and token_type_ids, each [texts, longest] int64."""
        rows = self.encode_batch(texts, pairs, max_length=max_length, padding=True)
        return {
            "input_ids": np.array([row.ids for row in rows], np.int64),
            "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
            "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
        }

    # ---- ids to text ----

    @abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray | Encoding, skip_special_tokens: bool = True) -> str:
        """The text of ids, with word pieces joined to words."""

    # ---- the vocabulary ----

    @cached_property
    def _tokens(self) -> dict[int, str]:
        return {id: token for token, id in self.vocabulary.items()}

    @property
    def vocab_size(self) -> int:
        """The largest id + 1: the number of rows of a model's token embedding."""
        return max(self._tokens) + 1

    def token_to_id(self, token: str) -> int | None:
        return self.vocabulary.get(token)

    def id_to_token(self, id: int) -> str:
        try:
            return self._tokens[int(id)]
        except KeyError:
            raise TextError(f"{id} is not an id of this tokenizer; its ids are 0 to {self.vocab_size - 1}") from None

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
        if self.special_names[4] == self.special_names[3]:  # a tokenizer with one special token, as that of GPT-2
            raise TextError(f"this tokenizer has no mask token, only {self.special_names[3]!r}; nothing can be masked")
        return self.vocabulary[self.special_names[4]]

    @property
    def neutral_id(self) -> int:
        """A token that says nothing: the mask, or the end of a text where there is no mask."""
        return self.vocabulary[self.special_names[4]]

    @property
    @abstractmethod
    def continues_word(self) -> np.ndarray:
        """bool [vocab_size]: True for tokens that continue a word, such as `##ing`."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A checksum of everything that determines the ids; equal for both implementations of one tokenizer."""

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size:,} entries, fingerprint {self.fingerprint[:12]})"


def check_texts(texts: Sequence[str], pairs: Sequence[str] | None = None) -> None:
    """Raise TextError unless `texts` (and `pairs`) are lists of valid strings of the same length."""
    for name, given in (("texts", texts), ("pairs", pairs)):
        if isinstance(given, str):
            raise TextError(f"{name} must be a list of strings, got one string; call encode() for one text")
        for i, text in enumerate(given or ()):
            check_text(text, f"{name}[{i}]")
    if pairs is not None and len(pairs) != len(texts):
        raise TextError(f"texts and pairs must have the same length, got {len(texts)} and {len(pairs)}")


def check_text(text: str, name: str = "the text") -> None:
    if not isinstance(text, str):
        raise TextError(f"{name} must be a string, got {type(text).__name__}")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"{name} has half a surrogate pair (U+{ord(text[error.start]):04X}) at character {error.start}: this is "
            "not valid Unicode; decode the bytes with errors='replace'"
        ) from None
