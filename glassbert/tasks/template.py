"""`Template`: a table row as a sentence, "pclass is 3, sex is female, age is 38".

`auto_template` classifies every column of the training table:

    id, constant, empty    left out: no information about a new row
    code                   left out, because values do not repeat; if often missing: "cabin is known" or "is unknown"
    boolean                "alone is yes"
    number                 rounded to a hundredth of its interquartile range, so that rows share values
    category               as it is, with spaces for underscores
    text                   last, after a colon, so that truncation affects only the text

A missing value is written "age is unknown" if it is missing in at least 5 % of the training rows: then the model can
learn from it. A value that is missing less often is left out of the sentence.

With `values` numbers are not written: a number goes to the model as one token of its own (`segments`). The sentence
with the digits remains the one that people, checks and baselines read.

A template is stored with the model as JSON. The same row always gives the same sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.reading.cells import as_number, is_missing, shown
from glassbert.tasks.profile import BOOLEANS, Profile, profile
from glassbert.tasks.table import Table

OFTEN_MISSING = 0.05
UNKNOWN = "unknown"
FIELD = re.compile(r"\{([^{}]+)\}")  # not str.format, where "a.b" would be an attribute
Numbers = Literal["round", "buckets", "both"]
BUCKETS = ("very low", "low", "medium", "high", "very high")


@dataclass(frozen=True)
class Part:
    """How one column is written. `kind` is a column kind of `profile.py`; `reason` explains it to the user."""

    column: str
    kind: str
    name: str
    say_unknown: bool = False
    decimals: int | None = None  # numbers: digits after the point; None: no number
    edges: tuple[float, ...] = ()  # numbers: the boundaries of the buckets
    reason: str = ""

    def value(self, cell: Any) -> str | None:
        """The text of a cell; None if it is missing or the column is left out."""
        if self.kind in ("id", "constant", "empty") or (self.kind == "code" and not self.say_unknown):
            return None
        if is_missing(cell):
            return None
        if self.kind == "code":
            return "known"
        if self.kind == "boolean":
            return "yes" if BOOLEANS.get(str(cell).strip().lower(), cell is True) else "no"
        number = as_number(cell) if self.kind == "number" else None
        if number is not None:
            return self._number_text(number)
        return " ".join(str(cell).replace("_", " ").split())

    def phrase(self, cell: Any) -> str | None:
        """ "name is value" for a cell; None if nothing is written."""
        value = self.value(cell)
        if value is None:
            return f"{self.name} is {UNKNOWN}" if self.say_unknown else None
        return f"{self.name}: {value}" if self.kind == "text" else f"{self.name} is {value}"

    def _number_text(self, number: float) -> str:
        words = []
        if self.decimals is not None:
            rounded = f"{number:.{self.decimals}f}"
            rounded = rounded.rstrip("0").rstrip(".") if "." in rounded else rounded
            words.append("0" if rounded == "-0" else rounded)
        if self.edges:
            words.append(BUCKETS[int(np.searchsorted(self.edges, number, side="right"))])
        return " ".join(words)


class Segment(NamedTuple):
    """A piece of a row: a text or, where `field` is not 0, a number with the name of its column.

    `field` counts the columns of numbers from 1. `value` is NaN if the cell is empty.
    """

    text: str
    field: int = 0
    value: float = math.nan


@dataclass(frozen=True)
class Template:
    """One phrase per column; or, with `pattern`, a sentence with {column} in it. `values`: numbers beside the text."""

    parts: tuple[Part, ...]
    pattern: str | None = None
    values: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that a table must have."""
        return [part.column for part in self.parts if self.pattern is not None or _is_written(part)]

    def apply(self, table: Table) -> list[str]:
        """The sentence of every row."""
        columns = {name: table.column(name) for name in self.columns}
        return [self.sentence({name: values[row] for name, values in columns.items()}) for row in range(len(table))]

    def sentence(self, row: Mapping[str, Any]) -> str:
        """The sentence of one row, given as column -> cell."""
        if self.pattern is not None:
            values = {part.column: part.value(row.get(part.column)) or UNKNOWN for part in self.parts}
            return FIELD.sub(lambda match: values[match[1]], self.pattern)
        ordered = sorted(self.parts, key=lambda part: part.kind == "text")  # stable sort: texts last
        phrases = (part.phrase(row.get(part.column)) for part in ordered if _is_written(part))
        return ", ".join(phrase for phrase in phrases if phrase)

    @property
    def number_columns(self) -> list[str]:
        """The columns whose numbers `values` puts beside the text, in the order of their fields."""
        return [part.column for part in self.parts if part.kind == "number"]

    @property
    def number_names(self) -> list[str]:
        """The names of these columns, as words."""
        return [part.name for part in self.parts if part.kind == "number"]

    def numbers(self, table: Table) -> list[np.ndarray]:
        """The numbers of these columns, NaN where there is none."""
        return [np.array([_value(cell) for cell in table.column(name)]) for name in self.number_columns]

    def segments(self, row: Mapping[str, Any]) -> list[Segment]:
        """One row for a model that reads numbers beside words."""
        fields = {name: number for number, name in enumerate(self.number_columns, 1)}
        if self.pattern is not None:
            parts = {part.column: part for part in self.parts}
            found = []
            for i, piece in enumerate(FIELD.split(self.pattern)):  # texts and columns by turns
                if i % 2 == 0:
                    found.append(Segment(piece))
                elif piece in fields:
                    found.append(Segment(parts[piece].name, fields[piece], _value(row.get(piece))))
                else:
                    found.append(Segment(parts[piece].value(row.get(piece)) or UNKNOWN))
            return [segment for segment in found if segment.text.strip()]
        found = []
        for part in sorted(self.parts, key=lambda part: part.kind == "text"):
            cell = row.get(part.column)
            if part.column in fields:
                if part.say_unknown or not math.isnan(_value(cell)):
                    found.append(Segment(part.name, fields[part.column], _value(cell)))
            elif _is_written(part) and (phrase := part.phrase(cell)):
                found.append(Segment(phrase))
        return found

    def shown(self, row: Mapping[str, Any]) -> str:
        """One row as the model reads it: "[age = 38]" for a number."""
        if not self.values:
            return self.sentence(row)
        shown = [
            text.strip() if not field else f"[{text} = {UNKNOWN if math.isnan(value) else f'{value:g}'}]"
            for text, field, value in self.segments(row)
        ]
        return " ".join(shown)

    def rows(self, table: Table) -> list[tuple[str, str, str, str]]:
        """(column, kind, example phrase, reason) of every column, for display."""
        shown = []
        for part in self.parts:
            cells = (cell for cell in table.columns.get(part.column, []) if not is_missing(cell))
            phrase = next((part.phrase(cell) for cell in cells), None) if _is_written(part) else None
            shown.append((part.column, part.kind, phrase or "left out", part.reason))
        return shown

    def as_json(self) -> dict[str, Any]:
        return {"pattern": self.pattern, "values": self.values, "parts": [asdict(part) for part in self.parts]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Template:
        try:
            parts = [Part(**{**part, "edges": tuple(part.get("edges", ()))}) for part in content["parts"]]
            return cls(tuple(parts), content["pattern"], bool(content.get("values", False)))
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"not a stored template: {error}") from error


