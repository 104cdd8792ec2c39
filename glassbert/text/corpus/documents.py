"""Decode blocks and split them into documents (strings). This runs in the worker processes.

Bytes that are not UTF-8 and lone surrogates in JSON are an error with its line, or are replaced, or their document is
left out, depending on `Settings.on_bad_text`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from glassbert.errors import TextError
from glassbert.reading.records import parse_json
from glassbert.reading.streams import SUFFIXES, ByteCounter
from glassbert.text.corpus.blocks import LONGEST, Block, read_blocks
from glassbert.text.corpus.cleaning import clean, split_paragraphs
from glassbert.text.corpus.markdown import plain_text
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import Source, find_sources
from glassbert.text.corpus.tables import bad_text_message, choose_field

BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
SAMPLE = 64 << 20  # bytes of text to train a vocabulary on
COMPRESSION = 4  # approximate size of a text relative to its compressed file


@dataclass
class BlockDocuments:
    """The documents of a block, and the number of undecodable and of cut documents."""

    texts: list[str] = field(default_factory=list)
    unreadable: int = 0
    cut: int = 0


def read_documents(sources: Sequence[str | Path], settings: Settings | None = None) -> Iterator[str]:
    """The documents of files, folders, globs and so on, without cleaning."""
    settings = settings or Settings()
    for number, source in enumerate(find_sources(sources, settings)):
        for block in read_blocks(number, source, settings, ByteCounter()):
            yield from open_block(block, settings).texts


def sample_paragraphs(
    sources: Sequence[Source], settings: Settings, on_bytes_read: Callable[[int], None]
) -> Iterator[str]:
    """Cleaned paragraphs of about SAMPLE bytes of text, to train a vocabulary on.

    Every n-th block is taken, evenly over all sources, so a large collection takes no more time and memory.
    """
    total = sum(source.size * (COMPRESSION if _is_compressed(source.path) else 1) for source in sources)
    every = max(1, -(-total // SAMPLE))
    read = taken = number = 0
    for source_number, source in enumerate(sources):
        counter = ByteCounter()
        for block in read_blocks(source_number, source, settings, counter):
            number += 1
            if number % every == 0 or every == 1:
                taken += block.size
                rules = clean if settings.clean else split_paragraphs
                for text in open_block(block, settings).texts:
                    yield from rules(text, Counter())[0]
            on_bytes_read(read + counter.bytes)
            if taken >= 2 * SAMPLE:  # sources of unknown size
                return
        read += counter.bytes


def _is_compressed(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in SUFFIXES


def open_block(block: Block, settings: Settings) -> BlockDocuments:
    """Decode a block and split it into documents."""
    documents = BlockDocuments(cut=int(block.cut))
    for text in _texts(block, settings, documents):
        if len(text) <= LONGEST:
            documents.texts.append(text)
        else:
            documents.texts += _pieces(text)
            documents.cut += 1
    return documents


def _texts(block: Block, settings: Settings, documents: BlockDocuments) -> Iterator[str]:
    if isinstance(block.data, list):
        for number, text in enumerate(block.data):
            if LONE_SURROGATE.search(text):
                where = f"{block.name}, row {number + 1:,} of a group"
                yield from _without_surrogates(text, where, settings, documents)
            else:
                yield text
        return
    if block.kind == "jsonl":
        yield from _json_texts(block, block.data, settings, documents)
        return
    text = _decode(block, block.data, settings, documents).replace("\r\n", "\n").replace("\r", "\n")
    if block.kind == "markdown":
        yield plain_text(text)
    elif settings.layout == "paragraphs":
        yield from BLANK_LINES.split(text)
    elif settings.layout == "lines":
        yield from text.split("\n")
    elif settings.layout == "wrapped":
        yield "\n".join(paragraph.replace("\n", " ") for paragraph in BLANK_LINES.split(text))
    else:
        yield text


def _decode(block: Block, data: bytes, settings: Settings, documents: BlockDocuments) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if settings.on_bad_text == "error":
            line = block.line + data.count(b"\n", 0, error.start) + 1
            raise TextError(bad_text_message(block.name, line, error, settings)) from None
        if settings.on_bad_text == "replace":
            return data.decode(errors="replace")
    return _readable_documents(data.replace(b"\r\n", b"\n"), block.kind, settings, documents)


def _readable_documents(data: bytes, kind: str, settings: Settings, documents: BlockDocuments) -> str:
    """The text without undecodable documents; each is replaced by an empty one, which keeps line numbers correct."""
    by_line = kind == "jsonl" or (kind == "text" and settings.layout == "lines")
    separator = "\n" if by_line else "\n\n"
    by_file = not by_line and (kind == "markdown" or settings.layout != "paragraphs")
    readable = []
    for document in [data] if by_file else data.split(separator.encode()):
        try:
            readable.append(document.decode())
        except UnicodeDecodeError:
            readable.append("")
            documents.unreadable += 1
    return separator.join(readable)


def _json_texts(block: Block, data: bytes, settings: Settings, documents: BlockDocuments) -> Iterator[str]:
    for number, line in enumerate(_decode(block, data, settings, documents).split("\n"), block.line + 1):
        if not line or line.isspace():
            continue
        where = f"{block.name}, line {number:,}"
        row = parse_json(line, where)
        if isinstance(row, dict):
            row = row[choose_field(list(row), settings.field, where)]
        if row is None:
            continue
        if not isinstance(row, str):
            raise TextError(f"{where}: expected a string or an object with a text field, got {type(row).__name__}")
        if LONE_SURROGATE.search(row):
            yield from _without_surrogates(row, where, settings, documents)
        else:
            yield row


def _without_surrogates(text: str, where: str, settings: Settings, documents: BlockDocuments) -> Iterator[str]:
    if settings.on_bad_text == "error":
        raise TextError(f"{where}: half of a surrogate pair is not valid text; use --on-bad-text replace or skip")
    if settings.on_bad_text == "replace":
        yield LONE_SURROGATE.sub("\ufffd", text)
    else:
        documents.unreadable += 1


def _pieces(text: str) -> Iterator[str]:
    """Cut a document that is too long, at line ends or spaces."""
    begin = 0
    while len(text) - begin > LONGEST:
        end = max(text.rfind("\n", begin, begin + LONGEST), text.rfind(" ", begin, begin + LONGEST)) + 1
        end = end or begin + LONGEST
        yield text[begin:end]
        begin = end
    yield text[begin:]
