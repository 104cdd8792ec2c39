"""Open a corpus: `Corpus`, its two `Split`s and their memory-mapped `Shard`s.

Opening checks the manifest, the size of every file, types and shapes, without reading the tokens. `Corpus.verify` reads
every file and compares checksums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import TextError
from glassbert.files import read_json, sha256
from glassbert.text.corpus.mapping import MappedFile, map_array
from glassbert.text.corpus.storage import (
    ARRAYS,
    BUILDING,
    DOCUMENTS,
    FORMAT,
    MANIFEST,
    OFFSET_TYPE,
    SENTENCES,
    SPLITS,
    TOKENS,
    VERSION,
    array_file,
    token_type,
)

if TYPE_CHECKING:
    from glassbert.text.fast import FastTokenizer
    from glassbert.text.tokenizer import Tokenizer

REBUILD = "build the corpus again with `glassbert corpus build`"


@dataclass(frozen=True)
class Shard:
    """Tokens (at most `shard_tokens`, unless one document is longer) with the ends of sentences and documents.

    Document d has the sentences document_ends[d - 1] to document_ends[d] - 1; sentence s has the tokens
    sentence_ends[s - 1] to sentence_ends[s] - 1. The first of each starts at 0.
    """

    name: str
    tokens: np.ndarray = field(repr=False)  # [tokens] uint16 or uint32
    sentence_ends: np.ndarray = field(repr=False)  # [sentences] uint32, into tokens
    _documents: np.ndarray = field(repr=False)  # [documents, 2] uint32
    files: tuple[MappedFile, ...] = field(default=(), repr=False)

    @property
    def document_ends(self) -> np.ndarray:
        """[documents], into the sentences."""
        return self._documents[:, 0]

    @property
    def document_sources(self) -> np.ndarray:
        """[documents], into the manifest's list of sources."""
        return self._documents[:, 1]

    @property
    def document_token_ends(self) -> np.ndarray:
        """[documents] int64, into the tokens; a document without sentences ends where the previous one ends."""
        ends = np.concatenate([[0], self.sentence_ends.astype(np.int64)])
        return ends[self.document_ends.astype(np.int64)]


@dataclass(frozen=True)
class Split:
    """The training documents or the held-out documents."""

    name: str
    documents: int
    sentences: int
    tokens: int
    shards: list[Shard] = field(repr=False)


@dataclass(frozen=True)
class Corpus:
    """A finished corpus. `manifest` describes its sources, settings and files."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    splits: dict[str, Split]

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        folder = Path(folder)
        manifest = read_manifest(folder)
        kind = token_type(manifest["tokenizer"]["vocab_size"])
        splits = {name: _open_split(folder, name, manifest["splits"][name], kind) for name in SPLITS}
        return cls(folder, manifest, splits)

    def split(self, name: str) -> Split:
        if name not in self.splits:
            raise TextError(f"the corpus has no split {name!r}; use {' or '.join(self.splits)}")
        return self.splits[name]

    @property
    def vocab_size(self) -> int:
        return int(self.manifest["tokenizer"]["vocab_size"])

    @cached_property
    def tokenizer(self) -> FastTokenizer:
        """The tokenizer saved with the corpus."""
        from glassbert.text.fast import load_tokenizer

        tokenizer = load_tokenizer(self.folder)
        self.check_tokenizer(tokenizer)
        return tokenizer

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise TextError if `tokenizer` is not the one that made the corpus."""
        expected = self.manifest["tokenizer"]
        if tokenizer.fingerprint != expected["fingerprint"]:
            raise TextError(
                f"the corpus in {self.folder} was built with another tokenizer ({expected['vocab_size']:,} entries, "
                f"{expected['fingerprint'][:12]}) than this one ({tokenizer.vocab_size:,} entries, "
                f"{tokenizer.fingerprint[:12]}): use the tokenizer in the corpus folder, or build the corpus again"
            )

    def verify(self, progress: Callable[[int], None] | None = None) -> None:
        """Read every file and compare its checksum; `progress` is called with the number of bytes of each file."""
        for name, facts in self.files():
            changed = self.changed(name, facts)
            if changed:
                raise TextError(changed)
            if progress:
                progress(facts["bytes"])

    def files(self) -> list[tuple[str, dict[str, Any]]]:
        """Every file of the corpus, with its size and checksum."""
        return _files(self.manifest)

    def changed(self, name: str, facts: dict[str, Any]) -> str:
        """What is wrong with a file; "" where it is as it was written."""
        path = self.folder / name
        try:
            same = path.stat().st_size == facts["bytes"] and sha256(path) == facts["sha256"]
        except OSError as error:
            return f"{path} cannot be read: {error.strerror or error}; {REBUILD}"
        return "" if same else f"{path} has changed since it was written: its checksum differs; {REBUILD}"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The checked manifest.json of a finished corpus; TextError if there is none."""
    path = folder / MANIFEST
    if not path.exists():
        raise TextError(_why_missing(folder))
    manifest = read_json(path, TextError)
    if manifest.get("format") != FORMAT:
        raise TextError(f"{path} is not the manifest of a corpus: its format is not {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise TextError(
            f"{path} has format version {manifest.get('version')!r}, but this GlassBERT reads version {VERSION}: "
            f"update GlassBERT, or {REBUILD}"
        )
    try:
        complete = isinstance(manifest["tokenizer"]["vocab_size"], int) and isinstance(
            manifest["tokenizer"]["fingerprint"], str
        )
        for name, facts in _files(manifest):
            complete &= Path(name).name == name and facts["bytes"] >= 0 and len(facts["sha256"]) == 64
        for split in SPLITS:
            shards = manifest["splits"][split]["shards"]
            complete &= all(_is_count(one[count]) for one in (manifest["splits"][split], *shards) for count in ARRAYS)
        complete &= all(isinstance(source["name"], str) for source in manifest.get("sources", []))
        complete &= isinstance(manifest.get("settings", {}), dict)
    except (KeyError, TypeError, AttributeError) as error:
        raise TextError(f"{path} is damaged: {error!r} is missing or has a wrong type; {REBUILD}") from None
    if not complete:
        raise TextError(f"{path} is damaged; {REBUILD}")
    return manifest


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**62


def _why_missing(folder: Path) -> str:
    if not folder.exists():
        return f"there is no corpus {folder}: build one with `glassbert corpus build SOURCES... -o {folder}`"
    if not folder.is_dir():
        return f"{folder} is a file, but a corpus is a folder: build one with `glassbert corpus build {folder} -o DIR`"
    if (folder / BUILDING).exists():
        return f"the corpus in {folder} is unfinished: run the same `glassbert corpus build` again to continue"
    return f"{folder} contains no corpus: it has no {MANIFEST}; build one with `glassbert corpus build`"


def _files(manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every file in the manifest, with its size and checksum."""
    shards = [shard for split in SPLITS for shard in manifest["splits"][split]["shards"]]
    return [item for holder in (*shards, manifest["tokenizer"]) for item in holder["files"].items()]


