"""Units of work and the part files made from them.

A unit is a few megabytes of blocks. Its part has the documents cleaned, split into sentences, tokenized, and with
MinHash sketches. A part depends only on the unit, the tokenizer and the settings, not on the process or run.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import TextError
from glassbert.files import atomic_write
from glassbert.text.corpus.blocks import Block
from glassbert.text.corpus.cleaning import clean, split_paragraphs
from glassbert.text.corpus.documents import open_block
from glassbert.text.corpus.minhash import band_keys, sketch
from glassbert.text.corpus.sentences import split_sentences
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.storage import TokenizedDocuments, token_type

if TYPE_CHECKING:
    from glassbert.text.tokenizer import Tokenizer

UNIT = 2 << 20
EXCERPT = 160
EXAMPLES = 5  # removed documents per reason that a part shows


@dataclass(frozen=True)
class Unit:
    number: int
    blocks: list[Block]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    def digest(self) -> str:
        """A hash of the text and its source."""
        digest = hashlib.blake2b(digest_size=16)
        for block in self.blocks:
            digest.update(f"{block.source}\0{block.name}\0{block.kind}\0{block.offset}\0{block.cut}\0".encode())
            for piece in [block.data] if isinstance(block.data, bytes) else block.data:
                data = piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")
                digest.update(len(data).to_bytes(8, "little"))
                digest.update(data)
        return digest.hexdigest()


def gather_units(blocks: Iterable[Block]) -> Iterator[Unit]:
    """Group blocks, also of several small sources, into units of about UNIT bytes."""
    group: list[Block] = []
    number = size = 0
    for block in blocks:
        group.append(block)
        size += block.size
        if size >= UNIT:
            yield Unit(number, group)
            group, size, number = [], 0, number + 1
    if group:
        yield Unit(number, group)


def make_part(
    unit: Unit, digest: str, tokenizer: Tokenizer, settings: Settings, bands: tuple[int, int]
) -> dict[str, Any]:
    """The arrays of a part. `bands` = (number of keys per sketch, values per key); (0, 0): no sketches."""
    texts = _UnitTexts()
    for block in unit.blocks:
        texts.add(block, settings)
    ids, sentence_tokens = tokenizer.encode_ids(texts.sentences)
    ids, sentence_tokens, removed = _without_special(ids, sentence_tokens, tokenizer)
    owner = np.repeat(np.arange(len(texts.sources)), texts.document_sentences)[sentence_tokens > 0]
    document_sentences = np.bincount(owner, minlength=len(texts.sources))
    kept = document_sentences > 0
    texts.counts["too_short"] += int((~kept).sum())
    documents = TokenizedDocuments(
        ids.astype(token_type(tokenizer.vocab_size)),
        sentence_tokens[sentence_tokens > 0].astype(np.uint32),
        document_sentences[kept].astype(np.uint32),
        np.array(texts.sources, np.uint32)[kept],
    )
    sketches = sketch(ids, documents.document_tokens()) if bands[0] else np.zeros((int(kept.sum()), 0), np.uint32)
    about = {
        "input": digest,
        "counts": {**texts.counts, "special_tokens": removed},
        "read": {str(source): count for source, count in texts.read.items()},
        "examples": texts.examples,
        "excerpts": [excerpt for excerpt, is_kept in zip(texts.excerpts, kept, strict=True) if is_kept],
    }
    if kept.sum() == 1:  # perhaps the only document of the corpus, which is split by paragraphs
        own = np.repeat(kept, texts.document_sentences)
        paragraphs = np.array(texts.paragraphs)[own & (sentence_tokens > 0)]
        about["paragraph_sentences"] = np.unique(paragraphs, return_counts=True)[1].tolist()
    return {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "tokens": documents.tokens,
        "sentence_tokens": documents.sentence_tokens,
        "document_sentences": documents.document_sentences,
        "sources": documents.sources,
        "unknown": _unknown(ids, documents, tokenizer),
        "hashes": np.frombuffer(b"".join(texts.hashes), np.uint64).reshape(-1, 2)[kept],
        "sketches": sketches,
        "keys": band_keys(sketches, *bands) if bands[0] else np.zeros((len(sketches), 0), np.uint64),
    }


class _UnitTexts:
    """The sentences of all documents of a unit, collected so that the tokenizer is called once."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.document_sentences: list[int] = []
        self.paragraphs: list[int] = []  # of every sentence
        self.sources: list[int] = []
        self.hashes: list[bytes] = []
        self.excerpts: list[str] = []
        self.counts: Counter[str] = Counter()
        self.read: Counter[int] = Counter()
        self.examples: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def add(self, block: Block, settings: Settings) -> None:
        documents = open_block(block, settings)
        self.counts["unreadable"] += documents.unreadable
        self.counts["cut"] += documents.cut
        self.read[block.source] += documents.unreadable
        rules = clean if settings.clean else split_paragraphs
        for text in documents.texts:
            if not text or text.isspace():
                continue
            self.read[block.source] += 1
            self.counts["characters_read"] += len(text)
            paragraphs, reason = rules(text, self.counts, settings.min_characters or 0)
            if reason:
                if len(self.examples[reason]) < EXAMPLES:
                    self.examples[reason].append({"source": block.source, "text": text[:EXCERPT]})
                continue
            before = len(self.sentences)
            for number, paragraph in enumerate(paragraphs):
                sentences = split_sentences(paragraph)
                self.sentences += sentences
                self.paragraphs += [number] * len(sentences)
            document = "\n".join(paragraphs)
            self.document_sentences.append(len(self.sentences) - before)
            self.sources.append(block.source)
            self.hashes.append(hashlib.blake2b(document.encode(), digest_size=16).digest())
            self.excerpts.append(document[:EXCERPT])


