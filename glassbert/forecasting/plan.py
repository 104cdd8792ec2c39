"""The plan of a forecast: period, patch, window and logarithms, chosen from the training part of the series."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.forecasting.settings import FRAMES, TRIED_FRAMES, TRIED_SHORTCUTS, ForecastSettings
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Forecasts, Scale, Series, find_period, forecast_windows

MAX_DEFAULT_WINDOW = 128  # values, rounded up to whole patches
LONGEST_WHOLE_PERIOD = 192  # values: a week of hours fits into a window
LARGEST_PATCH = 24
MIN_LEVEL_CORRELATION = 0.7  # of level and spread, for using logarithms


class Recipe(NamedTuple):
    """The choices that validation makes: a name in `FRAMES` and one in `SHORTCUTS`."""

    frame: str
    shortcut: str

    def apply_to(self, config: SeriesConfig) -> SeriesConfig:
        return dataclasses.replace(config, shortcut=self.shortcut != "none", **FRAMES[self.frame])

    def __str__(self) -> str:
        return f"frame {self.frame}, shortcut {self.shortcut}"


@dataclass(frozen=True)
class SeriesPlan:
    """A series and its parts: training before `validated_from`, test from `tested_from`, validation between them."""

    series: Series
    horizon: int
    period: int
    config: SeriesConfig  # with frame "none"
    validated_from: int
    tested_from: int
    recipes: tuple[Recipe, ...]  # to try
    notes: tuple[str, ...]

    @property
    def values(self) -> np.ndarray:
        return self.series.values

    @property
    def known(self) -> np.ndarray:
        """The values before the test part: training and validation."""
        return self.values[: self.tested_from]

    def windows(self, start: int, stop: int) -> Forecasts:
        """All windows whose horizon lies between `start` and `stop`; their inputs may start earlier."""
        first = max(0, start - self.config.window)
        found = forecast_windows(self.values[first:stop], self.config.window, self.horizon)
        return Forecasts(found.inputs, found.targets, found.cuts + first)

    @property
    def train(self) -> Forecasts:
        return self.windows(0, self.validated_from)

    @property
    def validation(self) -> Forecasts:
        return self.windows(self.validated_from, self.tested_from)

    @property
    def before_test(self) -> Forecasts:
        return self.windows(0, self.tested_from)

    @property
    def test(self) -> Forecasts:
        return self.windows(self.tested_from, len(self.values))


def plan_for(series: Series, settings: ForecastSettings) -> SeriesPlan:
    """Split the series and choose what the settings leave open. Raises if the series is too short."""
    values, horizon = series.values, settings.horizon
    if not np.isfinite(values).all():
        raise InputError(f"value {int(np.argmax(~np.isfinite(values)))} of {series.name} is not finite; fill the gap")
    tested_from = len(values) - max(horizon, round(len(values) * settings.held_out))
    validated_from = tested_from - max(horizon, round(len(values) * settings.validation))
    training = values[: max(validated_from, 0)]
    notes = []
    period = settings.period or find_period(training, series.periods)
    notes.append(f"The period is {period} steps." if period else "No period was found.")
    period = period or 1
    patch = settings.patch or _default_patch(series, period)
    window = settings.window or _default_window(period, patch, settings.stride or patch, horizon, len(training))
    needed = window + horizon
    if len(training) < needed:
        raise InputError(
            f"{series.source} has {len(values):,} values, of which {len(training):,} are left for training; a window "
            f"of {window} and a horizon of {horizon} need {needed}: reduce --window, --horizon, --validation or "
            "--held-out"
        )
    if period > len(training):
        raise InputError(f"a period of {period} is longer than the {len(training):,} training values; reduce --period")
    logarithm = grows_with_level(training, period) if settings.logarithm is None else settings.logarithm
    if logarithm and settings.logarithm is None:
        notes.append("The variation grows with the level, so the model uses logarithms.")
    if logarithm and values.min() <= 0:
        raise InputError(f"logarithms need values above 0, and {series.name} has {values.min():g}; remove --logarithm")
    scale = Scale.of(np.log(training) if logarithm else training)
    config = SeriesConfig(window=window, patch=patch, stride=settings.stride, logarithm=logarithm, mean=scale.mean,
                          scale=scale.spread, **FRAMES["none"])  # fmt: skip
    notes.append(f"A window of {window} values has {config.tokens} patches of {patch}.")
    frames = (settings.frame,) if settings.frame else TRIED_FRAMES
    shortcuts = (settings.shortcut,) if settings.shortcut else TRIED_SHORTCUTS
    recipes = tuple(Recipe(frame, shortcut) for frame in frames for shortcut in shortcuts)
    return SeriesPlan(series, horizon, period, config, validated_from, tested_from, recipes, tuple(notes))


def grows_with_level(values: np.ndarray, period: int) -> bool:
    """Whether the spread within periods grows with their level: true for airline passengers, false for temperatures."""
    length = max(period, 8)
    count = len(values) // length
    if count < 4 or values.min() <= 0:
        return False
    periods = values[-count * length :].reshape(count, length)
    level, spread = periods.mean(1), periods.std(1)
    if not np.ptp(level) or not np.ptp(spread):
        return False
    return bool(np.corrcoef(level, spread)[0, 1] > MIN_LEVEL_CORRELATION)


def _default_patch(series: Series, period: int) -> int:
    """A calendar period (a week of days, a year of months, a day of hours), else the period found, else 8."""
    return next((p for p in (*sorted(series.periods), period) if 1 < p <= LARGEST_PATCH), 8)


def _default_window(period: int, patch: int, stride: int, horizon: int, available: int) -> int:
    """Two short periods or one longer one, in whole patches, and at most half of the series."""
    longer = period if period <= LONGEST_WHOLE_PERIOD else MAX_DEFAULT_WINDOW
    wanted = 2 * period if 2 * period <= MAX_DEFAULT_WINDOW else longer
    wanted = min(max(wanted, horizon, 2 * patch), max(patch, available // 2 - horizon))
    return patch + max(0, -(-(wanted - patch) // stride)) * stride
