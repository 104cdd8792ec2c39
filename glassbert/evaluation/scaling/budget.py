"""How long a study will take, and how many tokens fit into given minutes, from a few steps of every size.

The minutes are planned once, before the first point: all points must see the same number of tokens, so nothing can be
cut later. On a machine that gets busier meanwhile the study takes longer than it said.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.plan import LEAST_STEPS, Point, Shape, StudyPlan, points_of
from glassbert.models.flops import TRAINING_FACTOR
from glassbert.training.building import Machinery
from glassbert.training.clock import times_in_a_run
from glassbert.training.data import TrainingData
from glassbert.training.trainer import CHECKPOINTS, EVALUATIONS

STEPS = 5  # that are timed, after one that is not
AROUND = 3.0  # seconds of a run that neither train nor evaluate: opening, the machine's matmul rate, model and report
SAVE = 0.15  # seconds of a checkpoint
RESERVE = 0.05  # of the minutes, for the law and whatever was slower than expected


@dataclass(frozen=True)
class Pace:
    """Seconds of a token in training, by size."""

    seconds: dict[float, float]
    batch_tokens: int
    length: int
    evaluation_rows: int
    final_rows: int

    def of(self, point: Point) -> float:
        """What a run is expected to take, its evaluations included."""
        evaluations = 2 + times_in_a_run("tokens", point.tokens, self.batch_tokens, EVALUATIONS)
        saves = 2 + times_in_a_run("tokens", point.tokens, self.batch_tokens, CHECKPOINTS)
        rows = evaluations * self.evaluation_rows + 2 * self.final_rows  # once together, once by source
        tokens = point.tokens + rows * self.length / TRAINING_FACTOR
        return AROUND + SAVE * saves + tokens * self.seconds[point.size]

    def total(self, points: Sequence[Point]) -> float:
        return sum(map(self.of, points))


def measure_pace(
    plan: StudyPlan, sizes: Sequence[float], data: TrainingData, told: Callable[[str], None] = lambda text: None
) -> Pace:
    """A few steps of every size, on the machine as it is now; their weights are thrown away."""
    settings = plan.settings_of(Point(plan.sizes[0], 1, 0))
    tokens = data.tokens_of(settings.length)
    seconds = {}
    for size in sizes:
        told(f"Measuring size {size:g}")
        machinery = Machinery(plan.settings_of(Point(size, 1, 0)), data)
        inputs = machinery.inputs(data.sources[settings.length].batch(0, 0))
        times = []
        for _ in range(1 + STEPS):
            began = time.perf_counter()
            float(machinery.step(**inputs).loss)
            times.append(time.perf_counter() - began)
        seconds[size] = statistics.median(times[1:]) / tokens
    held_out = data.held_out_rows()
    final_rows = min(settings.final_evaluation_rows, held_out)
    return Pace(seconds, tokens, settings.length, min(settings.evaluation_rows, held_out), final_rows)


def plan_tokens(
    plan: StudyPlan, sizes: Sequence[float], shapes: dict[float, Shape], pace: Pace, data: TrainingData
) -> int:
    """The most tokens, in whole steps, with which all these sizes end within the minutes."""
    assert plan.minutes is not None
    allowed = 60 * plan.minutes * (1 - RESERVE)

    def needed(steps: int) -> float:
        tried = plan.replace(tokens=(steps * pace.batch_tokens,), minutes=None)
        return pace.total(points_of(tried, shapes, data, sizes))

    if needed(LEAST_STEPS) > allowed:
        raise TrainingError(
            f"{plan.minutes:g} minutes are too short: {LEAST_STEPS} steps of every size, with evaluating and saving, "
            f"take about {needed(LEAST_STEPS) / (1 - RESERVE) / 60:.1f} minutes here. Give more, or smaller sizes"
        )
    enough, too_many = LEAST_STEPS, 2 * LEAST_STEPS
    while needed(too_many) <= allowed:
        enough, too_many = too_many, 2 * too_many
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if needed(middle) <= allowed else (enough, middle)
    return enough * pace.batch_tokens
