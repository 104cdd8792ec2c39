"""Reader for tables with a delimiter: CSV, TSV and similar, with or without quotes and header.

Delimiter, quoting and header are guessed from the first rows unless given. Each guess is in the table's notes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from glassbert.errors import TextError
from glassbert.tasks.table import Table, as_number, read_text, split_lines

DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
SAMPLE_ROWS = 200
MIN_AGREEMENT = 0.5  # share of lines with as many columns as the first line
MAX_CELL = 1 << 27  # characters
COLUMN_NAME = re.compile(r"[\w\-./()%#° ]{1,40}")
Ragged = Literal["error", "cut", "skip"]
Row = tuple[int, list[str]]  # the line it begins on, and its cells


def read_delimited(
    path: str | Path,
    *,
    delimiter: str | None = None,
    quoting: bool | None = None,
    header: bool | None = None,
    columns: Sequence[str] | None = None,
    ragged: Ragged = "error",
) -> Table:
    """Read a delimited file. `columns` names the columns of a file without a header, or renames them.

    Rows with another number of columns are an error. `ragged="cut"` drops the extra cells of long rows; `"skip"`
    leaves such rows out and counts them in a note.
    """
    name = str(path)
    text = read_text(path)
    lines = split_lines(text)
    notes = []
    if delimiter is None:
        delimiter = guess_delimiter([line for line in lines if line])
        single = "there is a single column"
        notes.append(f"columns are separated by {DELIMITERS[delimiter]}" if delimiter else single)
    if quoting is None:
        quoting = guess_quoting(lines, delimiter)
    rows = _parse_quoted(text, delimiter, name) if quoting else _parse_unquoted(lines, delimiter)
    if not rows:
        raise TextError(f"{name} has no rows")
    if header is None:
        header, reason = guess_header([cells for _, cells in rows[:300]])
        notes.append(f"{'the first row names the columns' if header else 'there is no header'}: {reason}")
    titles = [cell.strip() for cell in rows.pop(0)[1]] if header else []
    if not rows:
        raise TextError(f"{name} has a header and no rows below it")
    names = _column_names(titles, columns, rows, name, cut=ragged == "cut")
    rows, uneven = _fix_ragged(rows, len(names), name, ragged)
    if uneven:
        notes.append(
            f"{uneven:,} rows had another number of columns and were {'left out' if ragged == 'skip' else 'cut'}"
        )
    if not rows:
        raise TextError(f"{name} has no row of {len(names)} columns below its header")
    cells = zip(*(row for _, row in rows), strict=True)
    table = {title: list(column) for title, column in zip(names, cells, strict=True)}
    return Table(table, name, [line for line, _ in rows], "line", tuple(notes))


# ---- parsing ---------------------------------------------------------------------------------------------------------


def _parse_unquoted(lines: Sequence[str], delimiter: str | None) -> list[Row]:
    return [(number, line.split(delimiter) if delimiter else [line]) for number, line in enumerate(lines, 1) if line]


def _parse_quoted(text: str, delimiter: str | None, source: str) -> list[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or ",", strict=True)
    rows: list[Row] = []
    start = 1
    try:
        with _long_cells_allowed():
            for row in reader:
                if row:
                    rows.append((start, row))
                start = reader.line_num + 1
    except csv.Error as error:
        raise TextError(
            f"{source}, line {start:,}: {error}; is a quote missing, or are quotes part of the text (quoting=False)?"
        ) from error
    return rows


def _column_names(titles: list[str], given: Sequence[str] | None, rows: list[Row], source: str, cut: bool) -> list[str]:
    width = len(titles) or (min(len(cells) for _, cells in rows) if cut else len(rows[0][1]))
    if given is not None:
        if len(given) != width and not (cut and len(given) < width):
            raise TextError(f"{source} has {width} columns, and {len(given)} names were given: {', '.join(given)}")
        names = list(given)
    else:
        names = [title or f"column {number}" for number, title in enumerate(titles or [""] * width, 1)]
    duplicate = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if duplicate is not None:
        raise TextError(f"{source} has two columns called {duplicate!r}; give names with columns=[...]")
    return names


def _fix_ragged(rows: list[Row], width: int, source: str, ragged: Ragged) -> tuple[list[Row], int]:
    """Rows of the right width, and how many had another one."""
    uneven = [row for row in rows if len(row[1]) != width]
    if not uneven:
        return rows, 0
    bad = next((row for row in uneven if ragged == "error" or (ragged == "cut" and len(row[1]) < width)), None)
    if bad is not None:
        other = f" ({len(uneven):,} rows are like this)" if len(uneven) > 1 else ""
        raise TextError(
            f"{source}, line {bad[0]:,}: {len(bad[1])} columns where {width} are expected{other}; "
            "repair the row, or leave such rows out with ragged='skip'"
        )
    if ragged == "cut":
        return [(line, cells[:width]) for line, cells in rows], len(uneven)
    return [row for row in rows if len(row[1]) == width], len(uneven)


@contextmanager
def _long_cells_allowed() -> Iterator[None]:
    """Raise the csv module's global limit of 131,072 characters a cell, and restore it."""
    before = csv.field_size_limit(MAX_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


# ---- guesses ---------------------------------------------------------------------------------------------------------


def guess_delimiter(lines: Sequence[str]) -> str | None:
    """The delimiter that splits most lines into as many columns as the first line; None if there is none."""
    best: tuple[float, int, str] | None = None
    for delimiter in DELIMITERS:
        widths = [len(row) for row in _split_sample(lines[:SAMPLE_ROWS], delimiter) if row]
        columns = widths[0] if widths else 1
        share = widths.count(columns) / max(1, len(widths))
        if columns > 1 and share >= MIN_AGREEMENT and (best is None or (share, columns) > best[:2]):
            best = share, columns, delimiter
    return best[2] if best else None


def guess_quoting(lines: Sequence[str], delimiter: str | None) -> bool:
    """With tabs or a single column, quotes are part of the text unless the first line is quoted."""
    return delimiter not in ("\t", None) or (lines[0].startswith('"') and lines[0].rstrip().endswith('"'))


def guess_header(rows: Sequence[Sequence[str]]) -> tuple[bool, str]:
    """Whether the first row holds the column names, and the reason."""
    if not rows:
        return False, "there are no rows"
    first, rest = rows[0], rows[1 : SAMPLE_ROWS + 1]
    if any(as_number(cell) is not None for cell in first):
        return False, "its first row holds numbers"
    if not rest:
        return len(first) > 1, "there is a single row"
    below = [[row[index] for row in rest if index < len(row)] for index in range(len(first))]
    if any(map(_is_numeric, below)):
        return True, "there are numbers below words"
    if len(set(first)) < len(first):
        return False, "its first row holds the same value twice"
    if any(cell in set(cells) for cell, cells in zip(first, below, strict=True)):
        return False, "values of its first row occur again below"
    if all(COLUMN_NAME.fullmatch(cell) and len(cell.split()) <= 4 for cell in first):
        return True, "its first row looks like names"
    return False, "its first row looks like text"


def _is_numeric(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell.strip()]
    return bool(known) and all(as_number(cell) is not None for cell in known)


def _split_sample(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    if delimiter == "\t":
        return [line.split("\t") for line in lines]
    try:
        with _long_cells_allowed():
            return list(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter))
    except csv.Error:
        return []
