"""Tables out of JSON lines, Parquet files and what Python programs hold in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from glassbert.errors import TextError
from glassbert.tasks.plain_text import lines_of, read_text
from glassbert.tasks.table import Table


def read_json(path: str | Path) -> Table:
    """One object a line; or one list of objects, as many programs write it."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise TextError(f"{path} is not JSON: {error}") from error
        return of_records(rows, str(path))
    rows, lines = [], []
    for number, line in enumerate(lines_of(text), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise TextError(f"{path}, line {number:,}: not JSON: {error}") from error
            lines.append(number)
    return of_records(rows, str(path), lines, "line")


def read_parquet(path: str | Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TextError('reading Parquet files needs one more package: pip install "glassbert[data]"') from error
    if not Path(path).is_file():
        raise TextError(f"there is no file {path}")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = file.read().to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise TextError(f"{path} cannot be read as Parquet: {error}") from error
    return of_columns(columns, str(path))


def of_records(rows: Sequence[Any], source: str, lines: Sequence[int] | None = None, unit: str = "row") -> Table:
    """From objects, tuples or plain texts; a field that an object lacks is None."""
    lines = range(1, len(rows) + 1) if lines is None else lines
    if not rows:
        raise TextError(f"{source} has no rows")
    as_objects = []
    for row, line in zip(rows, lines, strict=True):
        if isinstance(row, Mapping):
            as_objects.append({str(name): value for name, value in row.items()})
        elif isinstance(row, str):
            as_objects.append({"text": row})
        elif isinstance(row, Iterable):
            as_objects.append({f"column {place}": value for place, value in enumerate(row, 1)})
        else:
            raise TextError(f"{source}, {unit} {line:,}: an object is expected, got {type(row).__name__}")
    names = list(dict.fromkeys(name for row in as_objects for name in row))
    return Table({name: [row.get(name) for row in as_objects] for name in names}, source, lines, unit)


def of_columns(columns: Mapping[Any, Iterable[Any]], source: str) -> Table:
    lists = {str(name): [_plain(value) for value in values] for name, values in columns.items()}
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise TextError(f"{source}: columns differ in length: {', '.join(f'{n} {k:,}' for n, k in lengths.items())}")
    rows = next(iter(lengths.values()), 0)
    if not rows:
        raise TextError(f"{source} has no rows")
    return Table(lists, source, range(1, rows + 1), "row")


def of_object(given: Any, source: str = "the data") -> Table:
    """From a list, a dictionary of columns, or a data frame of pandas, polars, pyarrow or the like."""
    if isinstance(given, Table):
        return given
    if isinstance(given, Mapping):
        return of_columns(given, source)
    names = getattr(given, "columns", None)
    if names is not None and not callable(names) and hasattr(given, "__getitem__"):
        if hasattr(given, "to_pydict"):
            return of_columns(given.to_pydict(), source)
        return of_columns({name: given[name] for name in names}, source)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return of_records(list(given), source)
    raise TextError(
        f"{source} must be a file, a list, a dictionary of columns or a data frame, got {type(given).__name__}"
    )


def _plain(value: Any) -> Any:
    """NumPy and pandas values as Python ones; NaN as None."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value):
        return None
    return None if type(value).__name__ in ("NAType", "NaTType") else value
