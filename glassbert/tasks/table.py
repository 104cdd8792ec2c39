"""`Table`: named columns with the line number of each row; reading of text files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.cells import shown
from glassbert.reading.encodings import decode
from glassbert.reading.streams import read_bytes

OTHER_FORMATS = {b"PK\x03\x04": "excel", b"PAR1": "parquet"}  # by the first bytes
UNNAMED = re.compile(r"column \d+")
MAX_LISTED = 30  # columns in an error text


@dataclass(frozen=True)
class Table:
    """Columns of equal length. `lines` counts from 1; `unit` is what it counts: "line" of a file, or "row".

    `decimal` is the decimal mark that the columns show, None if none does.
    """

    columns: dict[str, list[Any]]
    source: str
    lines: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()  # what the reader guessed, for the user
    decimal: str | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> list[Any]:
        """The values of a column; an unknown name is an error that lists the columns."""
        if name in self.columns:
            return self.columns[name]
        near = difflib.get_close_matches(name, self.columns, 1, 0.5)
        meant = f"; did you mean {shown(near[0])}?" if near else ""
        if self.columns and all(UNNAMED.fullmatch(one) for one in self.columns):
            meant = "; if its first row names the columns, set --header, else name them with --columns"
        raise TextError(f"{self.source} has no column {shown(name)}; its columns are {self.names()}{meant}")

    def names(self) -> str:
        """The names of the columns, for error texts."""
        return listed(self.columns)

    def without(self, names: Iterable[str]) -> Table:
        """The table without these columns, which must exist."""
        dropped = set(names)
        for name in dropped:
            self.column(name)
        return replace(self, columns={name: one for name, one in self.columns.items() if name not in dropped})

    def where(self, row: int) -> str:
        """File and line of a row, for error messages."""
        return f"{self.source}, {self.unit} {self.lines[row]:,}"

    def select(self, rows: Iterable[int]) -> Table:
        """The given rows, in the given order."""
        rows = list(rows)
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[row] for row in rows])


def listed(names: Iterable[str]) -> str:
    """Names of columns, for error texts: at most MAX_LISTED of them."""
    names = list(names)
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return (", ".join(map(shown, names[:MAX_LISTED])) or "none") + more


def read_text(path: str | Path, encoding: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The text of a file, decompressed if necessary, and a note about its encoding."""
    data = read_bytes(path)
    for start, format in OTHER_FORMATS.items():
        if data.startswith(start):
            raise TextError(f"{path} is no text: its content looks like a file of another kind; set --format {format}")
    text, found = decode(data, str(path), encoding)
    if not text.strip():
        raise TextError(f"{path} is empty")
    return text, (found.note,) if found.note else ()


def read_lines(path: str | Path, encoding: str | None = None) -> list[str]:
    """The lines of a text file, without line ends."""
    return split_lines(read_text(path, encoding)[0])


def split_lines(text: str) -> list[str]:
    """Lines without their ends. Only line feeds end a line; `str.splitlines` also breaks at other characters."""
    lines = text.split("\n") if "\n" in text else text.split("\r")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
