"""The kind of a table column: number, category, text, or something a model should not use, such as an id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassbert.reading.cells import as_number, is_missing, shown

ColumnKind = Literal["number", "boolean", "category", "text", "code", "id", "constant", "empty"]
BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "t": True, "f": False, "y": True, "n": False}
ID_NAME = re.compile(r"(?i)(^|[_ ])id$|^id|(?<=[a-z])Id$|^index$|^unnamed|^row(_?(number|id))?$|uuid|guid")


@dataclass(frozen=True)
class Profile:
    """A column's kind, the reason, and the share of missing values."""

    name: str
    kind: ColumnKind
    reason: str
    missing: float


def profile(name: str, values: Sequence[Any]) -> Profile:
    """The profile of the column `name`."""
    known = [value for value in values if not is_missing(value)]
    missing = 1.0 - len(known) / max(1, len(values))
    kind, reason = _kind(name, known)
    if kind == "constant" and missing:
        kind, reason = "category", f"{shown(str(known[0]))} or missing"
    return Profile(name, kind, reason, missing)


def _kind(name: str, known: list[Any]) -> tuple[ColumnKind, str]:
    if not known:
        return "empty", "no row has a value"
    words = [str(value).strip() for value in known]
    distinct = set(words)
    if len(distinct) == 1:
        return "constant", f"every row has {shown(words[0])}"
    lowered = {word.lower() for word in distinct}
    if all(isinstance(value, bool) for value in known) or lowered <= set(BOOLEANS):
        return "boolean", "yes or no"
    numbers = [as_number(value) for value in known]
    if all(number is not None for number in numbers):
        return _numeric_kind(name, np.array(numbers, np.float64), len(distinct))
    unique = len(distinct) / len(words)
    length = sum(len(word.split()) for word in words) / len(words)
    digits = sum(any(character.isdigit() for character in word) for word in words) / len(words)
    if unique > 0.5 and length < 2.5 and (digits > 0.5 or ID_NAME.search(name)) and len(words) > 5:
        return "code", f"{unique:.0%} of its values are different, and they look like ticket or cabin numbers"
    if length >= 2.5 and unique > 0.3:
        return "text", f"{length:.0f} words on average"
    if unique > 0.95 and len(words) > 20:
        return "id", "nearly every row has a different value"
    return "category", f"{len(distinct)} different values"


def _numeric_kind(name: str, numbers: np.ndarray, distinct: int) -> tuple[ColumnKind, str]:
    whole = (numbers == np.round(numbers)).all()
    counting = whole and len(numbers) > 2 and distinct == len(numbers)
    if counting and (ID_NAME.search(name) or (np.diff(numbers) == 1).all()):
        return "id", "whole numbers without repetition: it numbers the rows"
    return "number", f"numbers from {numbers.min():g} to {numbers.max():g}"
