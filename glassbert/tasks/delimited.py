"""Tables with a delimiter: CSV, TSV and their relatives, with or without quotes, with or without a header."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from glassbert.errors import TextError
from glassbert.tasks.plain_text import lines_of, read_text
from glassbert.tasks.sniffing import DELIMITERS, guess_delimiter, guess_header, guess_quoting, long_cells
from glassbert.tasks.table import Table

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
    """What is not said is guessed from the file's beginning and told in the table's notes.

    `columns` names the columns of a file without a header, or renames them. Rows of another length are an error;
    `ragged="cut"` drops what is beyond the last column, `"skip"` leaves such rows out and counts them.
    """
    name = str(path)
    text = read_text(path)
    lines = lines_of(text)
    notes = []
    if delimiter is None:
        delimiter = guess_delimiter([line for line in lines if line])
        single = "there is a single column"
        notes.append(f"columns are separated by {DELIMITERS[delimiter]}" if delimiter else single)
    if quoting is None:
        quoting = guess_quoting(lines, delimiter)
    rows = _quoted(text, delimiter, name) if quoting else _plain(lines, delimiter)
    if not rows:
        raise TextError(f"{name} has no rows")
    if header is None:
        header, reason = guess_header([cells for _, cells in rows[:300]])
        notes.append(f"{'the first row names the columns' if header else 'there is no header'}: {reason}")
    titles = [cell.strip() for cell in rows.pop(0)[1]] if header else []
    if not rows:
        raise TextError(f"{name} has a header and no rows below it")
    names = _names(titles, columns, rows, name, cut=ragged == "cut")
    rows, uneven = _evened(rows, len(names), name, ragged)
    if uneven:
        notes.append(
            f"{uneven:,} rows had another number of columns and were {'left out' if ragged == 'skip' else 'cut'}"
        )
    if not rows:
        raise TextError(f"{name} has no row of {len(names)} columns below its header")
    cells = zip(*(row for _, row in rows), strict=True)
    table = {title: list(column) for title, column in zip(names, cells, strict=True)}
    return Table(table, name, [line for line, _ in rows], "line", tuple(notes))


def _plain(lines: Sequence[str], delimiter: str | None) -> list[Row]:
    return [(number, line.split(delimiter) if delimiter else [line]) for number, line in enumerate(lines, 1) if line]


def _quoted(text: str, delimiter: str | None, source: str) -> list[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or ",", strict=True)
    rows: list[Row] = []
    start = 1
    try:
        with long_cells():
            for row in reader:
                if row:
                    rows.append((start, row))
                start = reader.line_num + 1
    except csv.Error as error:
        raise TextError(
            f"{source}, line {start:,}: {error}; is a quote missing, or are quotes part of the text (quoting=False)?"
        ) from error
    return rows


def _names(titles: list[str], given: Sequence[str] | None, rows: list[Row], source: str, cut: bool) -> list[str]:
    width = len(titles) or (min(len(cells) for _, cells in rows) if cut else len(rows[0][1]))
    if given is not None:
        if len(given) != width and not (cut and len(given) < width):
            raise TextError(f"{source} has {width} columns, and {len(given)} names were given: {', '.join(given)}")
        names = list(given)
    else:
        names = [title or f"column {place}" for place, title in enumerate(titles or [""] * width, 1)]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise TextError(f"{source} has two columns called {twice!r}; give names with columns=[...]")
    return names


def _evened(rows: list[Row], width: int, source: str, ragged: Ragged) -> tuple[list[Row], int]:
    """Rows of the right width, and how many were not."""
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
