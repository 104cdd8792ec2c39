"""Pouring tokenised documents into shards.

Documents arrive in groups, the way the parts of a build hold them: three flat arrays of tokens, tokens per sentence and
sentences per document. A shard is closed before the document that would make it too large.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.files import atomic_write
from glassbert.text.corpus.layout import ARRAYS, DOCUMENTS, OFFSET_TYPE, SENTENCES, TOKENS, array_file


@dataclass(frozen=True)
class Documents:
    """Tokenised documents, flat. Every sentence has at least one token and every document one sentence."""

    tokens: np.ndarray  # [tokens]
    sentence_tokens: np.ndarray  # [sentences] how many tokens
    document_sentences: np.ndarray  # [documents] how many sentences
    sources: np.ndarray  # [documents] numbers of their sources

    def document_tokens(self) -> np.ndarray:
        """[documents] how many tokens."""
        return _sums(self.sentence_tokens, self.document_sentences)

    def select(self, wanted: np.ndarray) -> Documents:
        """Those documents for which `wanted` [documents] is true."""
        if wanted.all():
            return self
        sentences = np.repeat(wanted, self.document_sentences)
        tokens = np.repeat(sentences, self.sentence_tokens)
        return Documents(
            self.tokens[tokens],
            self.sentence_tokens[sentences],
            self.document_sentences[wanted],
            self.sources[wanted],
        )

    def cut(self, begin: int, end: int) -> Documents:
        """The documents begin to end - 1."""
        sentence_ends = np.concatenate(([0], np.cumsum(self.document_sentences, dtype=np.int64)))
        token_ends = np.concatenate(([0], np.cumsum(self.sentence_tokens, dtype=np.int64)))
        first, last = sentence_ends[begin], sentence_ends[end]
        return Documents(
            self.tokens[token_ends[first] : token_ends[last]],
            self.sentence_tokens[first:last],
            self.document_sentences[begin:end],
            self.sources[begin:end],
        )


def _sums(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The sums of consecutive runs of `values`; no run is empty."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    return np.add.reduceat(values, begins, dtype=np.int64)


class ShardWriter:
    """Writes the shards of one split into a folder. After `close`, `facts` is what the manifest says of them."""

    def __init__(self, folder: Path, split: str, dtype: np.dtype, shard_tokens: int) -> None:
        self.folder, self.split, self.dtype, self.limit = folder, split, dtype, shard_tokens
        self.shards: list[dict[str, Any]] = []
        self.waiting: list[Documents] = []
        self.filled = 0

    def add(self, documents: Documents) -> None:
        sizes = documents.document_tokens()
        reached = np.cumsum(sizes)
        begin = 0
        while begin < len(sizes):
            before = int(reached[begin - 1]) if begin else 0
            end = int(np.searchsorted(reached, before + self.limit - self.filled, side="right"))
            if end == begin and not self.waiting:  # a document larger than a shard is a shard of its own
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
    """Write a .npy file; its size and checksum are computed from what was meant, not from what the disk says."""
    with atomic_write(path, "wb") as file:
        told = _Told(file)
        np.lib.format.write_array(told, values, allow_pickle=False)
    return {"bytes": told.size, "sha256": told.digest.hexdigest()}


class _Told:
    """A file that also counts and digests what is written to it."""

    def __init__(self, file: Any) -> None:
        self.file, self.size, self.digest = file, 0, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        self.file.write(data)
        return len(data)