def _open_split(folder: Path, name: str, facts: dict[str, Any], kind: np.dtype) -> Split:
    shards = [_open_shard(folder, name, number, shard, kind) for number, shard in enumerate(facts["shards"])]
    found = Split(
        name,
        sum(len(shard.document_ends) for shard in shards),
        sum(len(shard.sentence_ends) for shard in shards),
        sum(len(shard.tokens) for shard in shards),
        shards,
    )
    for count in ARRAYS:
        if getattr(found, count) != facts[count]:
            raise TextError(
                f"{folder / MANIFEST} gives {facts[count]:,} {count} for {name}, but the shards contain "
                f"{getattr(found, count):,}; {REBUILD}"
            )
    return found


def _open_shard(folder: Path, split: str, number: int, facts: dict[str, Any], kind: np.dtype) -> Shard:
    arrays, mapped = {}, []
    for array, dtype, columns in ((TOKENS, kind, ()), (SENTENCES, OFFSET_TYPE, ()), (DOCUMENTS, OFFSET_TYPE, (2,))):
        name = array_file(split, number, array)
        if name not in facts["files"]:
            raise TextError(f"{folder / MANIFEST} does not list {name}; {REBUILD}")
        size = facts["files"][name]["bytes"]
        arrays[array] = _open_array(folder / name, size, dtype, (facts[array], *columns))
        mapped.append(MappedFile(folder / name, size))
    tokens, sentences, documents = (arrays[array] for array in ARRAYS)
    for ends, whole, path in ((documents[:, 0], sentences, DOCUMENTS), (sentences, tokens, SENTENCES)):
        if (int(ends[-1]) if len(ends) else 0) != len(whole):
            raise TextError(f"{folder / array_file(split, number, path)} does not end where its shard ends; {REBUILD}")
    return Shard(array_file(split, number, "")[: -len("..npy")], tokens, sentences, documents, tuple(mapped))


def _open_array(path: Path, size: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    try:
        actual = path.stat().st_size
    except OSError:
        raise TextError(f"{path} is missing; {REBUILD}") from None
    if actual != size:
        what = "truncated" if actual < size else "changed"
        raise TextError(f"{path} was {what}: it has {actual:,} bytes, expected {size:,}; {REBUILD}")
    try:
        array = map_array(path)
    except (OSError, ValueError, EOFError, SyntaxError, RecursionError, MemoryError) as error:
        raise TextError(f"{path} is not an array: {error}; {REBUILD}") from error
    if array.dtype != dtype or array.shape != shape:
        raise TextError(f"{path} contains {array.dtype} {array.shape}, expected {dtype} {shape}; {REBUILD}")
    return array
