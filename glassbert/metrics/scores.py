"""A table of scores. A metric without a value is shown with the reason.

scores = Scores()
scores.add("auc", roc_auc, truth, probabilities)
scores.add("accuracy", accuracy, truth, predicted, resamples=1000)
print(scores)

auc       –       AUC needs both classes, and all examples are positive
accuracy  0.9167  [0.8333, 1.0000]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from glassbert.metrics.inputs import Undefined
from glassbert.metrics.intervals import Interval, bootstrap


@dataclass(frozen=True)
class Score:
    """A value with its interval, if one was computed; or None and the reason."""

    value: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def note(self) -> str:
        """The reason or the interval, as text."""
        return self.reason or ("" if self.low is None else f"[{self.low:.4f}, {self.high:.4f}]")

    def __str__(self) -> str:
        return f"not defined: {self.reason}" if self.value is None else f"{self.value:.4f} {self.note}".rstrip()

    def as_json(self) -> dict[str, Any]:
        if self.value is None:
            return {"value": None, "reason": self.reason}
        interval = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"value": self.value, **interval} | ({"reason": self.reason} if self.reason else {})


def measure(
    metric: Callable[..., Any], *columns: Any, resamples: int = 0, seed: int = 0, level: float = 0.95, **options: Any
) -> Score:
    """The metric as a Score, with a bootstrap interval if `resamples` > 0.

    If only the interval is undefined, the score keeps its value and gives the reason.
    """
    try:
        value = float(metric(*columns, **options))
    except Undefined as undefined:
        return Score(None, str(undefined))
    if not resamples:
        return Score(value)
    try:
        found: Interval = bootstrap(metric, *columns, resamples=resamples, seed=seed, level=level, **options)
    except Undefined as undefined:
        return Score(value, str(undefined))
    return Score(value, "", found.low, found.high)


class Scores(Mapping[str, Score]):
    """Scores by name, in the order they were added. `loss`, where it is known, decides between equal scores."""

    def __init__(self, scores: Mapping[str, Score] | None = None, loss: float | None = None) -> None:
        self._scores: dict[str, Score] = dict(scores or {})
        self.loss = loss

    def add(self, name: str, metric: Callable[..., Any], *columns: Any, **options: Any) -> Score:
        """Compute a metric by `measure` and store it under `name`."""
        self._scores[name] = measure(metric, *columns, **options)
        return self._scores[name]

    def __getitem__(self, name: str) -> Score:
        return self._scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def rows(self) -> list[tuple[str, float | None, str]]:
        """(name, value, interval or reason) of each score, for `Page.table`."""
        return [(name, score.value, score.note) for name, score in self._scores.items()]

    def as_json(self) -> dict[str, Any]:
        return {name: score.as_json() for name, score in self._scores.items()}

    def __str__(self) -> str:
        width = max(map(len, self._scores), default=0)
        shown = [(name, "–" if value is None else f"{value:.4f}", note) for name, value, note in self.rows()]
        return "\n".join(f"{name:<{width}}  {value:<6}  {note}".rstrip() for name, value, note in shown)
