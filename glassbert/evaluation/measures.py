"""Measures: numbers that know how sure they are, which way is better, and what they were computed from.

A number in a report is quoted without its report, so it carries its interval, or the reason why there is none. It also
keeps its `Sample`, one row of observations for each unit that was drawn (a document, a sentence, a pair; never a token,
for the tokens of a text are not independent). Two models that answered about the same units can so be compared on the
same resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.metrics import Difference, Undefined, paired_difference
from glassbert.metrics.inputs import Value, as_weights, ratio
from glassbert.metrics.scores import measure as scored
from glassbert.reports import number, share, short

RESAMPLES = 1000
FEWEST_UNITS = 5  # fewer make no interval worth printing


@dataclass(frozen=True)
class Sample:
    """What a value was computed from: `statistic(*columns, weights=None)`, each column with one entry a unit.

    Equal `key`s say that row i of two samples is about the same unit.
    """

    statistic: Callable[..., Any]
    columns: tuple[np.ndarray, ...]
    key: str = ""

    def __len__(self) -> int:
        return len(self.columns[0])

    def minus(self, other: Sample, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
        """This value minus the other's, on the same resamples; `Undefined` where they are not about the same units."""
        if not self.key or self.key != other.key or len(self) != len(other):
            raise Undefined("not about the same units, so there is no paired comparison")

        def of(_: Any, columns: np.ndarray, weights: Any = None) -> Any:
            return self.statistic(*columns.T, weights=weights)

        one, two = (np.stack(sample.columns, 1) for sample in (self, other))
        return paired_difference(of, np.arange(len(self)), one, two, resamples=resamples, seed=seed)


@dataclass(frozen=True)
class Measure:
    """One row of a report. `value` is None where there is none, and `reason` says why.

    unit              "share" is shown as percent; else it stands behind the number
    higher_is_better  None where neither is
    group             rows of one group are a breakdown, shown as a table and a picture of their own
    reference         what to hold it against
    headline          it stands at the top of the report; else the first of its suite does
    """

    name: str
    value: float | None
    interval: tuple[float, float] | None = None
    unit: str = ""
    higher_is_better: bool | None = True
    note: str = ""
    reference: str = ""
    group: str = ""
    reason: str = ""
    sample: Sample | None = None
    headline: bool = False

    @property
    def text(self) -> str:
        return "–" if self.value is None else write(self.value, self.unit)

    @property
    def range(self) -> str:
        """The interval in words, or why there is no value."""
        if self.value is None:
            return self.reason
        return "" if self.interval is None else " to ".join(write(bound, self.unit, False) for bound in self.interval)

    def as_json(self) -> dict[str, Any]:
        given: dict[str, Any] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.interval is not None:
            given |= {"low": self.interval[0], "high": self.interval[1]}
        if self.sample is not None:
            given["units"] = len(self.sample)
        given["higher_is_better"] = self.higher_is_better
        return given | {k: v for k in ("group", "note", "reference", "reason") if (v := getattr(self, k))}


def estimate(
    name: str,
    statistic: Callable[..., Any],
    *columns: Any,
    key: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
    **fields: Any,
) -> Measure:
    """A measure with its bootstrap interval over the units that the columns have one entry for."""
    arrays = tuple(np.asarray(column, np.float64) for column in columns)
    enough = len(arrays[0]) >= FEWEST_UNITS
    score = scored(statistic, *arrays, resamples=resamples if enough else 0, seed=seed)
    if score.value is None:
        return Measure(name, None, reason=score.reason, **fields)
    interval = None if score.low is None or score.high is None else (score.low, score.high)
    if interval is None:
        fields["note"] = "; ".join(filter(None, (fields.get("note"), score.reason or "too few units for an interval")))
    return Measure(name, score.value, interval, sample=Sample(statistic, arrays, key), **fields)


def undefined(name: str, reason: str, **fields: Any) -> Measure:
    """A measure that cannot be computed."""
    return Measure(name, None, reason=reason, **fields)


def rate(hits: Any, asked: Any, weights: Any = None) -> Value:
    """Σ hits / Σ asked: a share of what was asked, resampled by whole units."""
    weights = as_weights(weights, len(hits))
    return ratio(weights @ hits, weights @ asked, "nothing was asked")


def mean(values: Any, weights: Any = None) -> Value:
    weights = as_weights(weights, len(values))
    return ratio(weights @ values, weights.sum(-1), "there are no examples")


def write(value: float, unit: str, with_unit: bool = True) -> str:
    """A number as the report shows it."""
    if unit == "share":
        return share(value)
    if math.isfinite(value) and abs(value) >= 100_000:
        text = short(value)
    else:
        text = number(int(value) if float(value).is_integer() and abs(value) < 1e15 else value)
    return f"{text} {unit}" if unit and with_unit else text
