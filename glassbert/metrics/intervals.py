"""Confidence intervals of metrics, and paired differences of two systems.

Shares of examples, such as accuracy, have an exact interval (`shares.py`). All other metrics are resampled.

A resample draws N of the N examples with replacement. It is represented by weights: how often each example was drawn.
Metrics take many rows of weights at once, [R, N], so a thousand resamples are a few array operations. The interval is
given by percentiles of the R values. If all resamples have the same value, they show no interval. Two systems are
compared on the same resamples, because their errors are correlated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import Undefined
from glassbert.metrics.shares import COUNTERS

MAX_WEIGHTS = 1 << 21  # numbers in memory at a time


@dataclass(frozen=True)
class Interval:
    """The value on all examples, and its interval of 95 % (`level`).

    `resamples` is 0 if the interval comes from counts; `undefined` is the number of resamples without a value.
    """

    value: float
    low: float
    high: float
    level: float
    resamples: int
    undefined: int = 0

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Difference(Interval):
    """The first system's value minus the second's; `p` is the two-sided bootstrap p-value of a difference of 0."""

    p: float = 1.0


def bootstrap(
    metric: Callable[..., Any], *columns: Any, resamples: int = 1000, seed: int = 0, level: float = 0.95, **options: Any
) -> Interval:
    """`metric(*columns, **options)` with its interval; each column has one entry per example."""
    value = float(metric(*columns, **options))
    _check(resamples, level)
    found = COUNTERS[metric](*columns, **options) if metric in COUNTERS else None
    if found is not None:
        return Interval(value, *found.interval(level), level, 0)
    values = _values(metric, columns, options, resamples, seed)
    low, high = _bounds(values, level)
    if np.isclose(low, high, rtol=1e-9, atol=0):
        raise Undefined(f"no interval: all resamples of the {len(columns[0]):,} examples have this value")
    return Interval(value, low, high, level, resamples, int(np.isnan(values).sum()))


def paired_difference(
    metric: Callable[..., Any],
    truth: Any,
    first: Any,
    second: Any,
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    **options: Any,
) -> Difference:
    """metric(truth, first) - metric(truth, second) with its interval, both on the same resamples."""
    _check(resamples, level)
    value = metric(truth, first, **options) - metric(truth, second, **options)
    both = [_values(metric, (truth, system), options, resamples, seed) for system in (first, second)]
    values = both[0] - both[1]
    known = values[~np.isnan(values)]
    bounds = _bounds(values, level)
    # Add one on both sides: a finite number of resamples cannot give p = 0.
    below, above = (known <= 0).sum() + 1, (known >= 0).sum() + 1
    p = min(1.0, 2.0 * min(below, above) / (len(known) + 1))
    return Difference(float(value), *bounds, level, resamples, len(values) - len(known), float(p))


def resample_weights(examples: int, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """[resamples, examples]: how often each example was drawn."""
    drawn = generator.integers(0, examples, (resamples, examples))
    drawn += np.arange(resamples)[:, None] * examples
    return np.bincount(drawn.ravel(), minlength=resamples * examples).reshape(resamples, examples).astype(np.float64)


def _values(
    metric: Callable[..., Any], columns: tuple[Any, ...], options: dict[str, Any], resamples: int, seed: int
) -> np.ndarray:
    examples = len(columns[0])
    generator = np.random.default_rng(seed)
    rows = max(1, MAX_WEIGHTS // examples)
    parts = []
    for start in range(0, resamples, rows):
        weights = resample_weights(examples, min(rows, resamples - start), generator)
        parts.append(np.asarray(metric(*columns, weights=weights, **options), np.float64))
    return np.concatenate(parts)


def _check(resamples: int, level: float) -> None:
    if resamples < 2:
        raise InputError(f"resamples must be at least 2, got {resamples}")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}")


def _bounds(values: np.ndarray, level: float) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if 2 * len(known) < len(values):
        raise Undefined(
            f"no interval: {len(values) - len(known)} of {len(values)} resamples have no value: too few examples"
        )
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
