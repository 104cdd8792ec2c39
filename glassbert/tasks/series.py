"""Time series: windows of the past, a horizon to forecast, and the baselines that a model must beat.

    values   v0 v1 v2 v3 v4 v5 ...        length 3, horizon 2:   (v0 v1 v2) → (v3 v4),  (v1 v2 v3) → (v4 v5), ...

The end of the series is held out, never a random part of it: a model that has seen tomorrow forecasts today with ease.
The scale (mean and spread) is that of the training part and is kept with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.tasks.periods import calendar_periods, time_numbers
from glassbert.tasks.reading import read_table
from glassbert.tasks.table import as_number


@dataclass(frozen=True)
class Series:
    """Values in the order of time; `periods` are those the calendar suggests for its steps: 12 for months."""

    values: np.ndarray
    name: str
    source: str
    periods: tuple[int, ...] = ()

    @classmethod
    def of(cls, given: Any, *, value: str | None = None, time: str | None = None, **options: Any) -> Series:
        """From a table; without names the last column holds the values and the first of several the time."""
        table = read_table(given, **options)
        names = list(table.columns)
        value = value or names[-1]
        time = time or (names[0] if len(names) > 1 else None)
        values = [as_number(cell) for cell in table.column(value)]
        for row, number in enumerate(values):
            if number is None:
                raise InputError(
                    f"{table.where(row)}: {table.column(value)[row]!r} in the column {value!r} is no number; "
                    "a series has a value at every step: fill the gap, with the value before it for instance"
                )
        periods: tuple[int, ...] = ()
        if time is not None and (moments := time_numbers(table.column(time))) is not None:
            back = np.flatnonzero(np.diff(moments) <= 0)
            if back.size:
                raise InputError(
                    f"{table.where(int(back[0]) + 1)}: time goes back or stands still; sort rows by {time!r}"
                )
            periods = calendar_periods(moments)
        return cls(np.array(values, np.float64), value, table.source, periods)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Scale:
    """z = (value - mean) / spread, and back."""

    mean: float
    spread: float

    @classmethod
    def of(cls, values: np.ndarray) -> Scale:
        """A constant series has no spread; 1 takes its place."""
        return cls(float(np.mean(values)), float(np.std(values)) or 1.0)

    def apply(self, values: np.ndarray) -> np.ndarray:
        return (np.asarray(values) - self.mean) / self.spread

    def undo(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values) * self.spread + self.mean

    def as_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Scale:
        try:
            return cls(float(content["mean"]), float(content["spread"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"this is no stored scale: {error}") from error


@dataclass(frozen=True)
class Forecasts:
    """What is known, [W, length], and what is asked, [W, horizon]; `cuts[w]` is where the horizon begins."""

    inputs: np.ndarray
    targets: np.ndarray
    cuts: np.ndarray

    def __len__(self) -> int:
        return len(self.cuts)


def forecast_windows(values: np.ndarray, length: int, horizon: int, step: int = 1) -> Forecasts:
    """All windows, `step` apart."""
    values = np.asarray(values, np.float64)
    if min(length, horizon, step) < 1:
        raise InputError(f"length, horizon and step must be at least 1, got {length}, {horizon} and {step}")
    if len(values) < length + horizon:
        raise InputError(f"{len(values):,} values are too few for a window of {length} and a horizon of {horizon}")
    views = np.lib.stride_tricks.sliding_window_view(values, length + horizon)[::step]
    cuts = np.arange(len(views)) * step + length
    return Forecasts(views[:, :length].copy(), views[:, length:].copy(), cuts)


def split_by_time(
    values: np.ndarray, length: int, horizon: int, held_out: float = 0.2, step: int = 1
) -> tuple[Forecasts, Forecasts, Scale]:
    """Windows to train on, windows to test on, and the scale of the training part; nothing is scaled yet.

    No value that is asked in the test part is seen in training. The past of a test window may reach into the
    training part, as it does in real use.
    """
    values = np.asarray(values, np.float64)
    if not 0 < held_out < 1:
        raise InputError(f"held_out is the share of the series that is tested, between 0 and 1; got {held_out}")
    cut = len(values) - max(horizon, round(len(values) * held_out))
    if cut < length + horizon:
        raise InputError(
            f"{len(values):,} values are too few: {cut:,} stay for training, which needs {length} + {horizon}; "
            "choose a shorter window or horizon"
        )
    train = forecast_windows(values[:cut], length, horizon, step)
    test = forecast_windows(values[cut - length :], length, horizon, step)
    return train, Forecasts(test.inputs, test.targets, test.cuts + cut - length), Scale.of(values[:cut])


def seasonal_naive(inputs: np.ndarray, horizon: int, period: int = 1) -> np.ndarray:
    """The last period over again, [W, horizon]; period 1 repeats the last value. Inputs must hold a whole period."""
    if not 1 <= period <= inputs.shape[1]:
        raise InputError(f"a window of {inputs.shape[1]} values does not hold a period of {period}; make it longer")
    return inputs[:, inputs.shape[1] - period + np.arange(horizon) % period]
