"""What kind of task is this? Recognised from the column of targets, with the reason, and always overridable.

binary        two labels                         multilabel   several labels at once: "4,27", ["joy", "love"]
multiclass    one of several labels              ordinal      labels with an order: stars, grades
regression    numbers on a scale                 tokens       a tag for every word
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from glassbert.errors import InputError
from glassbert.tasks.labels import SCALES, LabelMap, Where, label_name
from glassbert.tasks.table import as_number, is_missing

Kind = Literal["binary", "multiclass", "multilabel", "ordinal", "regression", "tokens", "series"]
KINDS: tuple[str, ...] = get_args(Kind)
SEPARATORS = (",", ";", "|")
MOST_GRADES = 11
MOST_CLASSES = 1000
GRADED = re.compile(r"(?i)rating|stars?\b|score|quality|grade|level|rank|severity|stage|ordinal|satisfaction")


@dataclass(frozen=True)
class Recognised:
    """The kind of a target, why we think so, and for multilabel strings what separates the labels."""

    kind: Kind
    reason: str
    separator: str | None = None


def recognise(values: Sequence[Any], name: str = "target") -> Recognised:
    """Missing values are passed over here; `encode_targets` refuses them."""
    known = [value for value in values if not is_missing(value)]
    if not known:
        raise InputError(f"the column {name!r} holds no value at all; choose another target")
    if any(isinstance(value, list | tuple | set | frozenset) for value in known):
        return Recognised("multilabel", f"{name!r} holds lists of labels")
    distinct = {label_name(value) for value in known}
    numbers = [as_number(value) for value in known]
    if all(number is not None for number in numbers):
        return _of_numbers(np.array(numbers, np.float64), distinct, name)
    return _of_words([str(value) for value in known], distinct, name)


def _of_numbers(numbers: np.ndarray, distinct: set[str], name: str) -> Recognised:
    low, high = numbers.min(), numbers.max()
    if len(distinct) <= 2:
        return Recognised("binary", f"{name!r} holds {len(distinct)} different values: {', '.join(sorted(distinct))}")
    if (numbers != np.round(numbers)).any():
        return Recognised("regression", f"{name!r} holds numbers with fractions, {low:g} to {high:g}")
    span = f"whole numbers from {low:g} to {high:g}"
    if len(distinct) <= MOST_GRADES and GRADED.search(name):
        return Recognised("ordinal", f"{name!r} holds {span}, and its name speaks of grades")
    if len(distinct) <= MOST_GRADES and low in (0, 1) and high - low + 1 == len(distinct):
        advice = "if their order matters, choose ordinal"
        return Recognised("multiclass", f"{name!r} holds {span} without a gap, as numbered classes do; {advice}")
    if len(distinct) <= MOST_GRADES and high - low < 2 * MOST_GRADES:
        return Recognised("ordinal", f"{name!r} holds {len(distinct)} different {span}: few steps with an order")
    return Recognised("regression", f"{name!r} holds {len(distinct)} different {span}")


def _of_words(values: list[str], distinct: set[str], name: str) -> Recognised:
    lowered = {value.lower() for value in distinct}
    if len(distinct) <= 2:
        return Recognised("binary", f"{name!r} holds {len(distinct)} different values: {', '.join(sorted(distinct))}")
    for separator in SEPARATORS:
        parts = Counter(part.strip() for value in values for part in value.split(separator))
        joined = sum(separator in value for value in values) / len(values)
        if joined > 0.01 and len(parts) < len(distinct) and len(parts) <= max(2, len(values) // 5):
            reason = f"{joined:.0%} of {name!r} name several of {len(parts)} labels, separated by {separator!r}"
            return Recognised("multilabel", reason, separator)
    if any(lowered <= set(scale) for scale in SCALES):
        return Recognised("ordinal", f"{name!r} holds words with an order: {', '.join(sorted(distinct))}")
    if len(distinct) > MOST_CLASSES or (len(distinct) > 20 and 2 * len(distinct) > len(values)):
        raise InputError(
            f"the column {name!r} holds {len(distinct):,} different words in {len(values):,} rows: this is text or a "
            "name, not a label; choose another target"
        )
    return Recognised("multiclass", f"{name!r} holds {len(distinct)} different labels")


@dataclass(frozen=True)
class Targets:
    """Targets as a model learns them.

    values   [N] int64 (binary, multiclass, ordinal), float64 (regression); [N, L] float32 (multilabel); for tokens a
             list of [words] int64
    """

    kind: Kind
    values: Any
    labels: LabelMap | None


def encode_targets(values: Sequence[Any], kind: Kind, where: Where, labels: LabelMap | None = None) -> Targets:
    """`labels` are those of training; without them they are taken from the values."""
    if kind not in KINDS:
        raise InputError(f"there is no kind of target {kind!r}; there are {', '.join(KINDS)}")
    _refuse_missing(values, kind, where)
    if kind in ("regression", "series"):
        return Targets(kind, _numbers(values, where), None)
    labels = labels or LabelMap.of(values)
    if kind == "binary" and len(labels) > 2:
        raise InputError(f"a binary task has two labels, and there are {len(labels)}: {', '.join(labels.names[:10])}")
    if kind == "multilabel":
        return Targets(kind, labels.encode_sets([_as_set(value) for value in values], where), labels)
    if kind == "tokens":
        return Targets(kind, [labels.encode(tags, _in_sentence(where, row)) for row, tags in enumerate(values)], labels)
    return Targets(kind, labels.encode(values, where), labels)


def split_labels(value: Any, separator: str) -> list[str]:
    """ "4, 27" as ["4", "27"]; a list stays as it is."""
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return [] if is_missing(value) else [part.strip() for part in str(value).split(separator) if part.strip()]


def _as_set(value: Any) -> Sequence[Any]:
    return split_labels(value, "\0") if not isinstance(value, list | tuple) else value


def _in_sentence(where: Where, row: int) -> Where:
    return lambda word: f"{where(row)}, word {word + 1}"


def _refuse_missing(values: Sequence[Any], kind: Kind, where: Where) -> None:
    if kind in ("multilabel", "tokens"):  # a text may have no label; a tag may look like anything
        return
    rows = [row for row, value in enumerate(values) if is_missing(value)]
    if rows:
        others = f", and so have {len(rows) - 1:,} others" if len(rows) > 1 else ""
        raise InputError(
            f"{where(rows[0])} has no target{others}; fill it in, or drop such rows with drop_missing=True"
        )


def _numbers(values: Sequence[Any], where: Where) -> np.ndarray:
    numbers = [as_number(value) for value in values]
    for row, number in enumerate(numbers):
        if number is None:
            raise InputError(f"{where(row)}: the target {values[row]!r} is no number, as regression needs")
    return np.array(numbers, np.float64)