def auto_template(
    table: Table, target: str | None = None, drop: Sequence[str] = (), numbers: Numbers = "round"
) -> Template:
    """A template for the training table; the columns in `drop` are left out."""
    for name in drop:
        table.column(name)
    names = [name for name in table.columns if name != target and name not in drop]
    parts = tuple(_make_part(profile(name, table.columns[name]), table.columns[name], numbers) for name in names)
    if not any(map(_is_written, parts)):
        reasons = (
            "; ".join(f"{part.column[:40]}: {part.reason}" for part in parts[:10]) or "the target is the only column"
        )
        raise InputError(f"{table.source}: no column can be used as text ({reasons})")
    return Template(parts)


def parse_template(pattern: str, table: Table) -> Template:
    """A template from a sentence with {column} in it; a missing value is written "unknown"."""
    names = list(dict.fromkeys(FIELD.findall(pattern)))
    if not names:
        example = next(iter(table.columns), "column")
        raise ConfigError(f"the template {shown(pattern)} names no column; write them in braces: {{{example}}}")
    parts = [_make_part(profile(name, table.column(name)), table.column(name), "round") for name in names]
    # A column that the user names is always written, even an id or a constant.
    named = [
        Part(p.column, p.kind if p.kind in ("number", "boolean") else "category", p.name, True, p.decimals)
        for p in parts
    ]
    return Template(tuple(named), pattern)


def readable_name(column: str) -> str:
    """A column name as words: "PassengerClass", "passenger_class", "passenger.class" -> "passenger class"."""
    spaced = re.sub(r"(?<=[a-z0-9]{2})(?=[A-Z][a-z])", " ", column)
    return " ".join(re.sub(r"[_.\-]+", " ", spaced).lower().split())


def _make_part(found: Profile, values: Sequence[Any], numbers: Numbers) -> Part:
    decimals, edges = None, ()
    if found.kind == "number":
        known = np.array([as_number(value) for value in values if not is_missing(value)], np.float64)
        decimals = _decimals(known) if numbers in ("round", "both") else None
        edges = tuple(np.quantile(known, [0.2, 0.4, 0.6, 0.8]).tolist()) if numbers in ("buckets", "both") else ()
    missing = found.missing >= OFTEN_MISSING and found.kind not in ("empty", "constant", "id")
    reason = found.reason + (f"; missing in {found.missing:.0%} of the rows" if found.missing else "")
    return Part(found.name, found.kind, readable_name(found.name), missing, decimals, edges, reason)


def _decimals(numbers: np.ndarray) -> int:
    """Digits after the point for a resolution of a hundredth of the interquartile range."""
    low, quarter, three_quarters, high = np.quantile(numbers, [0.0, 0.25, 0.75, 1.0])
    spread = float(three_quarters - quarter) or float(high - low)
    if spread == 0 or (numbers == np.round(numbers)).all():
        return 0
    return int(np.clip(np.ceil(-np.log10(spread / 100)), 0, 8))


def _value(cell: Any) -> float:
    number = None if is_missing(cell) else as_number(cell)
    return math.nan if number is None else number


def _is_written(part: Part) -> bool:
    return part.kind not in ("id", "constant", "empty") and (part.kind != "code" or part.say_unknown)
