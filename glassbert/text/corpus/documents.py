"""Blocks taken apart into documents, each a string. This runs in the workers.

Text that cannot be read, bytes that are no UTF-8 or halves of a surrogate pair in JSON, is an error with its place, or
replaced, or its document is left out, as the settings say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from glassbert.errors import TextError
from glassbert.text.corpus.blocks import LONGEST, Block, read_blocks
from glassbert.text.corpus.markdown import plain_text
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import find_sources
from glassbert.text.corpus.streams import Tally
from glassbert.text.corpus.tables import bad_text, choose_field

BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class Opened:
    """The documents of a block, and how many were unreadable or had to be cut."""

    texts: list[str] = field(default_factory=list)
    unreadable: int = 0
    cut: int = 0


def read_documents(sources: Sequence[str | Path], settings: Settings | None = None) -> Iterator[str]:
    """The documents of files, folders, globs and so on as they are, uncleaned, one after the other."""
    settings = settings or Settings()
    for number, source in enumerate(find_sources(sources, settings)):
        for block in read_blocks(number, source, settings, Tally()):
            yield from open_block(block, settings).texts


def open_block(block: Block, settings: Settings) -> Opened:
    opened = Opened(cut=int(block.cut))
    for text in _texts(block, settings, opened):
        if len(text) <= LONGEST:
            opened.texts.append(text)
        else:
            opened.texts += _pieces(text)
            opened.cut += 1
    return opened


def _texts(block: Block, settings: Settings, opened: Opened) -> Iterator[str]:
    if isinstance(block.data, list):
        for number, text in enumerate(block.data):
            if LONE_SURROGATE.search(text):
                yield from _without_surrogates(text, f"{block.name}, row {number + 1:,} of a group", settings, opened)
            else:
                yield text
        return
    if block.kind == "jsonl":
        yield from _json_texts(block, block.data, settings, opened)
        return
    text = _decode(block, block.data, settings, opened).replace("\r\n", "\n").replace("\r", "\n")
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


def _decode(block: Block, data: bytes, settings: Settings, opened: Opened) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if settings.on_bad_text == "error":
            line = block.line + data.count(b"\n", 0, error.start) + 1
            raise TextError(bad_text(block.name, line, error)) from None
        if settings.on_bad_text == "replace":
            return data.decode(errors="replace")
    return _readable_documents(data.replace(b"\r\n", b"\n"), block.kind, settings, opened)


def _readable_documents(data: bytes, kind: str, settings: Settings, opened: Opened) -> str:
    """Without the documents that cannot be decoded; an empty one stands for each, so that lines can be counted."""
    by_line = kind == "jsonl" or (kind == "text" and settings.layout == "lines")
    separator = "\n" if by_line else "\n\n"
    by_file = not by_line and (kind == "markdown" or settings.layout != "paragraphs")
    readable = []
    for document in [data] if by_file else data.split(separator.encode()):
        try:
            readable.append(document.decode())
        except UnicodeDecodeError:
            readable.append("")
            opened.unreadable += 1
    return separator.join(readable)


def _json_texts(block: Block, data: bytes, settings: Settings, opened: Opened) -> Iterator[str]:
    for number, line in enumerate(_decode(block, data, settings, opened).split("\n"), block.line + 1):
        if not line or line.isspace():
            continue
        where = f"{block.name}, line {number:,}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TextError(f"{where}: not JSON: {error}") from None
        if isinstance(row, dict):
            row = row[choose_field(list(row), settings.field, where)]
        if row is None:
            continue
        if not isinstance(row, str):
            raise TextError(f"{where}: expected text or an object with a field of text, got {type(row).__name__}")
        if LONE_SURROGATE.search(row):
            yield from _without_surrogates(row, where, settings, opened)
        else:
            yield row


def _without_surrogates(text: str, where: str, settings: Settings, opened: Opened) -> Iterator[str]:
    if settings.on_bad_text == "error":
        raise TextError(f"{where}: half of a surrogate pair is no text; choose --on-bad-text replace or skip")
    if settings.on_bad_text == "replace":
        yield LONE_SURROGATE.sub("\ufffd", text)
    else:
        opened.unreadable += 1


def _pieces(text: str) -> Iterator[str]:
    """A document that is too long, cut at line ends or spaces."""
    begin = 0
    while len(text) - begin > LONGEST:
        end = max(text.rfind("\n", begin, begin + LONGEST), text.rfind(" ", begin, begin + LONGEST)) + 1
        end = end or begin + LONGEST
        yield text[begin:end]
        begin = end
    yield text[begin:]
