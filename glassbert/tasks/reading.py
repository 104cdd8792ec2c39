"""`read_table`: a `Table` from a file of any supported format, or from Python objects.

The format follows from the file name or from `format`. The readers of the formats are in `glassbert.reading` and
`conll.py`; here their rows become columns.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.cells import PlainValues, shown
from glassbert.reading.decimals import read_numbers
from glassbert.reading.delimited import (
    SAMPLE_ROWS,
    check_names,
    find_dialect,
    fix_ragged,
    guess_header,
    header_note,
    name_columns,
    read_rows,
    with_sample,
)
from glassbert.reading.excel import sheet_names, sheet_rows
from glassbert.reading.options import DEFAULTS, OBJECTS, OPTIONS, ReadingOptions, applicable
from glassbert.reading.parquet import arrow_columns, parquet_columns, pyarrow_for
from glassbert.reading.records import json_records
from glassbert.reading.streams import SUFFIXES
from glassbert.tasks.conll import read_conll, read_conllu
from glassbert.tasks.table import Table, read_text, split_lines

SEMICOLONS = "columns are separated by semicolons"
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
LINES = "lines"  # the format of a file with one text per line


def read_table(
    given: Any,
    format: str | None = None,
    *,
    named: Collection[str] = (),
    as_written: Collection[str] = (),
    **options: Any,
) -> Table:
    """A file, compressed or not, or anything `table_from_object` takes. `options` are the fields of `ReadingOptions`.

    named       columns that must exist; a first row with one of them is a header
    as_written  columns whose numbers keep their thousands separators and decimal commas
    """
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise TextError(f"there is no option {unknown!r} for reading files; there are {', '.join(OPTIONS)}")
    chosen = ReadingOptions(**options)
    if isinstance(given, Table):
        return given
    kind = format_of(given, format)
    chosen.check_format(kind, str(given) if kind != OBJECTS else "the data")
    if kind == OBJECTS:
        table = _renamed(table_from_object(given), chosen.columns)
    else:
        table = FORMATS[kind](Path(given), chosen, named)
    if chosen.drop:
        table = table.without(chosen.drop)
    if not table.columns:
        raise TextError(f"{table.source} has no columns{' besides those of --drop' if chosen.drop else ''}")
    if kind == "parquet" and chosen.decimal is None:  # it has types: what is text there is meant as text
        return table
    numbers = read_numbers(table.columns, chosen.decimal, as_written, SEMICOLONS in table.notes)
    notes = (*table.notes, *numbers.notes)
    return replace(table, columns=numbers.columns, decimal=numbers.decimal, notes=notes)


def format_of(given: Any, format: str | None = None) -> str:
    """The format of a file, one of FORMATS; OBJECTS for anything that is no path."""
    if not isinstance(given, str | os.PathLike):
        return OBJECTS
    path = Path(given)
    if path.suffix.lower() in ARCHIVES:
        raise TextError(f"{path} is an archive of files; unpack it and give one of them")
    kind = format or ENDINGS.get(ending_of(path))
    if kind not in FORMATS:
        problem = f"there is no format {shown(kind)}" if kind else "the file name does not show the format"
        raise TextError(f"{path}: {problem}; set --format to one of {', '.join(FORMATS)}")
    return kind


def fitting(given: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that have a meaning for this file: those of one file may be passed on to another one."""
    return applicable(options, format_of(given, options.get("format")))


