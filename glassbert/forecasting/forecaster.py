"""Using a model that forecasts: from the values up to now to those that come next.

forecaster = Forecaster.load("runs/passengers")
forecaster(Series.of("passengers-until-today.csv")).values
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.errors import CheckpointError, InputError
from glassbert.finetuning.card import TASK, TaskCard
from glassbert.forecasting.fit import predict
from glassbert.models.model import Model
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Series


@dataclass(frozen=True)
class Future:
    """The next values, and the range in which eight of ten should lie, going by how the model erred before."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Forecaster:
    """A trained model with what it needs to know about its errors."""

    def __init__(self, model: Model, card: TaskCard):
        self.model, self.card = model, card
        self.margin = np.array(card.details["margin"], np.float64)  # [horizon], on the model's scale

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Forecaster:
        """From a run of `glassbert forecast`, or the model in it; `options` are those of `glassbert.load`."""
        card = TaskCard.load(folder)
        if card.head != "forecast":
            raise CheckpointError(f"{folder} answers with a {card.head} head, not with forecasts")
        place = Path(folder)
        return cls(load(place if (place / TASK).exists() else place / "model", **options), card)

    @property
    def series(self) -> SeriesConfig:
        assert self.model.config.series is not None
        return self.model.config.series

    def __call__(self, series: Series | Any) -> Future:
        """The values after the last one. Only the last window is looked at."""
        values = np.asarray(series.values if isinstance(series, Series) else series, np.float64)
        if values.ndim != 1 or len(values) < self.series.window:
            raise InputError(
                f"this model looks back {self.series.window} values, and the series has {values.size}; "
                "give it more of the past"
            )
        future = predict(self.model, values[None, -self.series.window :])[0]
        middle = self.series.scaled(future)
        return Future(future, *(self.series.unscaled(middle + edge) for edge in (-self.margin, self.margin)))


def is_forecaster(folder: str | Path) -> bool:
    """Whether a folder holds a model that forecasts (and not, say, a text encoder)."""
    folder = Path(folder)
    if not any((place / TASK).exists() for place in (folder, folder / "model")):
        return False
    return TaskCard.load(folder).head == "forecast"
