"""`read_table`: a `Table` from a file of any supported format, or from Python objects.

The format follows from the file name or from `format`. Readers for CSV and CoNLL are in `delimited.py` and `conll.py`;
those for JSON, Parquet, minimal pairs and Python objects are here.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from glassbert.errors import TextError, needs
from glassbert.tasks.conll import read_conll, read_conllu
from glassbert.tasks.delimited import read_delimited
from glassbert.tasks.table import Table, read_lines, read_text, split_lines
from glassbert.text.corpus.streams import SUFFIXES


def read_table(given: Any, format: str | None = None, **options: Any) -> Table:
    """A file, compressed or not, or anything `table_from_object` takes. `options` go to the reader of the format."""
    if not isinstance(given, str | os.PathLike):
        return table_from_object(given)
    path = Path(given)
    kind = format or ENDINGS.get(_ending(path))
    if kind not in FORMATS:
        problem = f"there is no format {kind!r}" if kind else "the file name does not show the format"
        raise TextError(f"{path}: {problem}; set `format` to one of {', '.join(FORMATS)}")
    try:
        return FORMATS[kind](path, **options)
    except TypeError as error:
        if options and "unexpected keyword" in str(error):
            raise TextError(f"{path}: {kind} files have no such option: {error}") from None
        raise


def _ending(path: Path) -> str:
    """The file name's suffix, without that of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


# ---- files -----------------------------------------------------------------------------------------------------------


def read_json(path: str | Path) -> Table:
    """One JSON object a line, or one JSON list of objects."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise TextError(f"{path} is not JSON: {error}") from error
        return table_from_records(rows, str(path))
    rows, lines = [], []
    for number, line in enumerate(split_lines(text), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise TextError(f"{path}, line {number:,}: not JSON: {error}") from error
            lines.append(number)
    return table_from_records(rows, str(path), lines, "line")


def read_parquet(path: str | Path) -> Table:
    """A Parquet file; needs pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TextError(needs("reading Parquet files", "pyarrow")) from error
    if not Path(path).is_file():
        raise TextError(f"there is no file {path}")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = file.read().to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise TextError(f"{path} cannot be read as Parquet: {error}") from error
    return table_from_columns(columns, str(path))


def read_minimal_pairs(path: str | Path) -> Table:
    """Columns "bad" and "good", from a text file with one sentence a line, the bad one of each pair first.

    For pairs in JSON lines (sentence_good, sentence_bad) use `read_table`.
    """
    lines = read_lines(path)
    if len(lines) % 2:
        raise TextError(f"{path} has {len(lines):,} lines, an odd number; each pair needs two lines")
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if empty:
        raise TextError(f"{path}, line {empty:,} is empty; lines 1 and 2 are a pair, 3 and 4 the next, and so on")
    starts = range(1, len(lines) + 1, 2)
    return Table({"bad": lines[::2], "good": lines[1::2]}, str(path), starts)


# ---- Python objects --------------------------------------------------------------------------------------------------


def table_from_object(given: Any, source: str = "the data") -> Table:
    """From a list, a dictionary of columns, or a data frame (pandas, polars, pyarrow)."""
    if isinstance(given, Table):
        return given
    if isinstance(given, Mapping):
        return table_from_columns(given, source)
    names = getattr(given, "columns", None)
    if names is not None and not callable(names) and hasattr(given, "__getitem__"):
        if hasattr(given, "to_pydict"):
            return table_from_columns(given.to_pydict(), source)
        return table_from_columns({name: given[name] for name in names}, source)
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
    records = []
    for row, line in zip(rows, lines, strict=True):
        if isinstance(row, Mapping):
            records.append({str(name): value for name, value in row.items()})
        elif isinstance(row, str):
            records.append({"text": row})
        elif isinstance(row, Iterable):
            records.append({f"column {number}": value for number, value in enumerate(row, 1)})
        else:
            raise TextError(f"{source}, {unit} {line:,}: an object is expected, got {type(row).__name__}")
    names = list(dict.fromkeys(name for row in records for name in row))
    return Table({name: [row.get(name) for row in records] for name in names}, source, lines, unit)


def table_from_columns(columns: Mapping[Any, Iterable[Any]], source: str) -> Table:
    """From columns of equal length; NumPy and pandas values become Python values."""
    lists = {str(name): [_python_value(value) for value in values] for name, values in columns.items()}
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise TextError(f"{source}: columns differ in length: {', '.join(f'{n} {k:,}' for n, k in lengths.items())}")
    rows = next(iter(lengths.values()), 0)
    if not rows:
        raise TextError(f"{source} has no rows")
    return Table(lists, source, range(1, rows + 1), "row")


def _python_value(value: Any) -> Any:
    """NumPy and pandas values as Python ones; NaN as None."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value):
        return None
    return None if type(value).__name__ in ("NAType", "NaTType") else value


FORMATS: dict[str, Callable[..., Table]] = {
    "csv": read_delimited,
    "tsv": partial(read_delimited, delimiter="\t"),
    "jsonl": read_json,
    "parquet": read_parquet,
    "conll": read_conll,
    "conllu": read_conllu,
    "minimal-pairs": read_minimal_pairs,
}
ENDINGS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".conllu": "conllu",
}
