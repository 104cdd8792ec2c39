"""Side by side: is the second model better than the first, and is that more than chance?

Where both answered about the same units, the difference has an interval of its own from resamples of these units, the
same for both: most of what makes one sample harder than another is hard for both, and cancels. A difference is called
better or worse only where its 95 % interval leaves out zero.
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
class Compared:
    """One measure of a subject beside that of the first subject."""

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
        """Better, worse, more, less, the same, or what chance may do; empty where nobody can tell."""
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


def compare(results: Sequence[tuple[str, Mapping[str, SuiteResult]]], options: Options) -> list[Compared]:
    """Every measure that the first subject has, of every other subject that has it too."""
    (baseline, first), *others = results
    found = []
    for suite, result in first.items():
        for row in result.rows:
            for subject, theirs in others:
                for other in theirs[suite].rows:
                    if (other.group, other.name) == (row.group, row.name):
                        found.append(Compared(suite, subject, baseline, row, other, *_difference(row, other, options)))
    return found


def _difference(first: Measure, second: Measure, options: Options) -> tuple[Difference | None, str]:
    if first.value is None or second.value is None:
        return None, first.reason or second.reason
    if first.sample is None or second.sample is None:
        same = first.higher_is_better is None or first.value == second.value
        return None, "" if same else "measured once each"
    try:
        return second.sample.minus(first.sample, options.resamples), ""
    except Undefined as why:
        return None, str(why)


def signed(value: float, unit: str) -> str:
    if unit == "share":
        return f"{100 * value:+.1f}".replace("-", "−")  # percentage points
    text = write(abs(value), unit, with_unit=False)
    return ("+" if value > 0 else "−" if value < 0 else "±") + text
