"""JSON: one value per line, a list of objects, or an object of columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.cells import shown


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text. Any error becomes a TextError with its place."""
    try:
        return json.loads(text)
    except RecursionError:
        raise TextError(f"{where}: not JSON that can be read: lists and objects are nested too deeply") from None
    except ValueError as error:
        reason = "a number has thousands of digits" if "digits" in str(error) else str(error)[:200]
        raise TextError(f"{where}: not JSON: {reason}; repair it, or set --format if it is another format") from None


def json_records(text: str, source: str, by_line: bool = False) -> Iterator[tuple[int, Any]]:
    """(line or number, value) of every record of a JSON file. `by_line`: a single line is a record, not columns."""
    start = text.lstrip()[:1]
    first_line, _, rest = text.strip().partition("\n")
    if start == "[" or (start == "{" and not (_is_json(first_line) and (rest or by_line))):
        whole = _whole(text, source, strict=not (by_line and start == "{"))
        if whole is not None:
            yield from enumerate(whole, 1)
            return
    lines = text.split("\n") if "\n" in text else text.split("\r")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, parse_json(line, f"{source}, line {number:,}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _whole(text: str, source: str, strict: bool) -> list[Any] | None:
    """The records of a file that is one JSON value; None if it is lines after all (each a list or an object).

    If not `strict`, the lines are read in any case, so that the error names one.
    """
    try:
        value = parse_json(text, source)
    except TextError as error:
        if not strict or "Extra data" in str(error):  # several values: one per line
            return None
        raise
    if isinstance(value, list):
        return value
    return _records_of_object(value, source)


def _records_of_object(value: Mapping[str, Any], source: str) -> list[Any]:
    """Records of an object: its only list of objects, or its columns (lists, or objects by row); or itself."""
    lists = [one for one in value.values() if isinstance(one, list) and one and isinstance(one[0], dict)]
    if len(lists) == 1:
        return lists[0]
    columns = list(value.values())
    if columns and all(isinstance(one, list) for one in columns):
        if len({len(one) for one in columns}) > 1:
            lengths = shown(", ".join(f"{name} {len(one):,}" for name, one in value.items()))
            raise TextError(f"{source}: the lists of the object differ in length: {lengths}")
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
    if len(columns) > 1 and all(isinstance(one, dict) for one in columns):
        rows = dict.fromkeys(key for one in columns for key in one)
        return [{name: one.get(row) for name, one in value.items()} for row in rows]
    return [value]