def _without_special(ids: np.ndarray, counts: np.ndarray, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, int]:
    """Remove special tokens except [UNK]; a text may contain "[MASK]", which the tokenizer reads as the token."""
    special = np.zeros(tokenizer.vocab_size, bool)
    special[[id for id in tokenizer.special_ids if id != tokenizer.unknown_id]] = True
    is_special = special[ids]
    if not is_special.any():
        return ids, counts, 0
    owner = np.repeat(np.arange(len(counts)), counts)[~is_special]
    return ids[~is_special], np.bincount(owner, minlength=len(counts)), int(is_special.sum())


def _unknown(ids: np.ndarray, documents: TokenizedDocuments, tokenizer: Tokenizer) -> np.ndarray:
    """[documents] the number of [UNK] tokens."""
    sizes = documents.document_tokens()
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return np.bincount(owner[ids == tokenizer.unknown_id], minlength=len(sizes)).astype(np.uint32)


# ---- files -----------------------------------------------------------------------------------------------------------


def part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.npz"


def write_part(folder: Path, number: int, arrays: dict[str, Any]) -> None:
    with atomic_write(part_path(folder, number), "wb") as file:
        np.savez(file, **arrays)


class Part:
    """A part file. An array is read, and its checksum verified, when it is accessed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays = self._checked(lambda: np.load(path, allow_pickle=False))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._checked(lambda: self.arrays[name])

    def about(self) -> dict[str, Any]:
        return self._checked(lambda: json.loads(self.arrays["about"].tobytes()))

    def documents(self) -> TokenizedDocuments:
        return TokenizedDocuments(self["tokens"], self["sentence_tokens"], self["document_sentences"], self["sources"])

    def close(self) -> None:
        self.arrays.close()

    def _checked(self, read: Any) -> Any:
        try:
            return read()
        except OSError as error:
            raise TextError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            self.path.unlink(missing_ok=True)
            raise TextError(f"{self.path} is damaged ({error}) and was removed: run the same build again") from error
