"""The time of a study and the tokens that fit into given minutes, estimated from a few timed steps of every size.

The tokens are fixed before the first point, because all points must see the same number. If the machine becomes busier,
the study takes longer than estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.plan import MIN_STEPS, Point, Shape, StudyPlan, points_of
from glassbert.models.flops import TRAINING_FACTOR
from glassbert.training.budget import CHECKPOINTS, EVALUATIONS, times_in_a_run
from glassbert.training.building import TrainingComponents
from glassbert.training.data import TrainingData
from glassbert.training.planning.timing import time_step

OVERHEAD = 3.0  # seconds per run beside training and evaluation: opening, timing matmul, saving model and report
SAVE = 0.15  # seconds per checkpoint
RESERVE = 0.05  # of the minutes, for the fit and delays


@dataclass(frozen=True)
class Pace:
    """Seconds per training token, by size."""

    seconds: dict[float, float]
    batch_tokens: int
    length: int
    evaluation_rows: int
    final_rows: int

    def of(self, point: Point) -> float:
        """The expected seconds of a run, evaluations included."""
        evaluations = 2 + times_in_a_run("tokens", point.tokens, self.batch_tokens, EVALUATIONS)
        saves = 2 + times_in_a_run("tokens", point.tokens, self.batch_tokens, CHECKPOINTS)
        rows = evaluations * self.evaluation_rows + 2 * self.final_rows  # once in total, once by source
        tokens = point.tokens + rows * self.length / TRAINING_FACTOR
        return OVERHEAD + SAVE * saves + tokens * self.seconds[point.size]

    def total(self, points: Sequence[Point]) -> float:
        return sum(map(self.of, points))


def measure_pace(
    plan: StudyPlan, sizes: Sequence[float], data: TrainingData, on_message: Callable[[str], None] = lambda text: None
) -> Pace:
    """Time a few steps of every size. The weights are discarded."""
    settings = plan.settings_of(Point(plan.sizes[0], 1, 0))
    tokens = data.tokens_of(settings.length)
    seconds = {}
    for size in sizes:
        on_message(f"Measuring size {size:g}")
        components = TrainingComponents(plan.settings_of(Point(size, 1, 0)), data)
        seconds[size] = time_step(components, data, settings.length) / tokens
    held_out = data.held_out_rows()
    final_rows = min(settings.final_evaluation_rows, held_out)
    return Pace(seconds, tokens, settings.length, min(settings.evaluation_rows, held_out), final_rows)


def plan_tokens(
    plan: StudyPlan, sizes: Sequence[float], shapes: dict[float, Shape], pace: Pace, data: TrainingData
) -> int:
    """The largest number of tokens, in whole steps, with which all sizes fit into the minutes."""
    assert plan.minutes is not None
    allowed = 60 * plan.minutes * (1 - RESERVE)

    def needed(steps: int) -> float:
        tried = plan.replace(tokens=(steps * pace.batch_tokens,), minutes=None)
        return pace.total(points_of(tried, shapes, data, sizes))

    if needed(MIN_STEPS) > allowed:
        raise TrainingError(
            f"{plan.minutes:g} minutes are too short: {MIN_STEPS} steps of every size, with evaluation and saving, "
            f"take about {needed(MIN_STEPS) / (1 - RESERVE) / 60:.1f} minutes here. "
            f"Give more --minutes, or smaller --sizes"
        )
    enough, too_many = MIN_STEPS, 2 * MIN_STEPS
    while needed(too_many) <= allowed:
        enough, too_many = too_many, 2 * too_many
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if needed(middle) <= allowed else (enough, middle)
    return enough * pace.batch_tokens
