"""Labels and their numbers, in an order that never changes once a model has learnt it.

Numbers are sorted as numbers and words by the alphabet, except where words have an order of their own: no before yes,
low before medium before high. A label that training never saw is an error that names it and its row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.tasks.table import as_number, is_missing

# Words with an order, lowest first; of two labels the second is the positive one.
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
Where = Callable[[int], str]


@lru_cache(maxsize=1 << 16, typed=True)
def label_name(value: Any) -> str:
    """A label as text: 1, 1.0 and "1" are the same label, and so are True and "True"."""
    if isinstance(value, str):
        value = value.strip()
    number = None if isinstance(value, bool) else as_number(value)
    return str(int(number)) if number is not None and number == int(number) and abs(number) < 1e15 else str(value)


def in_order(names: Iterable[str]) -> list[str]:
    """Sorted by scale, by number or by alphabet."""
    names = sorted(set(names))
    lowered = [name.lower() for name in names]
    for scale in SCALES:
        if set(lowered) <= set(scale) and len(set(lowered)) == len(names) > 1:
            return sorted(names, key=lambda name: scale.index(name.lower()))
    if all(as_number(name) is not None for name in names):
        return sorted(names, key=float)
    return names


@dataclass(frozen=True)
class LabelMap:
    """Label i is called names[i]."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            twice = next(name for place, name in enumerate(self.names) if name in self.names[:place])
            raise InputError(f"the label {twice!r} is in the list twice")

    @classmethod
    def of(cls, values: Iterable[Any]) -> LabelMap:
        """All labels among the values, in order; lists of labels (multilabel, tokens) count with all they hold."""
        return cls(tuple(in_order(label_name(value) for value in flat(values))))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def encode(self, values: Sequence[Any], where: Where) -> np.ndarray:
        """Numbers [N] of labels."""
        found = np.fromiter((self._numbers.get(label_name(value), -1) for value in values), np.int64, len(values))
        if (found < 0).any():
            row = int((found < 0).argmax())
            raise InputError(self._unseen(values, found, where(row), values[row]))
        return found

    def encode_sets(self, values: Sequence[Sequence[Any]], where: Where) -> np.ndarray:
        """Indicators [N, L] of the labels each example has."""
        sizes = [len(labels) for labels in values]
        rows = np.repeat(np.arange(len(values)), sizes)
        columns = self.encode(list(flat(values)), lambda place: where(int(rows[place])))
        indicators = np.zeros((len(values), len(self)), np.float32)
        indicators[rows, columns] = 1.0
        return indicators

    def decode(self, numbers: Iterable[int]) -> list[str]:
        return [self.names[number] for number in numbers]

    def _unseen(self, values: Sequence[Any], found: np.ndarray, where: str, value: Any) -> str:
        if is_missing(value):
            return f"{where}: there is no label; fill it in, or take the row out"
        strange = Counter(label_name(values[row]) for row in np.flatnonzero(found < 0).tolist())
        others = f" ({strange.total():,} rows have labels like this)" if strange.total() > 1 else ""
        known = ", ".join(map(repr, self.names[:10])) + (", ..." if len(self) > 10 else "")
        return (
            f"{where}: the label {label_name(value)!r} was not seen in training{others}; known are {known}. "
            "Correct the label, or train with examples of it"
        )


def flat(values: Iterable[Any]) -> Iterable[Any]:
    """Labels one by one, of lists and of single ones."""
    for value in values:
        if isinstance(value, list | tuple | set | frozenset):
            yield from value
        else:
            yield value
