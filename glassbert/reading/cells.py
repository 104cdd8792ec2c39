"""Cells of tables: missing values, numbers, and values of other libraries as plain Python values.

A plain value is None, a bool, an int, a float, a string, a list of plain values or a dictionary of them.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping
from typing import Any

from glassbert.errors import TextError

# Cells that mean "unknown". "none" and "-" are not among them, because they may be labels.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "?", "<na>"})
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
DEEPEST = 20  # levels of lists and objects in one cell
DIGITS_BITS = 14_000  # Python writes no larger integer in decimal digits
SHOWN = 80


def is_missing(value: Any) -> bool:
    """Whether a cell is None, NaN or one of the words in MISSING."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and value.strip().lower() in MISSING


def as_number(value: Any) -> float | None:
    """The number in a cell, or None for anything else: words, "1,234", infinity."""
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and "_" not in str(value) else None


def shown(value: Any) -> str:
    """A value for an error text: quoted, and at most SHOWN characters of it."""
    text = repr(value) if not isinstance(value, str) else repr(value[: SHOWN + 1])
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]}...{text[0] if text[0] in QUOTES else ''}"


QUOTES = "'\""


class PlainValues:
    """Makes values plain. `replaced` counts halves of surrogate pairs, which no encoding can write."""

    def __init__(self) -> None:
        self.replaced = 0

    @property
    def notes(self) -> list[str]:
        """What was changed, for the user."""
        halves = "half of a surrogate pair was" if self.replaced == 1 else "halves of surrogate pairs were"
        return [f"{self.replaced:,} {halves} replaced by U+FFFD"] if self.replaced else []

    def __call__(self, value: Any, where: str, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self._text(str(value))
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if value.bit_length() < DIGITS_BITS else hex(value)
        if isinstance(value, float):
            return None if math.isnan(value) else float(value)
        if isinstance(value, Mapping):
            self._check_depth(depth, where)
            return {self._text(str(name)): self(one, where, depth + 1) for name, one in value.items()}
        if isinstance(value, list | tuple):
            self._check_depth(depth, where)
            return [self(one, where, depth + 1) for one in value]
        if isinstance(value, set | frozenset):
            return [self(one, where, depth + 1) for one in sorted(value, key=str)]
        return self._other(value, where, depth)

    def _other(self, value: Any, where: str, depth: int) -> Any:
        kind = type(value).__name__
        if kind in ("NAType", "NaTType"):
            return None
        if isinstance(value, datetime.datetime):
            return value.isoformat(" ").removesuffix(" 00:00:00")
        if kind == "datetime64":
            return None if str(value) == "NaT" else str(value)
        if isinstance(value, decimal.Decimal):
            return None if value.is_nan() else str(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).decode(errors="replace")
        if hasattr(value, "to_list"):  # a list in a cell of polars
            return self(value.to_list(), where, depth)
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 and kind != "timedelta64":
            return self(value.item(), where, depth)
        if hasattr(value, "tolist") and kind != "timedelta64":
            return self(value.tolist(), where, depth)
        return self._text(str(value))

    def _text(self, text: str) -> str:
        if text.isascii():
            return text
        text, found = LONE_SURROGATE.subn("\ufffd", text)
        self.replaced += found
        return text

    def _check_depth(self, depth: int, where: str) -> None:
        if depth >= DEEPEST:
            raise TextError(f"{where}: lists and objects are nested deeper than {DEEPEST} levels; flatten the file")
