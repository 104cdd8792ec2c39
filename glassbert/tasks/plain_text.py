"""The text of a file, decompressed and decoded, with the place of what cannot be."""

from __future__ import annotations

from pathlib import Path

from glassbert.errors import TextError
from glassbert.text.corpus.streams import ByteCounter, open_stream


def read_text(path: str | Path) -> str:
    path = Path(path)
    if path.is_dir():
        raise TextError(f"{path} is a folder; name a file in it")
    with open_stream(path, str(path), ByteCounter()) as stream:
        data: bytes = stream.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        bad = data[error.start : error.start + 4].hex(" ")
        raise TextError(
            f"{path}, line {line:,}: bytes that are not UTF-8 ({bad}); convert the file: "
            "iconv -f LATIN1 -t UTF-8 old > new"
        ) from error
    if not text.strip():
        raise TextError(f"{path} is empty")
    return text


def read_lines(path: str | Path) -> list[str]:
    return lines_of(read_text(path))


def lines_of(text: str) -> list[str]:
    """Lines without their ends. Only line feeds end a line: text may hold the other signs that Unicode breaks at."""
    lines = text.split("\n") if "\n" in text else text.split("\r")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
