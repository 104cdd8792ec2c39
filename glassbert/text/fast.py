"""`FastTokenizer`: the `Tokenizer` interface implemented with Hugging Face's `tokenizers`.

It loads WordPiece, byte-level BPE and Unigram tokenizers. For WordPiece it writes the same files and has the same
fingerprint as `WordPieceTokenizer`.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers

from glassbert.checkpoints.packaged import packaged_folder
from glassbert.errors import GlassBertError, TextError
from glassbert.files import adding_files, verify_checksums, write_json
from glassbert.text import wordpiece_files as files
from glassbert.text.bulk_encoding import ChunkIds
from glassbert.text.encoding import Encoding
from glassbert.text.tokenizer import SPECIAL_TOKENS, Progress, Tokenizer, check_texts
from glassbert.text.wordpiece import CONTINUATION_PREFIX, WordPiece
from glassbert.text.wordpiece_files import Description

# Names of the five special tokens to try if no file gives them, in the order of `ROLES`.
USUAL_NAMES = (("[PAD]", "<pad>"), ("[UNK]", "<unk>"), ("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[MASK]", "<mask>"))
# A tokenizer of GPT-2 has one special token, which takes all five roles.
ENDS_OF_TEXT = ("<|endoftext|>",)
LARGEST_ID = 1 << 24  # of a vocabulary; a larger one would need gigabytes of embeddings
# The character with which a token marks a space before it.
SPACE_MARKS = {"ByteLevel": "Ġ", "Metaspace": "▁"}


def load_tokenizer(path: str | Path) -> FastTokenizer:
    """Load the tokenizer of a folder (from GlassBERT or Hugging Face), of a tokenizer.json or of a vocab.txt.

    "mini" is the tokenizer of the model that ships with the package, unless there is a folder of that name.
    """
    packaged = None if os.path.exists(os.path.expanduser(path)) else packaged_folder(str(path))
    return FastTokenizer.load(packaged or path)


@contextmanager
def library_errors(where: str) -> Iterator[None]:
    """Context manager: turns what the library raises, or what a file of wrong types causes, into a `TextError`."""
    try:
        yield
    except GlassBertError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise TextError(f"{where} cannot be loaded: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which is no Exception
            raise
        raise TextError(f"{where} cannot be used: the tokenizers library stopped: {error}") from error


class FastTokenizer(Tokenizer):
    def __init__(self, content: dict[str, Any], names: Sequence[str] = SPECIAL_TOKENS, where: str = "the tokenizer"):
        """`content` is a parsed tokenizer.json; `names` are the special tokens in the order of `ROLES`."""
        self._content = {**content, "truncation": None, "padding": None}
        with library_errors(where):
            self._rust = tokenizers.Tokenizer.from_str(json.dumps(self._content))
        self._lock = threading.Lock()  # truncation is state of the library's object, not an argument of a call
        self.vocabulary = self._rust.get_vocab(with_added_tokens=True)
        missing = [name for name in names if name not in self.vocabulary]
        if missing:
            raise TextError(
                f"{where}: the vocabulary of {len(self.vocabulary):,} entries has no {' '.join(missing)}; "
                "a BERT tokenizer needs tokens for padding, unknown words, start, end and mask"
            )
        pad, unknown, cls, sep, mask = names
        self.special_names = (pad, unknown, cls, sep, mask)
        added = {token["id"] for token in content.get("added_tokens", ()) if token.get("special")}
        self.special_ids = tuple(sorted(added | {self.vocabulary[name] for name in names}))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._content, self.special_names)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8192,
        lowercase: bool = True,
        min_frequency: int = 2,
        progress: Progress | None = None,
    ) -> Self:
        """As `WordPieceTokenizer.train`, with the trainer of `tokenizers`: faster, but not deterministic."""
        from glassbert.text.vocabulary_training import (
            MAX_CHARACTERS,
            character_limit,
            check_size,
            choose_normaliser,
            warn_of_small_vocabulary,
        )

        check_size(vocab_size, min_frequency)
        normaliser, texts = choose_normaliser(texts, lowercase)
        empty = FastTokenizer(files.as_json(Description(SPECIAL_TOKENS, normaliser)))
        trainer = tokenizers.trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=list(SPECIAL_TOKENS),
            limit_alphabet=min(MAX_CHARACTERS, character_limit(vocab_size)),
            show_progress=False,
        )

        def with_progress() -> Iterable[str]:
            done = 0
            for text in texts:
                check_texts([text])
                yield text
                done += len(text)
                if progress:
                    progress("counting words", done, 0)

        empty._rust.train_from_iterator(with_progress(), trainer)
        vocabulary = empty._rust.get_vocab()
        tokens = tuple(sorted(vocabulary, key=vocabulary.__getitem__))
        if len(tokens) < vocab_size:
            if len(tokens) <= len(SPECIAL_TOKENS):
                raise TextError("the text contains no words: a vocabulary cannot be trained")
            warn_of_small_vocabulary(vocab_size, len(tokens))
        return cls(files.as_json(Description(tokens, normaliser)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        file = files.find(path)
        verify_checksums(file.parent, TextError, files.FILES)
        with library_errors(str(file)):
            if file.suffix != ".json":
                return cls(files.as_json(files.from_vocabulary(file)), where=str(file))
            content = files.read_json(file)
            tokenizer = cls(content, special_names(file, content), str(file))
            tokenizer._try()
        return tokenizer

    def _try(self) -> None:
        """Encode and decode a few words, so that a file with parts that do not fit together fails when it is loaded."""
        if max(self.vocabulary.values()) > LARGEST_ID:
            raise TextError(f"an id of the vocabulary is above {LARGEST_ID:,}; ids count its entries from 0")
        for row in self.encode_batch(["a word, 12"], ["and"]) + self.encode_batch(["a word"]):
            self.decode(row)
        _ = self.fingerprint, self.kind, self.continues_word

    def save(self, folder: str | Path) -> None:
        if self.description is not None:
            files.write(folder, self.description)
            return
        folder = Path(folder)
        special = dict(zip(files.TOKEN_KEYS, self.special_names, strict=True))
        with adding_files(folder, files.FILES):
            write_json(folder / files.SPECIAL_FILE, special)
            write_json(folder / files.CONFIG_FILE, {"tokenizer_class": "PreTrainedTokenizerFast", **special})
            write_json(folder / files.JSON_FILE, self._content)

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
        if max_length is not None:
            added = self._rust.num_special_tokens_to_add(pairs is not None) if special_tokens else 0
            if max_length < added:
                raise TextError(f"max_length {max_length} is too small for the {added} special tokens")
        inputs: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with self._lock:
            if max_length is None:
                self._rust.no_truncation()
            else:
                self._rust.enable_truncation(max_length)
            with library_errors("the tokenizer"):
                found = self._rust.encode_batch(inputs, add_special_tokens=special_tokens)
        rows = [
            Encoding(e.ids, e.tokens, e.offsets, e.type_ids, e.attention_mask, e.special_tokens_mask, e.word_ids)
            for e in found
        ]
        if padding is False:
            return rows
        length = max(map(len, rows), default=0) if padding is True else padding
        return [row.padded(length, self.special_names[0], self.pad_id) for row in rows]

    def encode_ids(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        if self._chunk_ids is not None:
            return self._chunk_ids.encode(texts)
        check_texts(texts)
        with self._lock:
            self._rust.no_truncation()
            with library_errors("the tokenizer"):
                rows = [e.ids for e in self._rust.encode_batch_fast(list(texts), add_special_tokens=False)]
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.concatenate([np.zeros(0, np.uint32), *(np.array(row, np.uint32) for row in rows)])
        return flat, counts

    # ---- ids to text ----

    def decode(self, ids: Sequence[int] | np.ndarray | Encoding, skip_special_tokens: bool = True) -> str:
        row = [int(id) for id in (ids.ids if isinstance(ids, Encoding) else ids)]
        for id in row:
            self.id_to_token(id)
        skipped = set(self.special_ids) if skip_special_tokens else set()
        with library_errors("the tokenizer"):
            return self._rust.decode([id for id in row if id not in skipped], skip_special_tokens=False)

    # ---- the vocabulary ----

    @cached_property
    def description(self) -> Description | None:
        """The description of a BERT WordPiece tokenizer; None for any other kind."""
        try:
            return files.from_json(self._content, Path("tokenizer.json"))
        except TextError:
            return None

    @cached_property
    def fingerprint(self) -> str:
        if self.description is not None:
            return self.description.fingerprint
        content = json.dumps([self._content, self.special_names], ensure_ascii=True, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def kind(self) -> str:
        """WordPiece, BPE, Unigram or WordLevel."""
        return str(self._content["model"].get("type") or type(self._rust.model).__name__)

    @cached_property
    def space_mark(self) -> str | None:
        """The character that marks a space before a token; None if continuations are marked instead, as with ##."""
        parts = json.dumps([self._content.get(part) for part in ("pre_tokenizer", "decoder")])
        return next((mark for kind, mark in SPACE_MARKS.items() if f'"{kind}"' in parts), None)

    @cached_property
    def continues_word(self) -> np.ndarray:  # type: ignore[override]
        mark = self.space_mark
        continues = np.zeros(self.vocab_size, bool)
        for token, id in self.vocabulary.items():
            continues[id] = token.startswith(CONTINUATION_PREFIX) if mark is None else not token.startswith(mark)
        continues[list(self.special_ids)] = False
        return continues

    @cached_property
    def _chunk_ids(self) -> ChunkIds | None:
        if self.description is None:
            return None
        wordpiece = WordPiece(self.vocabulary, "[UNK]", self.description.longest_word)
        return ChunkIds(wordpiece, self.description.normaliser)


def special_names(file: Path, content: dict[str, Any]) -> list[str]:
    """The five special tokens, from the config files next to tokenizer.json, or the usual names."""
    configured: dict[str, Any] = {}
    for name in (files.SPECIAL_FILE, files.CONFIG_FILE):
        config_file = file.with_name(name)
        if config_file.is_file():
            configured.update({key: value for key, value in files.read_json(config_file).items() if value})
    model = content.get("model")
    entries = model.get("vocab", ()) if isinstance(model, dict) else ()
    known = {entry if isinstance(entry, str) else entry[0] for entry in entries}
    known |= {token.get("content") for token in content.get("added_tokens", ())}
    names = []
    end = _content(configured.get("eos_token")) or next((name for name in ENDS_OF_TEXT if name in known), None)
    for key, usual in zip(files.TOKEN_KEYS, USUAL_NAMES, strict=True):
        found = _content(configured.get(key)) or next((u for u in usual if u in known), end)
        names.append(found or usual[0])
    return names


def _content(token: Any) -> str | None:
    """The text of a special token in a config file."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
