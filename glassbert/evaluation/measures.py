"""Results of a suite: `Measure` (a number with its interval) and `Check` (passed or failed).

A measure keeps its `Sample`: one row of observations per sampled unit. A unit is a document, a sentence or a pair,
never a token, because the tokens of a text are not independent. Two models measured on the same units are compared on
the same resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassbert.metrics import Difference, Undefined, paired_difference
from glassbert.metrics.inputs import Value, as_weights, ratio
from glassbert.metrics.scores import measure as scored
from glassbert.metrics.shares import Share, counted
from glassbert.reports import number, share, short
from glassbert.tasks.checks import Finding

RESAMPLES = 1000
MIN_UNITS = 5  # for an interval


@dataclass(frozen=True)
class Sample:
    """The data of a value: `statistic(*columns, weights=None)`, where each column has one entry per unit.

    If two samples have the same `key`, row i of both is about the same unit.
    """

    statistic: Callable[..., Any]
    columns: tuple[np.ndarray, ...]
    key: str = ""

    def __len__(self) -> int:
        return len(self.columns[0])

    def minus(self, other: Sample, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
        """This value minus the other's, on the same resamples; raises `Undefined` if the units differ."""
        if not self.key or self.key != other.key or len(self) != len(other):
            raise Undefined("the two values are not about the same units, so they cannot be paired")
        if len(self) < MIN_UNITS:
            raise Undefined(f"{len(self)} units are too few for an interval")

        def statistic(_: Any, columns: np.ndarray, weights: Any = None) -> Any:
            return self.statistic(*columns.T, weights=weights)

        one, two = (np.stack(sample.columns, 1) for sample in (self, other))
        return paired_difference(statistic, np.arange(len(self)), one, two, resamples=resamples, seed=seed)


@dataclass(frozen=True)
class Measure:
    """One row of a report. If `value` is None, `reason` says why.

    unit              "share" is shown in percent; any other unit follows the number
    higher_is_better  None if neither direction is better
    group             rows with the same group are a breakdown, shown as a table and a figure
    reference         values to compare with
    headline          show it at the top of the report; if no row of a suite has it, the first row is shown
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
        """The interval as text, or the reason if there is no value."""
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
    """A measure with its interval (`glassbert.metrics.bootstrap`). `columns` have one entry per unit."""
    arrays = tuple(np.asarray(column, np.float64) for column in columns)
    enough = len(arrays[0]) >= MIN_UNITS
    score = scored(statistic, *arrays, resamples=resamples if enough else 0, seed=seed)
    if score.value is None:
        return Measure(name, None, reason=score.reason, **fields)
    interval = None if score.low is None or score.high is None else (score.low, score.high)
    if interval is None:
        fields["note"] = "; ".join(filter(None, (fields.get("note"), score.reason or "too few units for an interval")))
    return Measure(name, score.value, interval, sample=Sample(statistic, arrays, key), **fields)


def undefined(name: str, reason: str, **fields: Any) -> Measure:
    """A measure without a value."""
    return Measure(name, None, reason=reason, **fields)


def _count_rate(hits: Any, counts: Any) -> Share | None:
    return _count_mean(hits) if (counts == 1).all() else None


@counted(_count_rate)
def rate(hits: Any, counts: Any, weights: Any = None) -> Value:
    """Σ hits / Σ counts, both per unit."""
    weights = as_weights(weights, len(hits))
    return ratio(weights @ hits, weights @ counts, "the count is 0")


def _count_mean(values: Any) -> Share | None:
    return Share(float(values.sum()), len(values)) if len(values) and np.isin(values, (0, 1)).all() else None


@counted(_count_mean)
def mean(values: Any, weights: Any = None) -> Value:
    weights = as_weights(weights, len(values))
    return ratio(weights @ values, weights.sum(-1), "there are no examples")


def write(value: float, unit: str, with_unit: bool = True) -> str:
    """Format a number for the report."""
    if unit == "share":
        return share(value)
    if math.isfinite(value) and abs(value) >= 100_000:
        text = short(value)
    else:
        text = number(int(value) if float(value).is_integer() and abs(value) < 1e15 else value)
    return f"{text} {unit}" if unit and with_unit else text


@dataclass(frozen=True)
class Check:
    """One condition that must hold. `finding` is set if it failed, `skipped` is the reason if it was not checked."""

    name: str
    measured: str = ""
    finding: Finding | None = None
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return self.finding is None and not self.skipped

    @property
    def verdict(self) -> str:
        if self.skipped:
            return "not checked"
        return "ok" if self.finding is None else self.finding.severity


def failed(
    name: str,
    problem: str,
    evidence: str,
    cause: str,
    remedy: str,
    severity: Literal["problem", "warning", "note"] = "problem",
) -> Check:
    return Check(name, evidence, Finding(severity, problem, evidence, f"Likely cause: {cause} Remedy: {remedy}"))
