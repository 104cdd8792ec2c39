"""The numbers of a table beside its words: which vectors the numbers of a column lie between.

    column "age" with the knots 1, 20, 35, 80        age 26 lies between 20 and 35: 0.6 · table[1] + 0.4 · table[2]

The knots are quantiles of the training numbers, so that each interval holds about as many of them. A number below the
first or above the last knot counts as that knot. A missing value (NaN) has a vector of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from glassbert.errors import ConfigError, InputError

KNOTS = 17  # at most, for each column


@dataclass(frozen=True)
class NumbersConfig:
    """The knots of every column, in ascending order; columns are counted from 1."""

    knots: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        try:
            knots = tuple(tuple(float(knot) for knot in column) for column in self.knots)
        except (TypeError, ValueError):
            raise ConfigError("the knots of numbers must be lists of numbers, one for each column") from None
        if not knots:
            raise ConfigError("numbers need the knots of at least one column")
        for number, column in enumerate(knots, 1):
            rising = all(a < b for a, b in pairwise(column))
            if len(column) < 2 or not rising or not all(map(math.isfinite, column)):
                raise ConfigError(f"column {number} needs two or more finite knots in ascending order, got {column}")
        object.__setattr__(self, "knots", knots)

    @property
    def columns(self) -> int:
        return len(self.knots)

    @property
    def rows(self) -> int:
        """Vectors of a column: one for each knot, and one for a missing value."""
        return max(map(len, self.knots)) + 1

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], count: int = KNOTS) -> NumbersConfig:
        """Knots at the quantiles of the numbers of each column; NaN is left out."""
        knots = []
        for numbers in columns:
            known = numbers[~np.isnan(numbers)] if not np.isnan(numbers).all() else np.zeros(1)
            found = np.unique(np.quantile(known, np.linspace(0, 1, count)))
            knots.append(tuple(found.tolist() if len(found) > 1 else [found[0], found[0] + 1.0]))
        return cls(tuple(knots))

    @classmethod
    def from_dict(cls, values: Any) -> NumbersConfig:
        if not isinstance(values, Mapping) or set(values) != {"knots"}:
            raise ConfigError(f"numbers must hold the knots of every column, got {values!r}")
        return cls(values["knots"])

    def place(self, fields: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row of the knot below every number [B, T], and the weights of it and the next one [B, T, 2].

        fields [B, T] are columns from 1, or 0 for no number; values [B, T], NaN for a missing one.
        """
        index = np.zeros(fields.shape, np.int64)
        weights = np.zeros((*fields.shape, 2))
        for number, knots in enumerate(self.knots):
            here = np.nonzero(fields == number + 1)
            given = values[here]
            missing = np.isnan(given)
            inside = np.clip(np.where(missing, knots[0], given), knots[0], knots[-1])
            below = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
            low, high = np.array(knots)[below], np.array(knots)[below + 1]
            share = np.where(missing, 1.0, (inside - low) / (high - low))
            index[here] = number * self.rows + np.where(missing, self.rows - 2, below)
            weights[here] = np.stack([1.0 - share, share], -1)
        return index, weights


def check_numbers(numbers: NumbersConfig | None, fields: Any, values: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """The checked inputs of the numbers of a batch; invalid ones raise `InputError`."""
    if (fields is None) != (values is None):
        raise InputError("fields and values go together: the column and the number of each token")
    if fields is None:
        return {}
    if numbers is None:
        raise InputError("this model reads no numbers beside its words; leave fields and values out")
    fields, values = np.asarray(fields), np.asarray(values)
    for name, array in (("fields", fields), ("values", values)):
        if array.shape != shape:
            raise InputError(f"{name} must have the shape of input_ids, {list(shape)}, got {list(array.shape)}")
    if fields.dtype.kind not in "iu" or fields.min() < 0 or fields.max() > numbers.columns:
        raise InputError(f"fields must be columns from 1 to {numbers.columns}, or 0 for no number")
    if values.dtype.kind not in "iuf" or np.isinf(values[fields > 0]).any():
        raise InputError("values must be finite numbers, or NaN for a missing one")
    index, weights = numbers.place(fields, values.astype(np.float64))
    return {"number_index": index, "number_weights": weights}
