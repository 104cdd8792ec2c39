"""Sources cut into blocks of whole documents, so that a file of any size passes through little memory.

A block of text or JSON lines is raw bytes up to a document's end: the process that reads only has to find that end, and
decoding is left to the workers. Tables and datasets give blocks of strings.

A document longer than LONGEST is cut, at the end of a line or at a space, and goes on as the next document: one giant
line must not decide how much memory a build needs.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from glassbert.errors import TextError
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import Source
from glassbert.text.corpus.streams import Tally, open_stream
from glassbert.text.corpus.tables import delimited_texts, hub_texts, parquet_texts

BLOCK = 1 << 20
LONGEST = 8 << 20
WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Block:
    """Consecutive documents of one source."""

    source: int
    name: str
    kind: str
    data: bytes | list[str]
    offset: int = 0  # bytes of the text before it
    line: int = 0  # lines before it
    cut: bool = False  # whether its last document was too long and goes on in the next block

    @property
    def size(self) -> int:
        return len(self.data) if isinstance(self.data, bytes) else sum(map(len, self.data))


def read_blocks(number: int, source: Source, settings: Settings, tally: Tally) -> Iterator[Block]:
    """The blocks of a source, in order. `tally` follows the reading."""
    if source.kind in ("text", "markdown", "jsonl"):
        with open_stream(_path(source), source.name, tally) as stream:
            yield from _byte_blocks(number, source, stream, _last_end(source.kind, settings.layout))
        return
    for texts in _in_groups(_texts(source, settings, tally)):
        yield Block(number, source.name, source.kind, texts)


def _texts(source: Source, settings: Settings, tally: Tally) -> Iterator[str]:
    if source.kind in ("csv", "tsv"):
        with open_stream(_path(source), source.name, tally) as stream:
            yield from delimited_texts(stream, source.name, source.kind, settings, LONGEST)
    elif source.kind == "parquet":
        yield from parquet_texts(_path(source), source.name, settings, tally)
    elif source.kind == "datasets":
        yield from _told(hub_texts(source.name, settings), tally)
    else:
        from glassbert.text.corpus.embedded import embedded_documents

        yield from _told(embedded_documents(), tally)


def _path(source: Source) -> Any:
    assert source.path is not None
    return source.path


def _told(texts: Iterator[str], tally: Tally) -> Iterator[str]:
    """What has no file has the checksum of its documents."""
    for text in texts:
        tally.add(text.encode("utf-8", "surrogatepass") + b"\0")
        yield text


def _in_groups(texts: Iterator[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= BLOCK:
            yield group
            group, size = [], 0
    if group:
        yield group


def _last_end(kind: str, layout: str) -> Callable[[bytes], int]:
    """How to find, in bytes that go on, the last place where a document is sure to have ended; 0 for nowhere."""
    if kind == "jsonl" or (kind == "text" and layout == "lines"):
        return lambda data: data.rfind(b"\n") + 1
    if kind == "text" and layout == "paragraphs":
        return _after_blank_line
    return lambda data: 0


def _after_blank_line(data: bytes) -> int:
    return max((place + len(mark) for mark in (b"\n\n", b"\n\r\n") if (place := data.rfind(mark)) >= 0), default=0)


def _byte_blocks(number: int, source: Source, stream: Any, last_end: Callable[[bytes], int]) -> Iterator[Block]:
    data = stream.read(BLOCK)
    if data.startswith(WIDE_MARKS):
        raise TextError(f"{source.name} is UTF-16: convert it, for instance with `iconv -f UTF-16 -t UTF-8`")
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        raise TextError(f"{source.name} is empty")
    offset = line = 0
    while data:
        more = stream.read(BLOCK)
        cut = False
        end = len(data)
        if more:
            end = last_end(data)
            if not end and len(data) < LONGEST:
                data += more
                continue
            if not end:
                if source.kind == "jsonl":
                    raise TextError(f"{source.name}, line {line + 1:,}: longer than {LONGEST:,} bytes")
                end, cut = _emergency_end(data), True
        yield Block(number, source.name, source.kind, data[:end], offset, line, cut)
        offset += end
        line += data.count(b"\n", 0, end)
        data = data[end:] + more


def _emergency_end(data: bytes) -> int:
    """Where to cut a document that does not end: after its last line, else its last space, else its last character."""
    for mark in (b"\n", b" ", b"\t"):
        if (end := data.rfind(mark) + 1) > 0:
            return end
    end = len(data) - 1
    while end > 1 and data[end] & 0xC0 == 0x80:  # inside a character of UTF-8
        end -= 1
    return end