def ending_of(path: PurePath) -> str:
    """The file name's suffix in lower case, without that of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


# ---- files -----------------------------------------------------------------------------------------------------------


def read_delimited(path: Path, options: ReadingOptions, named: Collection[str] = (), tabs: bool = False) -> Table:
    """A delimited file. `columns` names the columns of a file without a header, or renames them.

    Rows with another number of columns are an error. `ragged="cut"` drops the extra cells of long rows; `"skip"`
    leaves such rows out and counts them in a note.
    """
    source = str(path)
    text, notes = read_text(path, options.encoding)
    first, lines = with_sample(io.StringIO(text, newline="") if "\n" not in text else _line_feeds(text))
    dialect = find_dialect(first, options.delimiter or ("\t" if tabs else None), options.quoting)
    if dialect.quoting:
        lines = io.StringIO(text, newline="")
    rows = list(read_rows(lines, dialect, source))
    notes += dialect.notes
    if not rows:
        raise TextError(f"{source} has no rows")
    header, note = _header([cells for _, cells in rows[: SAMPLE_ROWS + 1]], options, named)
    notes += note
    titles = rows.pop(0)[1] if header else []
    if not rows:
        raise TextError(f"{source} has a header and no rows below it; if it has no header, set --no-header")
    names, note = name_columns(titles, rows, options.columns, source, options.ragged == "cut")
    rows, ragged = fix_ragged(rows, len(names), source, options.ragged)
    if not rows:
        raise TextError(f"{source} has no row of {len(names)} columns below its header")
    cells = zip(*(row for _, row in rows), strict=True)
    table = {title: list(column) for title, column in zip(names, cells, strict=True)}
    return Table(table, source, [line for line, _ in rows], "line", (*notes, *note, *ragged))


def _line_feeds(text: str) -> Iterable[str]:
    return (f"{line}\n" for line in split_lines(text))


def _header(
    rows: Sequence[Sequence[str]], options: ReadingOptions, named: Collection[str]
) -> tuple[bool, tuple[str, ...]]:
    """Whether the first row is a header, and a note if that is a guess."""
    if options.header is not None:
        return options.header, ()
    if options.columns:
        first = [cell.strip() for cell in rows[0]]
        return first == list(options.columns), ()
    header, reason = guess_header(rows, named)
    return header, (header_note(header, reason),)


def read_excel(path: Path, options: ReadingOptions, named: Collection[str] = ()) -> Table:
    """A sheet of an Excel file."""
    source = str(path)
    rows = list(sheet_rows(path, options.sheet))
    if not rows:
        raise TextError(f"{source}: the sheet has no cells; --sheet names another one")
    sheets = sheet_names(path) if options.sheet is None else []
    as_text = [["" if cell is None else str(cell) for cell in cells] for _, cells in rows[: SAMPLE_ROWS + 1]]
    header, notes = _header(as_text, options, named)
    if len(sheets) > 1:
        notes = (f"the sheet {shown(sheets[0])} of {len(sheets)} is read; --sheet names another one", *notes)
    titles = as_text[0] if header else []
    body = rows[1:] if header else rows
    if not body:
        raise TextError(f"{source} has a header and no rows below it; if it has no header, set --no-header")
    width = len(titles) or max(len(cells) for _, cells in body)
    padded = [(number, [*cells, *[None] * (width - len(cells))]) for number, cells in body]
    names, note = name_columns(titles, [(1, [""] * width)], options.columns, source)
    padded, ragged = fix_ragged(padded, width, source, options.ragged)
    columns = {name: [cells[index] for _, cells in padded] for index, name in enumerate(names)}
    table = table_from_columns(columns, source)
    return replace(table, lines=[number for number, _ in padded], notes=(*table.notes, *notes, *note, *ragged))


def read_json(path: Path, options: ReadingOptions, named: Collection[str] = (), by_line: bool = False) -> Table:
    """One JSON object a line, one JSON list of objects, or one object of columns."""
    text, notes = read_text(path, options.encoding)
    records = list(json_records(text, str(path), by_line))
    table = table_from_records([row for _, row in records], str(path), [line for line, _ in records], "line")
    return replace(table, notes=(*notes, *table.notes))


def read_parquet(path: Path, options: ReadingOptions, named: Collection[str] = ()) -> Table:
    """A Parquet file; needs pyarrow."""
    return table_from_columns(parquet_columns(path), str(path))


def read_text_lines(path: Path, options: ReadingOptions, named: Collection[str] = ()) -> Table:
    """One text per line, in the column "text"; blank lines are left out."""
    text, notes = read_text(path, options.encoding)
    rows = [(number, line) for number, line in enumerate(split_lines(text), 1) if line.strip()]
    return Table({"text": [line for _, line in rows]}, str(path), [number for number, _ in rows], "line", notes)


def read_minimal_pairs(path: str | Path, options: ReadingOptions = DEFAULTS, named: Collection[str] = ()) -> Table:
    """Columns "bad" and "good", from a text file with one sentence a line, the bad one of each pair first.

    For pairs in JSON lines (sentence_good, sentence_bad) use `read_table`.
    """
    text, notes = read_text(path, options.encoding)
    lines = split_lines(text)
    if len(lines) % 2:
        raise TextError(f"{path} has {len(lines):,} lines, an odd number; each pair needs two lines")
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if empty:
        raise TextError(f"{path}, line {empty:,} is empty; lines 1 and 2 are a pair, 3 and 4 the next, and so on")
    starts = range(1, len(lines) + 1, 2)
    return Table({"bad": lines[::2], "good": lines[1::2]}, str(path), starts, "line", notes)


# ---- Python objects --------------------------------------------------------------------------------------------------


def table_from_object(given: Any, source: str = "the data") -> Table:
    """From a list, a dictionary of columns, or a data frame (pandas, polars, pyarrow, Hugging Face datasets)."""
    if isinstance(given, Table):
        return given
    if isinstance(given, Mapping):
        return table_from_columns(given, source)
    if hasattr(given, "collect") and hasattr(given, "collect_schema"):  # a lazy frame of polars
        given = given.collect()
    if hasattr(given, "column_names") and hasattr(given, "columns") and hasattr(given, "schema"):  # pyarrow
        return table_from_columns(arrow_columns(given, source), source)
    names = getattr(given, "column_names", None) or getattr(given, "columns", None)
    if names is not None and not callable(names) and not isinstance(names, Mapping) and hasattr(given, "__getitem__"):
        names = list(names)
        check_names(list(map(str, names)), source)
        return table_from_columns({name: given[name] for name in names}, source)
    if hasattr(given, "__arrow_c_stream__") and not hasattr(given, "dtype"):
        return table_from_columns(arrow_columns(pyarrow_for("reading this frame").table(given), source), source)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return table_from_records(list(given), source)
    raise TextError(
        f"{source} must be a file, a list, a dictionary of columns or a data frame, got {type(given).__name__}"
    )


def table_from_records(
    rows: Sequence[Any], source: str, lines: Sequence[int] | None = None, unit: str = "row"
) -> Table:
    """From dictionaries, tuples or strings; a key that a dictionary lacks is None."""
    lines = range(1, len(rows) + 1) if lines is None else lines
    if not rows:
        raise TextError(f"{source} has no rows")
    plain = PlainValues()
    records = []
    for row, line in zip(rows, lines, strict=True):
        where = f"{source}, {unit} {line:,}"
        if isinstance(row, Mapping):
            record = {str(name): value for name, value in row.items()}
        elif isinstance(row, str):
            record = {"text": row}
        elif isinstance(row, Iterable) and not isinstance(row, bytes):
            record = {f"column {number}": value for number, value in enumerate(row, 1)}
        else:
            raise TextError(f"{where}: an object is expected, got {type(row).__name__}")
        records.append(plain(record, where))
    names = list(dict.fromkeys(name for row in records for name in row))
    columns = {name: [row.get(name) for row in records] for name in names}
    return Table(columns, source, lines, unit, tuple(plain.notes))


def table_from_columns(columns: Mapping[Any, Iterable[Any]], source: str) -> Table:
    """From columns of equal length; the values of NumPy, pandas and Arrow become Python values."""
    plain = PlainValues()
    check_names(list(map(str, columns)), source)
    lists = {}
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TextError(f"{source}: the column {shown(name)} must be a list, got {type(values).__name__}")
        column = f"{source}, column {shown(str(name))}"
        lists[plain(str(name), source)] = [plain(value, column) for value in values]
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        differing = shown(", ".join(f"{n} {k:,}" for n, k in lengths.items()))
        raise TextError(f"{source}: columns differ in length: {differing}")
    rows = next(iter(lengths.values()), 0)
    if not rows:
        raise TextError(f"{source} has no rows")
    return Table(lists, source, range(1, rows + 1), "row", tuple(plain.notes))


def _renamed(table: Table, columns: Sequence[str]) -> Table:
    if not columns:
        return table
    if len(columns) != len(table.columns):
        raise TextError(f"{table.source} has {len(table.columns)} columns, and --columns gives {len(columns)} names")
    check_names(columns, table.source)
    return replace(table, columns=dict(zip(columns, table.columns.values(), strict=True)))


def _read_tsv(path: Path, options: ReadingOptions, named: Collection[str] = ()) -> Table:
    return read_delimited(path, options, named, tabs=True)


def _read_json_lines(path: Path, options: ReadingOptions, named: Collection[str] = ()) -> Table:
    return read_json(path, options, named, by_line=True)


Reader = Callable[[Path, ReadingOptions, Collection[str]], Table]
FORMATS: dict[str, Reader] = {
    "csv": read_delimited,
    "tsv": _read_tsv,
    "jsonl": _read_json_lines,
    "json": read_json,
    "parquet": read_parquet,
    "excel": read_excel,
    "conll": read_conll,
    "conllu": read_conllu,
    "minimal-pairs": read_minimal_pairs,
    LINES: read_text_lines,
}
ENDINGS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xls": "excel",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".conllu": "conllu",
}
