"""Numbers as people write them: 1,234.5 and 1.234,5 and 1 234,5 and 1'234.5.

A column is changed only if every known cell in it is a number. Which reading it has follows from its cells:

    0.75    1,234.5    1,234,567          decimal point
    0,75    1.234,5    1.234.567          decimal comma
    1,234   1.234                         either: as in the other columns, else a comma if semicolons separate columns
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.cells import as_number, is_missing, shown

POINT, COMMA = ".", ","
_GROUPS = r"[+-]?\d{1,3}(?:(?P<group>[%s'’ \u00a0\u202f])\d{3})(?:(?P=group)\d{3})*"
_EXPONENT = r"(?:[eE][+-]?\d{1,3})?"
GROUPED = {
    POINT: re.compile(_GROUPS % "," + r"(?:\.\d+)?", re.ASCII),
    COMMA: re.compile(_GROUPS % "." + r"(?:,\d+)?", re.ASCII),
}
PLAIN_COMMA = re.compile(r"[+-]?(?:\d+,\d*|,\d+)" + _EXPONENT, re.ASCII)
WHOLE = re.compile(r"[+-]?\d+" + _EXPONENT, re.ASCII)
SEPARATORS = re.compile("['’ \u00a0\u202f]")


@dataclass(frozen=True)
class Numbers:
    """Columns with numbers that `float` reads, how numbers of either reading are taken, and notes about it."""

    columns: dict[str, list[Any]]
    decimal: str | None  # None: no column shows it
    notes: tuple[str, ...] = ()


def check_decimal(given: str | None) -> None:
    if given not in (None, POINT, COMMA):
        raise TextError(f"--decimal must be a point or a comma, as in --decimal ','; got {shown(given)}")


def canonical(cell: str, decimal: str) -> str | None:
    """The number in a cell as `float` reads it, unchanged if it has no separators; None if it is no number."""
    text = cell.strip()
    if decimal == COMMA and WHOLE.fullmatch(text):
        return cell
    if decimal == POINT and as_number(text) is not None:
        return cell
    if decimal == COMMA and PLAIN_COMMA.fullmatch(text):
        return text.replace(",", ".")
    if GROUPED[decimal].fullmatch(text):
        text = SEPARATORS.sub("", text)
        return text.replace(",", "") if decimal == POINT else text.replace(".", "").replace(",", ".")
    return None


def read_numbers(
    columns: Mapping[str, list[Any]],
    decimal: str | None = None,
    as_written: Collection[str] = (),
    semicolons: bool = False,
) -> Numbers:
    """The columns with separators removed from numbers. The columns in `as_written` stay, and decide nothing.

    decimal     "." or ",": the only reading; None: by the cells
    semicolons  whether the columns were separated by semicolons, as programs do where the comma is the decimal mark
    """
    check_decimal(decimal)
    readings = {name: _readings(values, decimal) for name, values in columns.items() if name not in as_written}
    certain = {next(iter(found)) for found in readings.values() if len(found) == 1}
    usual = decimal or (COMMA if COMMA in certain or (semicolons and POINT not in certain) else POINT)
    if len(certain) > 1:
        usual = POINT
    changed: dict[str, dict[str, tuple[str, str]]] = {POINT: {}, COMMA: {}}
    result = dict(columns)
    for name, found in readings.items():
        reading = usual if usual in found else next(iter(found), None)
        if reading is None:
            continue
        values = [_changed(value, reading) for value in columns[name]]
        first = next(((old, new) for old, new in zip(columns[name], values, strict=True) if old != new), None)
        if first is not None:
            result[name], changed[reading][name] = values, first
    known = decimal or (usual if certain or semicolons else None)
    return Numbers(result, known, tuple(_notes(changed)))


def _readings(values: list[Any], decimal: str | None) -> dict[str, None]:
    """The readings under which all known cells are numbers. Whole numbers and other types show none."""
    cells = [value for value in values if isinstance(value, str) and not is_missing(value)]
    if not cells or all(WHOLE.fullmatch(cell.strip()) for cell in cells):
        return {}
    possible = (decimal,) if decimal else (POINT, COMMA)
    return {reading: None for reading in possible if all(canonical(cell, reading) is not None for cell in cells)}


def _changed(value: Any, reading: str) -> Any:
    return value if not isinstance(value, str) or is_missing(value) else canonical(value, reading)


def _notes(changed: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[str]:
    notes = []
    for reading, what in ((COMMA, "decimal commas"), (POINT, "thousands separators")):
        if changed[reading]:
            name, (old, new) = next(iter(changed[reading].items()))
            others = len(changed[reading]) - 1
            more = f", and so in {others:,} more" if others else ""
            other = POINT if reading == COMMA else COMMA
            notes.append(
                f"numbers have {what} ({old.strip()} in the column {shown(name)} is {new}{more}); --decimal {other!r} "
                "reads them otherwise"
            )
    return notes
