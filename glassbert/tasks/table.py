"""`Table`: named columns with the line number of each row; reading of text files; missing values and numbers."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassbert.errors import TextError
from glassbert.text.corpus.streams import ByteCounter, open_stream

# Cells that mean "unknown". "none" and "-" are not among them, because they may be labels.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "?", "<na>"})


@dataclass(frozen=True)
class Table:
    """Columns of equal length. `lines` counts from 1; `unit` is what it counts: "line" of a file, or "row"."""

    columns: dict[str, list[Any]]
    source: str
    lines: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()  # what the reader guessed, for the user

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> list[Any]:
        """The values of a column; an unknown name is an error that lists the columns."""
        if name in self.columns:
            return self.columns[name]
        near = difflib.get_close_matches(name, self.columns, 1, 0.5)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(map(repr, self.columns)) or "none"
        raise TextError(f"{self.source} has no column {name!r}; its columns are {listed}{meant}")

    def where(self, row: int) -> str:
        """File and line of a row, for error messages."""
        return f"{self.source}, {self.unit} {self.lines[row]:,}"

    def select(self, rows: Iterable[int]) -> Table:
        """The given rows, in the given order."""
        rows = list(rows)
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[row] for row in rows])


def is_missing(value: Any) -> bool:
    """Whether a cell is None, NaN or one of the words in MISSING."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and value.strip().lower() in MISSING


def as_number(value: Any) -> float | None:
    """The number in a cell, or None for anything else: words, "1,234", infinity."""
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and "_" not in str(value) else None


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, decompressed if necessary."""
    path = Path(path)
    if path.is_dir():
        raise TextError(f"{path} is a folder; give the path of a file")
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
    """The lines of a text file, without line ends."""
    return split_lines(read_text(path))


def split_lines(text: str) -> list[str]:
    """Lines without their ends. Only line feeds end a line; `str.splitlines` also breaks at other characters."""
    lines = text.split("\n") if "\n" in text else text.split("\r")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
