"""The kind of a target (inferred from its column unless given), and targets as arrays.

binary        two labels                         multilabel   several labels at once: "4,27", ["joy", "love"]
multiclass    one of several labels              ordinal      labels with an order: stars, grades
regression    numbers on a scale                 tokens       one tag for every word
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from glassbert.errors import InputError
from glassbert.reading.cells import as_number, is_missing, shown
from glassbert.reading.decimals import COMMA, POINT, canonical
from glassbert.tasks.labels import SCALES, LabelMap, RowLocation, label_name

Kind = Literal["binary", "multiclass", "multilabel", "ordinal", "regression", "tokens", "series"]
KINDS: tuple[str, ...] = get_args(Kind)
SEPARATORS = (",", ";", "|")
MAX_GRADES = 11
MAX_CLASSES = 1000
GRADE_NAME = re.compile(r"(?i)rating|stars?\b|score|quality|grade|level|rank|severity|stage|ordinal|satisfaction")


@dataclass(frozen=True)
class InferredKind:
    """The kind of a target and the reason. `separator` is that between the labels of a multilabel cell."""

    kind: Kind
    reason: str
    separator: str | None = None


def infer_kind(values: Sequence[Any], name: str = "target", marks: Sequence[str] = (POINT, COMMA)) -> InferredKind:
    """The kind of the targets in the column `name`. Missing values are ignored here; `encode_targets` rejects them.

    `marks` are the decimal marks that numbers may have, the most probable first. Unless that is the comma, "4,27" is a
    number only if it is no list of labels.
    """
    known = [value for value in values if not is_missing(value)]
    if not known:
        raise InputError(f"the column {shown(name)} holds no value; choose another column with --target")
    if any(is_nested(value) for value in known):
        raise InputError(
            f"the column {shown(name)} holds objects or lists of them, not labels or numbers; choose another column "
            "with --target"
        )
    if any(isinstance(value, list | tuple | set | frozenset) for value in known):
        return InferredKind("multilabel", f"{shown(name)} holds lists of labels")
    distinct = {label_name(value) for value in known}
    numbers = column_numbers(known, marks)
    if None not in numbers:
        as_labels = None if marks[0] == COMMA else _several_labels(list(map(str, known)), distinct, name)
        return as_labels or _infer_from_numbers(np.array(numbers, np.float64), distinct, name)
    return _infer_from_words([str(value) for value in known], distinct, name)


def is_nested(value: Any) -> bool:
    """Whether a target is an object, or a list of objects or lists."""
    if isinstance(value, list | tuple):
        return any(isinstance(one, dict | list) for one in value)
    return isinstance(value, dict)


def column_numbers(values: Sequence[Any], marks: Sequence[str] = (POINT, COMMA)) -> list[float | None]:
    """The numbers of a column by the first decimal mark that fits all cells; None where there is no number."""
    readings = []
    for mark in marks:
        cells = [canonical(value, mark) if isinstance(value, str) else value for value in values]
        found = [as_number(cell) for cell in cells]
        if all(n is not None for n, value in zip(found, values, strict=True) if not is_missing(value)):
            return found
        readings.append(found)
    return readings[0]


def _infer_from_numbers(numbers: np.ndarray, distinct: set[str], name: str) -> InferredKind:
    low, high = numbers.min(), numbers.max()
    if len(distinct) <= 2:
        return InferredKind("binary", f"{shown(name)} holds {len(distinct)} different values: {_few(distinct)}")
    if (numbers != np.round(numbers)).any():
        return InferredKind("regression", f"{shown(name)} holds numbers with fractions, {low:g} to {high:g}")
    span = f"whole numbers from {low:g} to {high:g}"
    if len(distinct) <= MAX_GRADES and GRADE_NAME.search(name):
        return InferredKind("ordinal", f"{shown(name)} holds {span}, and its name suggests grades")
    if len(distinct) <= MAX_GRADES and low in (0, 1) and high - low + 1 == len(distinct):
        advice = "if their order matters, choose ordinal"
        return InferredKind("multiclass", f"{shown(name)} holds {span} without a gap, like class numbers; {advice}")
    if len(distinct) <= MAX_GRADES and high - low < 2 * MAX_GRADES:
        return InferredKind("ordinal", f"{shown(name)} holds {len(distinct)} different {span}: few ordered steps")
    return InferredKind("regression", f"{shown(name)} holds {len(distinct)} different {span}")


def _infer_from_words(values: list[str], distinct: set[str], name: str) -> InferredKind:
    lowered = {value.lower() for value in distinct}
    if len(distinct) <= 2:
        return InferredKind("binary", f"{shown(name)} holds {len(distinct)} different values: {_few(distinct)}")
    if several := _several_labels(values, distinct, name):
        return several
    if any(lowered <= set(scale) for scale in SCALES):
        return InferredKind("ordinal", f"{shown(name)} holds ordered words: {_few(distinct)}")
    if len(distinct) > MAX_CLASSES or (len(distinct) > 20 and 2 * len(distinct) > len(values)):
        raise InputError(
            f"the column {shown(name)} holds {len(distinct):,} different words in {len(values):,} rows: this is text "
            "or a name, not a label; choose another column with --target"
        )
    return InferredKind("multiclass", f"{shown(name)} holds {len(distinct)} different labels")


def _several_labels(values: list[str], distinct: set[str], name: str) -> InferredKind | None:
    """Several labels in one cell, if a separator gives fewer labels than there are cells."""
    for separator in SEPARATORS:
        parts = Counter(part.strip() for value in values for part in value.split(separator))
        joined = sum(separator in value for value in values) / len(values)
        if joined > 0.01 and len(parts) < len(distinct) and len(parts) <= max(2, len(values) // 5):
            reason = f"{joined:.0%} of {shown(name)} name several of {len(parts)} labels, separated by {separator!r}"
            return InferredKind("multilabel", reason, separator)
    return None


@dataclass(frozen=True)
class Targets:
    """Targets as arrays.

    values   [N] int64 (binary, multiclass, ordinal), float64 (regression); [N, L] float32 (multilabel); for tokens a
             list of [words] int64
    """

    kind: Kind
    values: Any
    labels: LabelMap | None


def encode_targets(values: Sequence[Any], kind: Kind, where: RowLocation, labels: LabelMap | None = None) -> Targets:
    """`labels` is the map of the training data; if None, it is made from the values."""
    if kind not in KINDS:
        raise InputError(f"there is no kind of target {shown(kind)}; choose one of {', '.join(KINDS)}")
    _check_missing(values, kind, where)
    if kind in ("regression", "series"):
        return Targets(kind, _as_numbers(values, where), None)
    labels = labels or LabelMap.of(values)
    if kind == "binary" and len(labels) > 2:
        raise InputError(f"a binary task has two labels, but there are {len(labels)}: {_few(labels.names[:10])}")
    if kind == "multilabel":
        return Targets(kind, labels.encode_sets([_label_list(value) for value in values], where), labels)
    if kind == "tokens":
        return Targets(kind, [labels.encode(tags, _in_sentence(where, row)) for row, tags in enumerate(values)], labels)
    return Targets(kind, labels.encode(values, where), labels)


def split_labels(value: Any, separator: str) -> list[str]:
    """["4", "27"] from "4, 27"; a list stays as it is."""
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return [] if is_missing(value) else [part.strip() for part in str(value).split(separator) if part.strip()]


def _label_list(value: Any) -> Sequence[Any]:
    return split_labels(value, "\0") if not isinstance(value, list | tuple) else value


def _few(names: Iterable[str]) -> str:
    return ", ".join(name if len(name) <= 40 else f"{name[:37]}..." for name in sorted(names))


def _in_sentence(where: RowLocation, row: int) -> RowLocation:
    return lambda word: f"{where(row)}, word {word + 1}"


def _check_missing(values: Sequence[Any], kind: Kind, where: RowLocation) -> None:
    if kind in ("multilabel", "tokens"):  # a text may have no label; any string may be a tag
        return
    rows = [row for row, value in enumerate(values) if is_missing(value)]
    if rows:
        others = f" ({len(rows):,} rows have none)" if len(rows) > 1 else ""
        raise InputError(
            f"{where(rows[0])} has no target{others}; fill it in, or leave such rows out with --drop-missing"
        )


def _as_numbers(values: Sequence[Any], where: RowLocation) -> np.ndarray:
    numbers = [as_number(value) for value in values]
    for row, number in enumerate(numbers):
        if number is None:
            raise InputError(
                f"{where(row)}: the target {shown(values[row])} is no number; repair it, or choose another kind of "
                "target with --head"
            )
    return np.array(numbers, np.float64)
