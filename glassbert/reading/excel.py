"""Rows of Excel files (.xlsx, .xlsm), through openpyxl. Formulas have the value that was stored with them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassbert.errors import TextError, needs
from glassbert.reading.cells import shown
from glassbert.reading.streams import ORDINARY, SWELLING, ByteCounter, readable

OLD_EXCEL = b"\xd0\xcf\x11\xe0"


def sheet_rows(path: str | Path, sheet: str | None = None) -> Iterator[tuple[int, list[Any]]]:
    """(row number, cells) of the rows of a sheet that are not empty; trailing empty cells are left out."""
    try:
        import openpyxl
    except ImportError as error:
        raise TextError(needs("reading Excel files", "openpyxl")) from error
    _check_archive(Path(path))
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # whatever its XML parser and its readers raise for a damaged file
        raise TextError(f"{path} cannot be read as Excel: {_reason(error)}") from error
    try:
        chosen = _sheet(book, sheet, str(path))
        chosen.reset_dimensions()  # some programs store a wrong size
        for number, cells in enumerate(chosen.iter_rows(values_only=True), 1):
            row = list(cells)
            while row and row[-1] in (None, ""):
                row.pop()
            if row:
                yield number, row
    except TextError:
        raise
    except Exception as error:
        raise TextError(f"{path} cannot be read as Excel: {_reason(error)}") from error
    finally:
        book.close()


def sheet_names(path: str | Path) -> list[str]:
    """The names of the sheets of a file that can be read."""
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True)
    try:
        return [sheet.title for sheet in book.worksheets]
    finally:
        book.close()


def _check_archive(path: Path) -> None:
    """Raise if the file is no Excel file of today, or a small archive with an enormous content."""
    if path.is_dir():
        raise TextError(f"{path} is a folder; give the path of a file")
    if path.exists() and not path.is_file():
        raise TextError(f"{path} is a device or a pipe; Excel files are read from a file")
    with readable(str(path), ByteCounter()):
        with open(path, "rb") as file:
            start = file.read(4)
        if start == OLD_EXCEL:
            raise TextError(f"{path} is an Excel file of before 2007 (.xls), or has a password; save it as .xlsx")
        if not zipfile.is_zipfile(path):
            raise TextError(f"{path} is no Excel file: its first bytes are {start.hex(' ') or 'missing'}")
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        # zipfile raises NotImplementedError for versions and compressions that it does not know
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise TextError(f"{path} cannot be read as Excel: {_reason(error)}") from error
    if size > max(ORDINARY, SWELLING * path.stat().st_size):
        raise TextError(f"{path} holds {size >> 20:,} MiB, far more than its size; it is damaged or not meant well")


def _sheet(book: Any, wanted: str | None, source: str) -> Any:
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    if not sheets:
        raise TextError(f"{source} has no sheet with cells")
    if wanted is None:
        return next(iter(sheets.values()))
    if wanted in sheets:
        return sheets[wanted]
    if wanted.isdecimal() and 1 <= int(wanted) <= len(sheets):
        return list(sheets.values())[int(wanted) - 1]
    raise TextError(
        f"{source} has no sheet {shown(wanted)}; --sheet takes {shown(', '.join(sheets))} or a number from 1"
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
