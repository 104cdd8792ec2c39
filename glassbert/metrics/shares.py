"""Metrics that are shares of examples: their intervals come from counts, without resampling.

    share = k / n                        k successes in n independent examples
    P(X ≥ k | low) = α/2                 the interval of Clopper and Pearson: X is binomial, α = 0.05 for 95 %
    P(X ≤ k | high) = α/2
    P(X ≥ k | p) = I_p(k, n - k + 1)     the regularised incomplete beta function

A bootstrap cannot show what did not occur: of 34 correct answers in 34 all resamples are correct, and its interval is
100 % to 100 %. This one is 89.7 % to 100 %. It contains the true share in at least 95 % of all samples, whatever
the share and the number of examples.

Some metrics are functions of a share:

    F1 of one label = 2·J / (1 + J)      J = TP / (TP + FP + FN), a share of the examples that have the label in truth
                                         or prediction
    AUC = 1                              m disjoint pairs of a positive and a negative example are independent, and
                                         each is in the right order with the probability AUC: m of m are
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glassbert.errors import InputError


def itself(share: float) -> float:
    return share


@dataclass(frozen=True)
class Share:
    """`hits` of `count` examples; the metric is `value(hits / count)`, and `value` is increasing."""

    hits: float
    count: float
    value: Callable[[float], float] = itself

    def interval(self, level: float) -> tuple[float, float]:
        low, high = exact_interval(self.hits, self.count, level)
        return self.value(low), self.value(high)


Counter = Callable[..., Share | None]  # the columns and options of a metric -> its counts; None: not a share here
COUNTERS: dict[Callable[..., Any], Counter] = {}


def counted(counter: Counter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: `counter` gives the counts of a metric, for its interval."""

    def register(metric: Callable[..., Any]) -> Callable[..., Any]:
        COUNTERS[metric] = counter
        return metric

    return register


def exact_interval(hits: float, count: float, level: float = 0.95) -> tuple[float, float]:
    """The interval of Clopper and Pearson for `hits` of `count`."""
    if not 0 <= hits <= count or count <= 0:
        raise InputError(f"a share needs 0 to {count:g} hits of at least one example, got {hits:g}")
    tail = (1 - level) / 2
    low = _beta_quantile(hits, count - hits + 1, tail) if hits else 0.0
    return low, _beta_quantile(hits + 1, count - hits, 1 - tail) if hits < count else 1.0


def _beta_quantile(a: float, b: float, p: float) -> float:
    """x with I_x(a, b) = p, by bisection."""
    low, high = 0.0, 1.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if incomplete_beta(a, b, middle) < p else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) · 1 / (1 + d_1 / (1 + d_2 / ...)), for 0 < x < 1

    d_2m = m (b - m) x / ((a + 2m - 1)(a + 2m)),  d_2m+1 = -(a + m)(a + b + m) x / ((a + 2m)(a + 2m + 1))

    The fraction converges quickly for x below the mean; above it, I_x(a, b) = 1 - I_(1-x)(b, a).
    """
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    logarithm = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    value, upper, lower = 1.0, 1.0, 0.0  # the fraction, and the ratios of successive numerators and denominators
    for step in itertools.count(0):
        m = step // 2
        if step == 0:
            d = 1.0
        elif step % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1.0 / (1.0 + d * lower or 1e-300)
        upper = 1.0 + d / upper or 1e-300
        value *= upper * lower
        if abs(1.0 - upper * lower) < 1e-14:
            break
    return math.exp(logarithm) * (value - 1.0) / a
