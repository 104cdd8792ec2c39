"""What the series itself says about how to forecast it: its period, patch and window, and whether logarithms fit.

Only the training part is looked at.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.finetuning.forecasting.settings import FRAMES, TRIED_FRAMES, TRIED_SHORTCUTS, ForecastSettings
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Forecasts, Scale, Series, find_period, forecast_windows

LONGEST = 128  # values in a window where nobody says, and about as many more as a patch has
LARGEST_PATCH = 24
GROWS_WITH_LEVEL = 0.7  # from which correlation of level and spread on logarithms are learned


class Recipe(NamedTuple):
    """What validation decides: a name of `FRAMES` and one of `SHORTCUTS`."""

    frame: str
    shortcut: str

    def on(self, config: SeriesConfig) -> SeriesConfig:
        return dataclasses.replace(config, shortcut=self.shortcut != "none", **FRAMES[self.frame])

    def __str__(self) -> str:
        return f"frame {self.frame}, shortcut {self.shortcut}"


@dataclass(frozen=True)
class SeriesPlan:
    """A series with its parts: values before `validated_from` are learned, those from `tested_from` on judge."""

    series: Series
    horizon: int
    period: int
    config: SeriesConfig  # without a frame
    validated_from: int
    tested_from: int
    recipes: tuple[Recipe, ...]  # to try
    notes: tuple[str, ...]

    @property
    def values(self) -> np.ndarray:
        return self.series.values

    @property
    def known(self) -> np.ndarray:
        """All that may be learned from before the test: training and validation."""
        return self.values[: self.tested_from]

    def windows(self, start: int, stop: int) -> Forecasts:
        """All windows whose horizon lies between `start` and `stop`; their past may reach further back."""
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
    values, horizon = series.values, settings.horizon
    if not np.isfinite(values).all():
        raise InputError(f"value {int(np.argmax(~np.isfinite(values)))} of {series.name} is not finite; fill the gap")
    tested_from = len(values) - max(horizon, round(len(values) * settings.test))
    validated_from = tested_from - max(horizon, round(len(values) * settings.validation))
    learned = values[: max(validated_from, 0)]
    notes = []
    period = settings.period or find_period(learned, series.periods)
    notes.append(f"It repeats itself every {period} steps." if period else "No period was found in it.")
    period = period or 1
    patch = settings.patch or _patch(series, period)
    window = settings.window or _window(period, patch, settings.stride or patch, horizon, len(learned))
    needed = window + horizon
    if len(learned) < needed:
        raise InputError(
            f"{series.source} has {len(values):,} values, of which {len(learned):,} are left to learn from; a window "
            f"of {window} and a horizon of {horizon} need {needed}: choose a shorter window or horizon, or smaller "
            "shares for validation and test"
        )
    if period > len(learned):
        raise InputError(f"a period of {period} is longer than the {len(learned):,} values there are to learn from")
    logarithm = grows_with_level(learned, period) if settings.logarithm is None else settings.logarithm
    if logarithm and settings.logarithm is None:
        notes.append("Its ups and downs grow with its level, so logarithms are learned.")
    if logarithm and values.min() <= 0:
        raise InputError(
            f"logarithms need values above 0, and {series.name} has {values.min():g}; leave --logarithm out"
        )
    scale = Scale.of(np.log(learned) if logarithm else learned)
    config = SeriesConfig(window=window, patch=patch, stride=settings.stride, logarithm=logarithm, mean=scale.mean,
                          scale=scale.spread, **FRAMES["none"])  # fmt: skip
    notes.append(f"A window of {window} values is {config.tokens} patches of {patch}.")
    frames = (settings.frame,) if settings.frame else TRIED_FRAMES
    shortcuts = (settings.shortcut,) if settings.shortcut else TRIED_SHORTCUTS
    recipes = tuple(Recipe(frame, shortcut) for frame in frames for shortcut in shortcuts)
    return SeriesPlan(series, horizon, period, config, validated_from, tested_from, recipes, tuple(notes))


def grows_with_level(values: np.ndarray, period: int) -> bool:
    """Whether periods of a higher level also move more: airline passengers do, temperatures do not."""
    length = max(period, 8)
    count = len(values) // length
    if count < 4 or values.min() <= 0:
        return False
    pieces = values[-count * length :].reshape(count, length)
    level, spread = pieces.mean(1), pieces.std(1)
    if not np.ptp(level) or not np.ptp(spread):
        return False
    return bool(np.corrcoef(level, spread)[0, 1] > GROWS_WITH_LEVEL)


def _patch(series: Series, period: int) -> int:
    """A week of days, a year of months, a day of hours; else the period itself, or a few values."""
    return next((p for p in (*sorted(series.periods), period) if 1 < p <= LARGEST_PATCH), 8)


def _window(period: int, patch: int, stride: int, horizon: int, available: int) -> int:
    """Two periods where they are short, one where they are not, in whole patches; never more than half the series."""
    wanted = 2 * period if 2 * period <= LONGEST else min(period, LONGEST)
    wanted = min(max(wanted, horizon, 2 * patch), max(patch, available // 2 - horizon))
    return patch + max(0, -(-(wanted - patch) // stride)) * stride
