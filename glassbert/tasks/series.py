"""Time series: windows with a horizon to forecast, scaling, the seasonal naive baseline, and the period.

    values   v0 v1 v2 v3 v4 v5 ...        length 3, horizon 2:   (v0 v1 v2) → (v3 v4),  (v1 v2 v3) → (v4 v5), ...

The end of the series is held out, never a random part: values after a test window would leak into training. The scale
(mean and standard deviation) is that of the training part and is stored with the model.

`find_period` uses the autocorrelation after removing a linear trend:

    r(k) = Σ (v_t - v̄)·(v_(t+k) - v̄) / Σ (v_t - v̄)²

r falls from 1 at lag 0. The period is the highest point after r first falls below 0. Noise moves that point by a step
or two, so a period within 5 % of a calendar period (12 months, 365 days) becomes the calendar period.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.reading.cells import as_number, shown
from glassbert.tasks.reading import read_table

MIN_AUTOCORRELATION = 0.2  # of a period
# (length of a step in days, to within 10 %; its calendar periods in steps: day, week, year)
CALENDAR = (
    (1 / 24, (24, 168)),
    (1.0, (7, 365)),
    (7.0, (52,)),
    (30.4, (12,)),
    (91.3, (4,)),
)


@dataclass(frozen=True)
class Series:
    """Values in order of time. `periods` are the calendar periods of its step: 12 for months."""

    values: np.ndarray
    name: str
    source: str
    periods: tuple[int, ...] = ()

    @classmethod
    def of(cls, given: Any, *, value: str | None = None, time: str | None = None, **options: Any) -> Series:
        """From a table. By default the values are in the last column, and the time in the first of several."""
        table = read_table(given, named=[name for name in (value, time) if name], **options)
        names = list(table.columns)
        value = value or names[-1]
        time = time or (names[0] if len(names) > 1 else None)
        values = [as_number(cell) for cell in table.column(value)]
        for row, number in enumerate(values):
            if number is None:
                raise InputError(
                    f"{table.where(row)}: {shown(table.column(value)[row])} in the column {shown(value)} is no number; "
                    "fill the gap, for example with the value before it, or name another column with --value"
                )
        periods: tuple[int, ...] = ()
        if time is not None and (times := times_in_days(table.column(time))) is not None:
            back = np.flatnonzero(np.diff(times) <= 0)
            if back.size:
                raise InputError(
                    f"{table.where(int(back[0]) + 1)}: its time is not after the row before; sort rows by "
                    f"{shown(time)}, or name another column with --time"
                )
            periods = calendar_periods(times)
        return cls(np.array(values, np.float64), value, table.source, periods)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Scale:
    """Standardisation: z = (value - mean) / spread."""

    mean: float
    spread: float

    @classmethod
    def of(cls, values: np.ndarray) -> Scale:
        """Mean and standard deviation of the values; a constant series gets the spread 1."""
        return cls(float(np.mean(values)), float(np.std(values)) or 1.0)

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Values -> z."""
        return (np.asarray(values) - self.mean) / self.spread

    def undo(self, values: np.ndarray) -> np.ndarray:
        """z -> values."""
        return np.asarray(values) * self.spread + self.mean

    def as_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Scale:
        try:
            return cls(float(content["mean"]), float(content["spread"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"not a stored scale: {error}") from error


@dataclass(frozen=True)
class Forecasts:
    """Inputs [W, length] and targets [W, horizon]; the horizon of window w begins at index `cuts[w]` of the series."""

    inputs: np.ndarray
    targets: np.ndarray
    cuts: np.ndarray

    def __len__(self) -> int:
        return len(self.cuts)


def forecast_windows(values: np.ndarray, length: int, horizon: int, step: int = 1) -> Forecasts:
    """All windows of the series, `step` apart."""
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
    """Training windows, test windows, and the scale of the training part. The windows are not scaled.

    No target of a test window is used in training. The inputs of a test window may reach into the training part, as
    they do in real use.
    """
    values = np.asarray(values, np.float64)
    if not 0 < held_out < 1:
        raise InputError(f"held_out, the share of the series to test on, must be between 0 and 1; got {held_out}")
    cut = len(values) - max(horizon, round(len(values) * held_out))
    if cut < length + horizon:
        raise InputError(
            f"{len(values):,} values are too few: {cut:,} remain for training, which needs {length} + {horizon}; "
            "choose a shorter window or horizon"
        )
    train = forecast_windows(values[:cut], length, horizon, step)
    test = forecast_windows(values[cut - length :], length, horizon, step)
    return train, Forecasts(test.inputs, test.targets, test.cuts + cut - length), Scale.of(values[:cut])


def seasonal_naive(inputs: np.ndarray, horizon: int, period: int = 1) -> np.ndarray:
    """The last period repeated, [W, horizon]; period 1 repeats the last value. Inputs must hold a whole period."""
    if not 1 <= period <= inputs.shape[1]:
        raise InputError(f"a window of {inputs.shape[1]} values does not hold a period of {period}; make it longer")
    return inputs[:, inputs.shape[1] - period + np.arange(horizon) % period]


# ---- period ----------------------------------------------------------------------------------------------------------


def find_period(values: np.ndarray, suggested: Sequence[int] = ()) -> int | None:
    """The period in steps, or None if the series has none that fits in at least twice."""
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InputError(f"find_period needs one row of finite numbers, got the shape {list(values.shape)}")
    if len(values) < 6 or not np.ptp(values):
        return None
    r = autocorrelation(values)[: len(values) // 2 + 1]
    below = np.flatnonzero(r < 0)
    if not below.size:
        return None
    found = int(below[0] + r[below[0] :].argmax())
    if r[found] < max(MIN_AUTOCORRELATION, 2 / np.sqrt(len(values))):
        return None
    return next((period for period in suggested if abs(found - period) <= 0.05 * period), found)


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """r(0), r(1), ... by FFT, after removing a linear trend."""
    steps = np.arange(len(values)) - (len(values) - 1) / 2
    rest = values - values.mean()
    rest = rest - steps * (steps @ rest) / (steps @ steps)
    size = 1 << (2 * len(values) - 1).bit_length()  # zero padding, so that the correlation is not circular
    power = np.abs(np.fft.rfft(rest, size)) ** 2
    r = np.fft.irfft(power, size)[: len(values)]
    return r / r[0] if r[0] > 1e-20 * (values @ values) else np.zeros_like(r)


def times_in_days(cells: Sequence[Any]) -> np.ndarray | None:
    """Times in days, from dates, months ("1949-01") or numbers; None if a cell is none of these."""
    days = []
    for cell in cells:
        moment = _days(cell)
        if moment is None:
            return None
        days.append(moment)
    return np.array(days)


def calendar_periods(times: np.ndarray) -> tuple[int, ...]:
    """The calendar periods that fit the median step of times in days."""
    step = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return next((periods for days, periods in CALENDAR if abs(step - days) <= 0.1 * days), ())


def _days(cell: Any) -> float | None:
    if isinstance(cell, datetime.datetime | datetime.date):
        moment = cell
    else:
        text = str(cell).strip()
        try:
            moment = datetime.datetime.fromisoformat(f"{text}-01" if text.count("-") == 1 else text)
        except ValueError:
            return as_number(cell)
    hours = (moment.hour + moment.minute / 60) / 24 if isinstance(moment, datetime.datetime) else 0.0
    return moment.toordinal() + hours
