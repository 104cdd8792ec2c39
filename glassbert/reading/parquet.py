"""Parquet files and Arrow tables, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassbert.errors import TextError, needs


def pyarrow_for(what: str) -> Any:
    """The package pyarrow with its Parquet part, or an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TextError(needs(what, "pyarrow")) from error
    return pyarrow


@contextmanager
def open_parquet(path: str | Path, name: str) -> Iterator[Any]:
    """A pyarrow `ParquetFile`. Errors of the file become TextError."""
    pyarrow = pyarrow_for("reading Parquet files")
    if not Path(path).is_file():
        what = "is a folder, a device or a pipe; Parquet files are read from a file"
        raise TextError(f"{name} {what}" if Path(path).exists() else f"there is no file {name}")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except TextError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, TypeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise TextError(f"{name} cannot be read as Parquet: {reason}") from error


def parquet_columns(path: str | Path) -> dict[str, list[Any]]:
    """The columns of a Parquet file."""
    with open_parquet(path, str(path)) as file:
        return arrow_columns(file.read(), str(path))


def arrow_columns(table: Any, source: str) -> dict[str, list[Any]]:
    """The columns of an Arrow table. Times that Python cannot hold are written as text."""
    names = table.column_names
    columns: dict[str, list[Any]] = {}
    for name, column in zip(names, table.columns, strict=True):
        if name in columns:
            raise TextError(f"{source} has two columns called {name[:80]!r}; rename one of them")
        columns[name] = _values(column)
    return columns


def _values(column: Any) -> list[Any]:
    kind = str(column.type)
    if "[ns" in kind or "duration" in kind:  # nanoseconds need pandas, and years after 9999 have no Python date
        return _as_text(column)
    try:
        return column.to_pylist()
    except (ValueError, OverflowError, UnicodeDecodeError):
        return _as_text(column)


def _as_text(column: Any) -> list[Any]:
    import pyarrow

    try:
        return column.cast(pyarrow.string()).to_pylist()
    except (pyarrow.ArrowException, ValueError, OverflowError):
        return [None if not one.is_valid else _scalar_text(one) for one in column]


def _scalar_text(one: Any) -> str:
    try:
        return str(one.as_py())
    except (ValueError, OverflowError):
        return f"{one.type} that Python cannot hold"
