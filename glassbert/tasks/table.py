"""A table as it was read: named columns, and where each row stands in its file."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassbert.errors import TextError

# What stands in tables for "not known". "none" and "-" may well be labels.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "?", "<na>"})


@dataclass(frozen=True)
class Table:
    """Columns of equal length. `lines` counts from 1; `unit` says whether it counts lines of a file or rows."""

    columns: dict[str, list[Any]]
    source: str
    lines: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()  # what the reader decided by itself, for the user to see

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> list[Any]:
        if name in self.columns:
            return self.columns[name]
        near = difflib.get_close_matches(name, self.columns, 1, 0.5)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        listed = ", ".join(map(repr, self.columns)) or "none"
        raise TextError(f"{self.source} has no column {name!r}; its columns are {listed}{meant}")

    def where(self, row: int) -> str:
        """The place of a row, as an error names it."""
        return f"{self.source}, {self.unit} {self.lines[row]:,}"

    def select(self, rows: Iterable[int]) -> Table:
        rows = list(rows)
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[row] for row in rows])


def is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and value.strip().lower() in MISSING


def as_number(value: Any) -> float | None:
    """The number a cell holds, or None; "1,234" and words are none, and neither is infinity."""
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and "_" not in str(value) else None
