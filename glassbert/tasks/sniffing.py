"""What does this table look like? Delimiter, quotes and header, guessed from its beginning and told in words."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from glassbert.tasks.table import as_number

DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
SAMPLE = 200
AGREEMENT = 0.5  # so many of the lines must have the columns of the first; rows that are broken are told later
LONGEST_CELL = 1 << 27
NAME = re.compile(r"[\w\-./()%#° ]{1,40}")


def guess_delimiter(lines: Sequence[str]) -> str | None:
    """The sign that cuts most lines into as many columns as the first; None where no sign does."""
    best: tuple[float, int, str] | None = None
    for sign in DELIMITERS:
        widths = [len(row) for row in _cut(lines[:SAMPLE], sign) if row]
        columns = widths[0] if widths else 1
        share = widths.count(columns) / max(1, len(widths))
        if columns > 1 and share >= AGREEMENT and (best is None or (share, columns) > best[:2]):
            best = share, columns, sign
    return best[2] if best else None


def guess_quoting(lines: Sequence[str], delimiter: str | None) -> bool:
    """With tabs, and in a single column, quotes are part of the text unless the first line is quoted."""
    return delimiter not in ("\t", None) or (lines[0].startswith('"') and lines[0].rstrip().endswith('"'))


def guess_header(rows: Sequence[Sequence[str]]) -> tuple[bool, str]:
    """Whether the first row names the columns, and why."""
    if not rows:
        return False, "there are no rows"
    first, rest = rows[0], rows[1 : SAMPLE + 1]
    if any(as_number(cell) is not None for cell in first):
        return False, "its first row holds numbers"
    if not rest:
        return len(first) > 1, "there is a single row"
    if any(_numeric([row[place] for row in rest if place < len(row)]) for place in range(len(first))):
        return True, "numbers stand below words"
    if len(set(first)) < len(first):
        return False, "its first row holds the same value twice"
    if any(first[place] in {row[place] for row in rest if place < len(row)} for place in range(len(first))):
        return False, "values of its first row come again below"
    if all(NAME.fullmatch(cell) and len(cell.split()) <= 4 for cell in first):
        return True, "its first row looks like names"
    return False, "its first row looks like text"


def _numeric(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell.strip()]
    return bool(known) and all(as_number(cell) is not None for cell in known)


def _cut(lines: Sequence[str], sign: str) -> list[list[str]]:
    if sign == "\t":
        return [line.split("\t") for line in lines]
    try:
        with long_cells():
            return list(csv.reader([f"{line}\n" for line in lines], delimiter=sign))
    except csv.Error:
        return []


@contextmanager
def long_cells() -> Iterator[None]:
    """The csv module refuses cells of more than 131,072 characters, unless told otherwise for the whole program."""
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)
