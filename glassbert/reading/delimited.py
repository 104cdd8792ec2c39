"""Rows of text with a delimiter: CSV, TSV and similar, with or without quotes and header.

Delimiter, quoting and header are guessed from the first rows unless given. Each guess is in the notes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

from glassbert.errors import TextError
from glassbert.reading.cells import shown
from glassbert.reading.decimals import COMMA, POINT, canonical

DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
SPELLED = {"tab": "\t", r"\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "pipe": "|", "space": " "}
SAMPLE_ROWS = 200
MIN_AGREEMENT = 0.5  # share of lines with as many columns as the first line
MAX_CELL = 1 << 27  # characters
COLUMN_NAME = re.compile(r"[\w\-./()%#° ]{1,40}")
SEPARATOR_LINE = re.compile(r"(?i)\"?sep=([^\w\s\"]|\t)\"?")
DECIMAL_COMMA = re.compile(r"\d,\d")
RAGGED = ("error", "skip", "cut")
Row = tuple[int, list[str]]  # the line it begins on, and its cells


@dataclass(frozen=True)
class Dialect:
    """How the rows of a file are written. A delimiter of None is a single column."""

    delimiter: str | None
    quoting: bool
    notes: tuple[str, ...] = ()
    skip_first: bool = False  # the first row is no row


def check_delimiter(given: str | None) -> str | None:
    """The delimiter as a character; "tab" and "\\t" are the tab."""
    if given is None:
        return None
    delimiter = SPELLED.get(given.strip().lower() or given, given)
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise TextError(f"--delimiter must be one character, or one of {', '.join(SPELLED)}; got {shown(given)}")
    return delimiter


def find_dialect(lines: Sequence[str], delimiter: str | None = None, quoting: bool | None = None) -> Dialect:
    """The dialect of a file from its first lines. A first line "sep=;", as Excel knows it, names the delimiter."""
    notes = []
    known = [bare for line in lines if (bare := line.rstrip("\r\n"))]
    hint = SEPARATOR_LINE.fullmatch(known[0]) if known else None
    if hint is not None:
        known, delimiter = known[1:], delimiter or hint[1]
        notes.append(f"its first line says that the delimiter is {hint[1]!r}")
    if delimiter is None:
        delimiter = guess_delimiter(known)
        single = "there is a single column"
        notes.append(f"columns are separated by {DELIMITERS[delimiter]}" if delimiter else single)
    if quoting is None:
        quoting = guess_quoting(known, delimiter)
    return Dialect(delimiter, quoting, tuple(notes), hint is not None)


# ---- rows ------------------------------------------------------------------------------------------------------------


def read_rows(lines: Iterable[str], dialect: Dialect, source: str, longest: int = MAX_CELL) -> Iterator[Row]:
    """The rows of lines that still have their ends; empty lines are left out."""
    return islice(_all_rows(lines, dialect, source, longest), int(dialect.skip_first), None)


def _all_rows(lines: Iterable[str], dialect: Dialect, source: str, longest: int) -> Iterator[Row]:
    if not dialect.quoting:
        for number, line in enumerate(lines, 1):
            if bare := line.removesuffix("\n").removesuffix("\r"):
                yield number, bare.split(dialect.delimiter) if dialect.delimiter else [bare]
        return
    reader = csv.reader(lines, delimiter=dialect.delimiter or ",", strict=True)
    start = 1
    while True:
        try:
            with cells_up_to(longest):  # not longer: the limit belongs to the whole process
                row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TextError(
                f"{source}, line {start:,}: not CSV: {error}; is a quote missing, or are quotes part of the text "
                "(--no-quoting)?"
            ) from None
        if row:
            yield start, row
        start = reader.line_num + 1


def name_columns(
    titles: Sequence[str], rows: Sequence[Row], columns: Sequence[str] | None, source: str, cut: bool = False
) -> tuple[list[str], tuple[str, ...]]:
    """The names of the columns, and notes. `titles` are those of the header, `columns` those that the user gave."""
    notes: tuple[str, ...] = ()
    width = len(titles) or (min(len(cells) for _, cells in rows) if cut else len(rows[0][1]))
    names = [title.strip() or f"column {number}" for number, title in enumerate(titles or [""] * width, 1)]
    if titles and not cut and all(len(cells) == width + 1 for _, cells in rows):
        last = not any(cells[-1].strip() for _, cells in rows)
        names = [*names, f"column {width + 1}"] if last else ["column 1", *names]
        notes = (f"rows have one column more than the header; the {'last' if last else 'first'} one has no name",)
        width += 1
    if columns:
        if len(columns) != width and not (cut and len(columns) < width):
            raise TextError(
                f"{source} has {width} columns, and --columns gives {len(columns)} names: {shown(', '.join(columns))}"
            )
        names = list(columns)
    check_names(names, source)
    return names, notes


def check_names(names: Sequence[str], source: str) -> None:
    """Raise if two columns have the same name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TextError(f"{source} has two columns called {shown(name)}; give all names with --columns")
        seen.add(name)


