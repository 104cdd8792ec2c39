"""The files of a corpus: names, types, and `ShardWriter`, which writes them.

    DIR/manifest.json               contents, sources and the checksum of every file; written last
    DIR/tokenizer.json, vocab.txt   the tokenizer of the corpus
    DIR/train-00000.tokens.npy      [tokens] token ids, 16 bits if the vocabulary allows it, no special tokens
    DIR/train-00000.sentences.npy   [sentences] the end of each sentence in the tokens
    DIR/train-00000.documents.npy   [documents, 2] the end of each document in the sentences, and its source number
    DIR/validation-00000...         the same for the held-out documents
    DIR/.building/                  exists only during a build

A shard is three of these files. All are plain arrays that are memory-mapped, so a corpus may be larger than memory. A
document is always in one shard.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.files import atomic_write

FORMAT = "glassbert-corpus"
VERSION = 1
MANIFEST = "manifest.json"
BUILDING = ".building"
TRAIN, VALIDATION = SPLITS = ("train", "validation")
TOKENS, SENTENCES, DOCUMENTS = ARRAYS = ("tokens", "sentences", "documents")
OFFSET_TYPE = np.dtype("<u4")


def token_type(vocab_size: int) -> np.dtype:
    """The smallest unsigned integer type that holds every id."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def array_file(split: str, shard: int, array: str) -> str:
    return f"{split}-{shard:05d}.{array}.npy"


def is_corpus_file(path: Path) -> bool:
    """Whether the file name is that of a shard file."""
    return path.name.startswith(SPLITS) and path.name.endswith(tuple(f".{array}.npy" for array in ARRAYS))


# ---- writing shards ----


@dataclass(frozen=True)
class TokenizedDocuments:
    """Tokenized documents as flat arrays. Every sentence has at least one token, every document one sentence."""

    tokens: np.ndarray  # [tokens]
    sentence_tokens: np.ndarray  # [sentences] number of tokens
    document_sentences: np.ndarray  # [documents] number of sentences
    sources: np.ndarray  # [documents] source numbers

    def document_tokens(self) -> np.ndarray:
        """[documents] the number of tokens."""
        return _sums(self.sentence_tokens, self.document_sentences)

    def select(self, wanted: np.ndarray) -> TokenizedDocuments:
        """The documents for which `wanted` (bool [documents]) is true."""
        if wanted.all():
            return self
        sentences = np.repeat(wanted, self.document_sentences)
        tokens = np.repeat(sentences, self.sentence_tokens)
        return TokenizedDocuments(
            self.tokens[tokens],
            self.sentence_tokens[sentences],
            self.document_sentences[wanted],
            self.sources[wanted],
        )

    def cut(self, begin: int, end: int) -> TokenizedDocuments:
        """The documents begin to end - 1."""
        sentence_ends = np.concatenate(([0], np.cumsum(self.document_sentences, dtype=np.int64)))
        token_ends = np.concatenate(([0], np.cumsum(self.sentence_tokens, dtype=np.int64)))
        first, last = sentence_ends[begin], sentence_ends[end]
        return TokenizedDocuments(
            self.tokens[token_ends[first] : token_ends[last]],
            self.sentence_tokens[first:last],
            self.document_sentences[begin:end],
            self.sources[begin:end],
        )


def _sums(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The sums of consecutive groups of `values` of the given lengths; no group is empty."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    return np.add.reduceat(values, begins, dtype=np.int64)


class ShardWriter:
    """Writes the shards of one split into a folder. After `close`, `facts` is their entry in the manifest.

    A shard is closed before a document that would exceed `shard_tokens`.
    """

    def __init__(self, folder: Path, split: str, dtype: np.dtype, shard_tokens: int) -> None:
        self.folder, self.split, self.dtype, self.limit = folder, split, dtype, shard_tokens
        self.shards: list[dict[str, Any]] = []
        self.waiting: list[TokenizedDocuments] = []
        self.filled = 0

    def add(self, documents: TokenizedDocuments) -> None:
        sizes = documents.document_tokens()
        reached = np.cumsum(sizes)
        begin = 0
        while begin < len(sizes):
            before = int(reached[begin - 1]) if begin else 0
            end = int(np.searchsorted(reached, before + self.limit - self.filled, side="right"))
            if end == begin and not self.waiting:  # a document larger than a shard gets its own shard
                end = begin + 1
            if end > begin:
                self.waiting.append(documents.cut(begin, end))
                self.filled += int(reached[end - 1]) - before
            if end < len(sizes):
                self._write()
            begin = end

    def close(self) -> None:
        if self.waiting:
            self._write()

    @property
    def facts(self) -> dict[str, Any]:
        return {**{count: sum(shard[count] for shard in self.shards) for count in ARRAYS}, "shards": self.shards}

    def _write(self) -> None:
        sentences = np.concatenate([group.sentence_tokens for group in self.waiting]).cumsum(dtype=np.int64)
        documents = np.concatenate([group.document_sentences for group in self.waiting]).cumsum(dtype=np.int64)
        sources = np.concatenate([group.sources for group in self.waiting])
        arrays = {
            TOKENS: np.concatenate([group.tokens for group in self.waiting]).astype(self.dtype, copy=False),
            SENTENCES: sentences.astype(OFFSET_TYPE),
            DOCUMENTS: np.stack([documents, sources], axis=1).astype(OFFSET_TYPE),
        }
        self.waiting, self.filled = [], 0
        files = {}
        for array, values in arrays.items():
            name = array_file(self.split, len(self.shards), array)
            files[name] = write_array(self.folder / name, values)
        self.shards.append({**{array: len(values) for array, values in arrays.items()}, "files": files})


def write_array(path: Path, values: np.ndarray) -> dict[str, Any]:
    """Write a .npy file and return its size and checksum, computed from the data written, not read back from disk."""
    with atomic_write(path, "wb") as file:
        hashing = _HashingFile(file)
        np.lib.format.write_array(hashing, values, allow_pickle=False)
    return {"bytes": hashing.size, "sha256": hashing.digest.hexdigest()}


class _HashingFile:
    """A file that counts and hashes the data written to it."""

    def __init__(self, file: Any) -> None:
        self.file, self.size, self.digest = file, 0, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        self.file.write(data)
        return len(data)
