"""Read sources as blocks of whole documents, in bounded memory.

A block of text or JSON lines is raw bytes up to the end of a document. The reading process only finds that end; the
workers decode. Tables and datasets give blocks of strings.

A document longer than LONGEST is cut at the end of a line or at a space and continues as the next document. This bounds
the memory for files with a very long line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.streams import ByteCounter, open_stream
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import Source
from glassbert.text.corpus.tables import (
    delimited_texts,
    excel_texts,
    hub_texts,
    json_texts,
    parquet_texts,
    utf8_source,
)

BLOCK = 1 << 20
LONGEST = 8 << 20


@dataclass(frozen=True)
class Block:
    """Consecutive documents of one source."""

    source: int
    name: str
    kind: str
    data: bytes | list[str]
    offset: int = 0  # bytes of the text before the block
    line: int = 0  # lines before the block
    cut: bool = False  # whether the last document was too long and continues in the next block

    @property
    def size(self) -> int:
        return len(self.data) if isinstance(self.data, bytes) else sum(map(len, self.data))


def read_blocks(number: int, source: Source, settings: Settings, counter: ByteCounter) -> Iterator[Block]:
    """The blocks of a source, in order. `counter` counts and hashes the bytes that are read."""
    if source.kind in ("text", "markdown", "jsonl"):
        with open_stream(_path(source), source.name, counter) as stream:
            text = utf8_source(stream, source.name, settings, counter)
            yield from _byte_blocks(number, source, text, _last_end(source.kind, settings.layout))
        return
    for texts in _in_groups(_texts(source, settings, counter)):
        yield Block(number, source.name, source.kind, texts)


def _texts(source: Source, settings: Settings, counter: ByteCounter) -> Iterator[str]:
    if source.kind in ("csv", "tsv"):
        with open_stream(_path(source), source.name, counter) as stream:
            text = utf8_source(stream, source.name, settings, counter)
            yield from delimited_texts(text, source.name, source.kind, settings, LONGEST)
    elif source.kind == "json":
        yield from json_texts(_path(source), source.name, settings, counter)
    elif source.kind == "excel":
        yield from excel_texts(_path(source), source.name, settings, counter)
    elif source.kind == "parquet":
        yield from parquet_texts(_path(source), source.name, settings, counter)
    elif source.kind == "datasets":
        yield from _counted(hub_texts(source.name, settings), counter)
    else:
        from glassbert.text.corpus.python_docs import python_documents

        yield from _counted(python_documents(), counter)


def _path(source: Source) -> Any:
    assert source.path is not None
    return source.path


def _counted(texts: Iterator[str], counter: ByteCounter) -> Iterator[str]:
    """Count and hash the documents of a source that has no file."""
    for text in texts:
        counter.add(text.encode("utf-8", "surrogatepass") + b"\0")
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
    """A function that returns the last certain end of a document in a prefix of the text; 0 if there is none."""
    if kind == "jsonl" or (kind == "text" and layout == "lines"):
        return lambda data: data.rfind(b"\n") + 1
    if kind == "text" and layout == "paragraphs":
        return _after_blank_line
    return lambda data: 0


def _after_blank_line(data: bytes) -> int:
    return max((start + len(mark) for mark in (b"\n\n", b"\n\r\n") if (start := data.rfind(mark)) >= 0), default=0)


def _byte_blocks(number: int, source: Source, stream: Any, last_end: Callable[[bytes], int]) -> Iterator[Block]:
    data = stream.read(BLOCK)
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
                end, cut = _forced_end(data), True
        yield Block(number, source.name, source.kind, data[:end], offset, line, cut)
        offset += end
        line += data.count(b"\n", 0, end)
        data = data[end:] + more


def _forced_end(data: bytes) -> int:
    """Where to cut a document that is too long: after its last line, else its last space, else its last character."""
    for mark in (b"\n", b" ", b"\t"):
        if (end := data.rfind(mark) + 1) > 0:
            return end
    end = len(data) - 1
    while end > 1 and data[end] & 0xC0 == 0x80:  # inside a UTF-8 character
        end -= 1
    return end
