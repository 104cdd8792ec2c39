"""What the end of a run will cost, from what the same things cost during it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from glassbert.training.data import HELD_OUT_BATCH, TrainingData
from glassbert.training.settings import TrainingSettings

FINAL_SHARE = 0.03  # of a budget in minutes, for the last evaluation
OVERTIME = 0.005  # of a budget in minutes, for a last evaluation that begins late


class Costs:
    """Seconds of an evaluated row, of a save and of a report, as they were measured last."""

    def __init__(self, data: TrainingData) -> None:
        self.held_out = data.held_out_rows()  # there may be fewer than a run asks for
        self.by_source = [data.held_out_rows(name) for name in data.validation_by_source]
        self.seconds = {"row": 0.0, "save": 0.0, "report": 0.0, "step": 0.0}

    @contextmanager
    def measuring(self, name: str, units: int = 1) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = (time.monotonic() - began) / units

    def of_the_end(self, settings: TrainingSettings) -> float:
        """An evaluation to choose the weights, a larger one, a checkpoint, the model's folder, the report."""
        rows = self.rows_on_the_way(settings) + self.final_rows(settings)
        rows += sum(min(rows_of_one, self.source_rows(settings)) for rows_of_one in self.by_source)
        cost = self.seconds
        return rows * cost["row"] + 1.5 * cost["save"] + cost["report"] + 0.5 * cost["step"]

    def rows_on_the_way(self, settings: TrainingSettings) -> int:
        """Rows of an evaluation during the run."""
        return min(settings.evaluation_rows, self.held_out)

    def final_rows(self, settings: TrainingSettings) -> int:
        """Rows of the last evaluation: fewer than asked for where they would take more than a share of the minutes."""
        asked = min(settings.final_evaluation_rows, self.held_out)
        if settings.minutes is None or not self.seconds["row"]:
            return asked
        affordable = int(FINAL_SHARE * 60 * settings.minutes / self.seconds["row"])
        return min(asked, max(self.rows_on_the_way(settings), affordable))

    def last_moment(self, settings: TrainingSettings) -> float:
        """When the last evaluation must be over, in seconds on the clock: model and report come after it."""
        if settings.minutes is None:
            return math.inf
        return (1 + OVERTIME) * 60 * settings.minutes - 0.5 * self.seconds["save"] - self.seconds["report"]

    def source_rows(self, settings: TrainingSettings) -> int:
        """Rows of the last evaluation for every source, in whole batches: together about as many as for all."""
        batches = self.final_rows(settings) // (HELD_OUT_BATCH * max(1, len(self.by_source)))
        return HELD_OUT_BATCH * max(1, batches)
