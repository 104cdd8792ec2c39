"""`Forecaster`: a trained model that forecasts the next values of a series.

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
from glassbert.forecasting.dates import date_texts, next_times
from glassbert.forecasting.fit import predict
from glassbert.models.model import Model
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Series


@dataclass(frozen=True)
class Future:
    """The next values, and a band that should contain 80 % of them (`glassbert.forecasting.bands`).

    `times` are their dates as text, None if the series has no dates.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    times: list[str] | None = None


class Forecaster:
    """A trained model with the margin of its errors."""

    def __init__(self, model: Model, card: TaskCard):
        self.model, self.card = model, card
        self.margin = np.array(card.details["margin"], np.float64)  # [horizon], on the scale of the model

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Forecaster:
        """Load a run of `glassbert forecast` or its model folder; `options` are those of `glassbert.load`."""
        card = TaskCard.load(folder)
        if card.head != "forecast":
            raise CheckpointError(f"{folder} has a {card.head} head, not a forecast head")
        path = Path(folder)
        return cls(load(path if (path / TASK).exists() else path / "model", **options), card)

    @property
    def series(self) -> SeriesConfig:
        assert self.model.config.series is not None
        return self.model.config.series

    def __call__(self, series: Series | Any) -> Future:
        """The next values. Only the last window of the series is used."""
        values = np.asarray(series.values if isinstance(series, Series) else series, np.float64)
        if values.ndim != 1 or len(values) < self.series.window:
            raise InputError(
                f"this model needs {self.series.window} past values, and the series has {values.size}; "
                "give a longer series"
            )
        future = predict(self.model, values[None, -self.series.window :])[0]
        middle = self.series.scaled(future)
        times = series.times if isinstance(series, Series) else None
        low, high = (self.series.unscaled(middle + edge) for edge in (-self.margin, self.margin))
        return Future(future, low, high, None if times is None else date_texts(next_times(times, len(future))))


def is_forecaster(folder: str | Path) -> bool:
    """Whether a folder holds a forecasting model, in contrast to a text encoder."""
    folder = Path(folder)
    if not any((path / TASK).exists() for path in (folder, folder / "model")):
        return False
    return TaskCard.load(folder).head == "forecast"
