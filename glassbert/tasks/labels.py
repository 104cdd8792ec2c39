"""`LabelMap`: labels and their indices, in a fixed order that is stored with the model.

A label is kept as it is written: "007", "1e3" and "01" are labels of their own. Only the spellings of one number that
programs give it on their own are the same label: 1, 1.0 and "1".

Numbers are sorted as numbers, words alphabetically, and words of a known scale by the scale: no before yes, low before
medium before high. Encoding a label that is not in the map is an error that names the label and its row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.reading.cells import as_number, is_missing, shown

# Ordered words, lowest first; of two labels the second is the positive class.
SCALES = (
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("negative", "neutral", "positive"),
    ("neg", "pos"),
    ("ham", "spam"),
    ("bad", "good"),
    ("low", "medium", "high"),
    ("very low", "low", "medium", "high", "very high"),
    ("small", "medium", "large"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("poor", "fair", "good", "very good", "excellent"),
    ("very bad", "bad", "neutral", "good", "very good"),
    ("very negative", "negative", "neutral", "positive", "very positive"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("beginner", "intermediate", "advanced", "expert"),
)
RowLocation = Callable[[int], str]  # row -> where it is, for error messages


WHOLE_WITH_POINT = re.compile(r"(-?(?:0|[1-9]\d*))\.0+", re.ASCII)


def label_text(value: Any) -> str:
    """A label as it is written, without spaces around it. A float without a fraction is written as 1, not 1.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value).strip()


def label_name(value: Any) -> str:
    """The name by which labels are compared: 1, 1.0, "1" and "1.0" are the same label, and so are True and "True"."""
    return _name_of_text(label_text(value))


@lru_cache(maxsize=1 << 16)
def _name_of_text(text: str) -> str:
    whole = WHOLE_WITH_POINT.fullmatch(text)
    return whole[1] if whole else text


def sort_labels(names: Iterable[str]) -> list[str]:
    """Distinct labels, sorted by scale, by number or alphabetically."""
    names = sorted(set(names))
    lowered = [name.lower() for name in names]
    for scale in SCALES:
        if set(lowered) <= set(scale) and len(set(lowered)) == len(names) > 1:
            return sorted(names, key=lambda name: scale.index(name.lower()))
    if all(as_number(name) is not None for name in names):
        return sorted(names, key=lambda name: (float(name), name))
    return names


@dataclass(frozen=True)
class LabelMap:
    """The name of label i is names[i]."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            duplicate = next(name for index, name in enumerate(self.names) if name in self.names[:index])
            raise InputError(f"the label {shown(duplicate)} is in the list twice")

    @classmethod
    def of(cls, values: Iterable[Any]) -> LabelMap:
        """All labels among the values, sorted; lists of labels (multilabel, tokens) are flattened."""
        written: dict[str, str] = {}
        for value in flatten_labels(values):
            text = label_text(value)
            before = written.setdefault(_name_of_text(text), text)
            if len(text) < len(before):
                written[_name_of_text(text)] = text
        return cls(tuple(sort_labels(written.values())))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {label_name(name): index for index, name in enumerate(self.names)}

    def encode(self, values: Sequence[Any], where: RowLocation) -> np.ndarray:
        """Label indices, int64 [N]."""
        found = np.fromiter((self._indices.get(label_name(value), -1) for value in values), np.int64, len(values))
        if (found < 0).any():
            row = int((found < 0).argmax())
            raise InputError(self._unseen_message(values, found, where(row), values[row]))
        return found

    def encode_sets(self, values: Sequence[Sequence[Any]], where: RowLocation) -> np.ndarray:
        """Indicators, float32 [N, L], from the list of labels of each example."""
        sizes = [len(labels) for labels in values]
        rows = np.repeat(np.arange(len(values)), sizes)
        columns = self.encode(list(flatten_labels(values)), lambda index: where(int(rows[index])))
        indicators = np.zeros((len(values), len(self)), np.float32)
        indicators[rows, columns] = 1.0
        return indicators

    def decode(self, indices: Iterable[int]) -> list[str]:
        """The names of label indices."""
        return [self.names[index] for index in indices]

    def _unseen_message(self, values: Sequence[Any], found: np.ndarray, where: str, value: Any) -> str:
        if is_missing(value):
            return f"{where}: there is no label; fill it in, or leave such rows out with --drop-missing"
        unseen = Counter(label_name(values[row]) for row in np.flatnonzero(found < 0).tolist())
        others = f" ({unseen.total():,} rows have labels like this)" if unseen.total() > 1 else ""
        known = ", ".join(map(shown, self.names[:10])) + (", ..." if len(self) > 10 else "")
        return (
            f"{where}: the label {shown(label_text(value))} was not seen in training{others}; known are {known}. "
            "Correct the label, or train with examples of it"
        )


def flatten_labels(values: Iterable[Any]) -> Iterable[Any]:
    """The labels of all values, each a single label or a list of labels."""
    for value in values:
        if isinstance(value, list | tuple | set | frozenset):
            yield from value
        else:
            yield value
