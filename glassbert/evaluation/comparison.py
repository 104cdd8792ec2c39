"""Comparison of two models by paired differences.

If both were measured on the same units, the interval of the difference comes from the same resamples of these units:
what makes a sample hard is mostly hard for both models and cancels. A difference counts as better or worse only if its
95 % interval excludes zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glassbert.evaluation.measures import Measure, write
from glassbert.evaluation.suite import Options, SuiteResult
from glassbert.metrics import Difference, Undefined

CHANCE = "could be chance"


@dataclass(frozen=True)
class Comparison:
    """One measure of a subject and the same measure of the first subject."""

    suite: str
    subject: str
    baseline: str
    first: Measure
    second: Measure
    difference: Difference | None
    reason: str = ""  # why there is no interval

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def group(self) -> str:
        return self.first.group

    @property
    def change(self) -> float | None:
        if self.first.value is None or self.second.value is None:
            return None
        return self.second.value - self.first.value

    @property
    def verdict(self) -> str:
        """One of "better", "worse", "more", "less", "the same", "could be chance"; empty without an interval."""
        if self.difference is None:
            return ""
        if self.difference.low == self.difference.high == 0:
            return "the same"
        if self.difference.low <= 0 <= self.difference.high:
            return CHANCE
        up = self.difference.value > 0
        if self.first.higher_is_better is None:
            return "more" if up else "less"
        return "better" if up == self.first.higher_is_better else "worse"

    @property
    def text(self) -> str:
        """The difference with its sign; shares in percentage points."""
        return "–" if self.change is None else signed(self.change, self.first.unit)

    @property
    def range(self) -> str:
        if self.difference is None:
            return self.reason
        if self.difference.low == self.difference.high == 0:
            return ""
        return " to ".join(signed(bound, self.first.unit) for bound in (self.difference.low, self.difference.high))

    def as_json(self) -> dict[str, Any]:
        found = {"suite": self.suite, "group": self.group, "name": self.name, "baseline": self.baseline,
                 "subject": self.subject, "difference": self.change}  # fmt: skip
        if self.difference is None:
            return {**found, "reason": self.reason}
        low, high, p = self.difference.low, self.difference.high, self.difference.p
        return {**found, "low": low, "high": high, "p": p, "verdict": self.verdict}


def compare(results: Sequence[tuple[str, Mapping[str, SuiteResult]]], options: Options) -> list[Comparison]:
    """Compare every measure of the first subject with the same measure of the other subjects."""
    (baseline, first), *others = results
    found = []
    for suite, result in first.items():
        for row in result.rows:
            for subject, theirs in others:
                for other in theirs[suite].rows:
                    if (other.group, other.name) == (row.group, row.name):
                        difference, reason = _difference(row, other, options)
                        found.append(Comparison(suite, subject, baseline, row, other, difference, reason))
    return found


def _difference(first: Measure, second: Measure, options: Options) -> tuple[Difference | None, str]:
    if first.value is None or second.value is None:
        return None, first.reason or second.reason
    if first.sample is None or second.sample is None:
        same = first.higher_is_better is None or first.value == second.value
        return None, "" if same else "measured once each"
    try:
        return second.sample.minus(first.sample, options.resamples), ""
    except Undefined as reason:
        return None, str(reason)


def signed(value: float, unit: str) -> str:
    if unit == "share":
        return f"{100 * value:+.1f}".replace("-", "−")  # percentage points
    text = write(abs(value), unit, with_unit=False)
    return ("+" if value > 0 else "−" if value < 0 else "±") + text