def fix_ragged(rows: list[Row], width: int, source: str, ragged: str = "error") -> tuple[list[Row], tuple[str, ...]]:
    """Rows of the right width, and a note about those that had another one."""
    uneven = [row for row in rows if len(row[1]) != width]
    if not uneven:
        return rows, ()
    bad = next((row for row in uneven if ragged == "error" or (ragged == "cut" and len(row[1]) < width)), None)
    if bad is not None:
        raise TextError(ragged_message(bad, width, source, len(uneven)))
    if ragged == "cut":
        return [(line, cells[:width]) for line, cells in rows], (_uneven_note(len(uneven), "cut"),)
    return [row for row in rows if len(row[1]) == width], (_uneven_note(len(uneven), "left out"),)


def ragged_message(bad: Row, width: int, source: str, count: int = 1) -> str:
    other = f" ({count:,} rows are like this)" if count > 1 else ""
    return (
        f"{source}, line {bad[0]:,}: {len(bad[1])} columns where {width} are expected{other}; "
        "repair the row, or leave such rows out with --ragged skip"
    )


def _uneven_note(count: int, what: str) -> str:
    return f"{count:,} rows had another number of columns and were {what}"


def check_ragged(given: str) -> None:
    if given not in RAGGED:
        raise TextError(f"--ragged must be one of {', '.join(RAGGED)}; got {shown(given)}")


@contextmanager
def cells_up_to(longest: int) -> Iterator[None]:
    """Raise the csv module's global limit of 131,072 characters a cell, and restore it."""
    before = csv.field_size_limit(longest)
    try:
        yield
    finally:
        csv.field_size_limit(before)


# ---- guesses ---------------------------------------------------------------------------------------------------------


def guess_delimiter(lines: Sequence[str]) -> str | None:
    """The delimiter that splits most lines into as many columns as the first line; None if there is none."""
    found: dict[str, tuple[float, int]] = {}
    sample = lines[:SAMPLE_ROWS]
    for delimiter in DELIMITERS:
        widths = [len(row) for row in _split_sample(sample, delimiter) if row]
        columns = widths[0] if widths else 1
        below = widths[1:].count(columns + 1) + 1  # some headers lack the name of the first or the last column
        same = below if below == len(widths) else widths.count(columns)
        share = same / max(1, len(widths))
        if columns > 1 and share >= MIN_AGREEMENT:
            found[delimiter] = share, columns
    best = max(found, key=lambda delimiter: found[delimiter], default=None)
    if best == "," and ";" in found and found[";"][0] >= found[","][0]:
        commas = sum(line.count(",") for line in sample)
        if 2 * sum(len(DECIMAL_COMMA.findall(line)) for line in sample) > commas:
            return ";"  # 1,5;2,5 has three columns of commas, but two numbers
    return best


def guess_quoting(lines: Sequence[str], delimiter: str | None) -> bool:
    """With tabs or a single column, quotes are part of the text unless the first line is quoted."""
    if delimiter not in ("\t", None):
        return True
    return bool(lines) and lines[0].startswith('"') and lines[0].rstrip().endswith('"')


def guess_header(rows: Sequence[Sequence[str]], named: Collection[str] = ()) -> tuple[bool, str]:
    """Whether the first row holds the column names, and the reason. `named` are columns that the user named."""
    if not rows:
        return False, "there are no rows"
    first, rest = rows[0], rows[1 : SAMPLE_ROWS + 1]
    for cell in first:
        if cell.strip() in named:
            return True, f"it holds {shown(cell.strip())}"
    if any(map(_is_number, first)):
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


def header_note(header: bool, reason: str) -> str:
    return f"{'the first row names the columns' if header else 'there is no header'}: {reason}"


def _is_numeric(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell.strip()]
    return bool(known) and all(map(_is_number, known))


def _is_number(cell: str) -> bool:
    return any(canonical(cell, decimal) is not None for decimal in (POINT, COMMA))


def _split_sample(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    if delimiter == "\t":
        return [line.split("\t") for line in lines]
    try:
        with cells_up_to(MAX_CELL):
            return list(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter))
    except csv.Error:
        return []


def with_sample(lines: Iterable[str], count: int = SAMPLE_ROWS) -> tuple[list[str], Iterator[str]]:
    """The first lines, and all lines."""
    rest = iter(lines)
    first = list(islice(rest, count))
    return first, chain(first, rest)
