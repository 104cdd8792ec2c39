"""The result of a study: the points, the law fitted to them, and the prediction for the next size.

If the predicted size is trained, it is compared with the prediction; it is never used for the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from glassbert.evaluation.scaling.law import LEVEL, Law, fit_law
from glassbert.evaluation.scaling.plan import COUNTS, Point, Shape, StudyPlan
from glassbert.metrics import Undefined
from glassbert.training.planning.expectation import Range

MAX_EXTRAPOLATION = 8.0  # times the largest trained size; a warning beyond it


@dataclass(frozen=True)
class TrainedRun:
    """A finished run of the study."""

    point: Point
    run: str  # its folder, relative to that of the study
    loss: float
    accuracy: float
    seconds: float
    learning_rate: float


@dataclass(frozen=True)
class Cell:
    """The runs of one size and token count."""

    shape: Shape
    tokens: int
    runs: tuple[TrainedRun, ...]

    @property
    def losses(self) -> list[float]:
        return [run.loss for run in self.runs]

    @property
    def loss(self) -> float:
        return float(np.mean(self.losses))


@dataclass
class Outcome:
    """The result of a study.

    `standard_error` is that of the held-out loss: another sample of text would move all points together by about this.
    """

    plan: StudyPlan
    shapes: dict[float, Shape]
    trained: Sequence[TrainedRun]
    text_tokens: int  # of the training split
    standard_error: float | None = None
    level: float = LEVEL

    @cached_property
    def cells(self) -> list[Cell]:
        return self._cells(run for run in self.trained if run.point.size != self.plan.next_size)

    @cached_property
    def checks(self) -> list[Cell]:
        """The runs of the predicted size, if it was trained."""
        return self._cells(run for run in self.trained if run.point.size == self.plan.next_size)

    def _cells(self, runs: Iterable[TrainedRun]) -> list[Cell]:
        groups: dict[tuple[float, int], list[TrainedRun]] = {}
        for run in runs:
            groups.setdefault((run.point.size, run.point.tokens), []).append(run)
        return [Cell(self.shapes[size], tokens, tuple(found)) for (size, tokens), found in sorted(groups.items())]

    @cached_property
    def laws(self) -> dict[str, Law | Undefined]:
        """The law for each way of counting parameters, or the reason why there is none."""
        return {count: self._law(count) for count in COUNTS}

    def _law(self, count: str) -> Law | Undefined:
        sizes = [cell.shape.count(count) for cell in self.cells]
        try:
            return fit_law(sizes, [c.tokens for c in self.cells], [c.losses for c in self.cells], level=self.level)
        except Undefined as reason:
            return reason

    @property
    def law(self) -> Law | None:
        found = self.laws[self.plan.count]
        return found if isinstance(found, Law) else None

    @property
    def reason(self) -> str:
        """Why there is no law; empty if there is one."""
        found = self.laws[self.plan.count]
        return str(found) if isinstance(found, Undefined) else ""

    def point_of(self, shape: Shape, tokens: int) -> np.ndarray:
        return np.array([[shape.count(self.plan.count), tokens]], np.float64)

    @property
    def target(self) -> Shape:
        return self.shapes[self.plan.next_size]

    def target_tokens(self) -> int:
        """The tokens of the prediction: the most that the next size would see in this study."""
        if self.checks:
            return max(cell.tokens for cell in self.checks)
        tokens = max(cell.tokens for cell in self.cells if cell.shape.size == self.plan.sizes[-1])
        if self.plan.match == "compute":
            return round(tokens * self.shapes[self.plan.sizes[-1]].flops / self.target.flops)
        return tokens

    def prediction(self, count: str = "", tokens: int | None = None) -> Range | None:
        """The predicted loss of the next size, by the study's `count` or by another."""
        count = count or self.plan.count
        law = self.laws[count]
        if not isinstance(law, Law):
            return None
        return law.predict(self.target.count(count), tokens or self.target_tokens())

    @property
    def verdict(self) -> str:
        """Whether the trained size is in its interval: "inside" or "outside"; empty if it was not trained."""
        if not self.checks or self.law is None:
            return ""
        inside = [cell.loss in (self.prediction(tokens=cell.tokens) or ()) for cell in self.checks]
        return "inside" if all(inside) else "outside"

    def caveats(self) -> list[str]:
        """Limitations of the result, as sentences."""
        found = []
        law, sizes = self.law, len(self.plan.sizes)
        if sizes == 3:
            found.append("Three sizes always fit a curve with three parameters, so they do not test the law.")
        if law is not None:
            for index, (name, letter) in enumerate(zip(law.names, ("α", "β"), strict=False)):
                if not law.knows_power(index):
                    power = law.range_of(law.powers[:, index])
                    found.append(
                        f"The power {letter} of the {name} is not known from these points ({power.low:.2f} to "
                        f"{power.high:.2f} all fit): the curve is reliable near the points only."
                    )
            if (
                ratio := self.target.count(self.plan.count) / max(c.shape.count(self.plan.count) for c in self.cells)
            ) > MAX_EXTRAPOLATION:
                found.append(f"Size {self.target.size:g} is {ratio:.0f} times the largest point: a long extrapolation.")
            largest = max(self.cells, key=lambda cell: (cell.shape.size, cell.tokens))
            if self.target.size > largest.shape.size and largest.loss in (self.prediction() or ()):
                found.append(
                    f"The interval contains the loss {largest.loss:.3f} of size {largest.shape.size:g}: these points "
                    f"do not show that size {self.target.size:g} is better. More tokens or seeds would narrow it."
                )
        if max(cell.tokens for cell in self.cells) > self.text_tokens:
            found.append("Some points saw the text more than once, which lowers the gain from more tokens.")
        if len({run.learning_rate for run in self.trained}) > 1:
            found.append("The learning rate depends on the size; a jump of the rate may show as a jump of the loss.")
        if self.plan.repeats + self.plan.seeds < 2:
            found.append("Every point has one seed, so the noise is assumed, not measured; --repeats 2 measures it.")
        return found

    def as_json(self) -> dict[str, Any]:
        law = self.law
        return {
            "plan": self.plan.to_dict(),
            "points": [self._point(cell) for cell in self.cells],
            "law": None if law is None else _law_as_json(law),
            "reason": self.reason,
            "prediction": self._prediction_as_json(),
            "check": {"verdict": self.verdict, "points": [self._point(cell) for cell in self.checks]},
            "held_out_standard_error": self.standard_error,
            "caveats": self.caveats(),
        }

    def _point(self, cell: Cell) -> dict[str, Any]:
        shape = asdict(cell.shape)
        at_best = None if self.law is None else float(self.law.at(self.point_of(cell.shape, cell.tokens))[0])
        return {**shape, "tokens": cell.tokens, "loss": cell.loss, "perplexity": math.exp(cell.loss), "law": at_best,
                "runs": [{**asdict(run), "point": asdict(run.point)} for run in cell.runs]}  # fmt: skip

    def _prediction_as_json(self) -> dict[str, Any] | None:
        if self.law is None:
            return None
        ranges = {count: found for count in COUNTS if (found := self.prediction(count)) is not None}
        chosen = ranges[self.plan.count]
        return {
            "size": self.target.size, "parameters": self.target.count(self.plan.count), "tokens": self.target_tokens(),
            "level": self.level, **chosen._asdict(), "by_count": {count: r._asdict() for count, r in ranges.items()},
        }  # fmt: skip


def _law_as_json(law: Law) -> dict[str, Any]:
    floor, powers, scales = law.best
    terms = {
        name: {
            "reference": float(law.reference[i]),
            "scale": float(scales[i]),
            "power": float(powers[i]),
            "power_known": law.knows_power(i),
            "power_range": law.range_of(law.powers[:, i])._asdict(),
        }
        for i, name in enumerate(law.names)
    }
    return {
        "form": "E + A (N/N0)^-alpha" + (" + B (D/D0)^-beta" if len(law.names) > 1 else ""),
        "floor": floor,
        "floor_range": law.range_of(law.floor)._asdict(),
        "terms": terms,
        "expected_distance": law.expected,
        "largest_residual": float(abs(law.residuals).max()),
        "level": law.level,
    }
