"""Time series: windows with a horizon to forecast, scaling, the seasonal naive baseline, and the period.

    values   v0 v1 v2 v3 v4 v5 ...        length 3, horizon 2:   (v0 v1 v2) → (v3 v4),  (v1 v2 v3) → (v4 v5), ...

The end of the series is held out, never a random part: values after a test window would leak into training. The scale
(mean and standard deviation) is that of the training part and is stored with the model.

`find_period` uses the autocorrelation after removing a linear trend:

    r(k) = Σ (v_t - v̄)·(v_(t+k) - v̄) / Σ (v_t - v̄)²

r falls from 1 at lag 0. The period is the highest point after r first falls below 0. Noise moves that point by a step
or two, so a period within 5 % of a calendar period (12 months, 365 days) becomes the calendar period.

A slow change, such as the weather in hourly data, hides a daily period from this: r falls slowly and has its highest
point anywhere. So a calendar period p is also looked for after subtracting the moving mean over p values, which
removes what is slower than p and leaves what repeats every p values. If p counts, a fraction of it that repeats as
well (12 hours of 24) is the period.
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
ALMOST = 0.9  # of the autocorrelation of a long period: a shorter one that has this share is the period
SLOW = 10  # without calendar periods, what is slower than a tenth of the series is removed in a second try
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
    """Values in order of time. `periods` are the calendar periods of its step: 12 for months.

    `times` are the dates of the values in days (see `times_in_days`), None if the time is not a date.
    """

    values: np.ndarray
    name: str
    source: str
    periods: tuple[int, ...] = ()
    times: np.ndarray | None = None

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
        times = times_in_days(table.column(time)) if time is not None else None
        order = times if times is not None or time is None else _numbers(table.column(time))
        if order is not None:
            back = np.flatnonzero(np.diff(order) <= 0)
            if back.size:
                raise InputError(
                    f"{table.where(int(back[0]) + 1)}: its time is not after the row before; sort rows by "
                    f"{shown(time)}, or name another column with --time"
                )
        if times is not None:
            periods = calendar_periods(times)
        return cls(np.array(values, np.float64), value, table.source, periods, times)

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
    found = _highest(values)
    if near := next((period for period in suggested if found and abs(found - period) <= 0.05 * period), None):
        return near
    if not suggested and not found:
        found = _highest(values - _moving_mean(values, len(values) // SLOW))
    strengths = {p: _strength(values, p) for p in suggested or (found,) if p and 2 * p <= len(values)}
    enough = {p: strength for p, strength in strengths.items() if strength >= _least(values)}
    if not enough:
        return found
    period = min(p for p, strength in enough.items() if strength >= ALMOST * max(enough.values()))
    fractions = [period // k for k in range(period // 2, 1, -1) if period % k == 0]
    return next((p for p in fractions if _strength(values, p, period) >= ALMOST * enough[period]), period)


def _highest(values: np.ndarray) -> int | None:
    """The lag of the highest autocorrelation after the first below 0; None if it is too low."""
    r = autocorrelation(values)[: len(values) // 2 + 1]
    below = np.flatnonzero(r < 0)
    if not below.size:
        return None
    found = int(below[0] + r[below[0] :].argmax())
    return found if r[found] >= _least(values) else None


def _least(values: np.ndarray) -> float:
    """The least autocorrelation of a period: of noise, 2 / √N is exceeded at one lag of twenty."""
    return max(MIN_AUTOCORRELATION, 2 / np.sqrt(len(values)))


def _strength(values: np.ndarray, period: int, slower: int | None = None) -> float:
    """r(period) without what is slower than `slower` (default: the period); 0 if r is higher at a lag beside it."""
    length = slower or period
    rest = (values - _moving_mean(values, length))[length // 2 : len(values) - length // 2]
    if len(rest) < 2 * period:
        return 0.0
    r = autocorrelation(rest)
    near = max(1, round(0.05 * period))
    beside = r[max(1, period - near) : period + near + 1]
    peak = float(beside.max())
    is_peak = peak >= max(r[max(1, period - near) - 1], r[min(period + near + 1, len(r) - 1)])
    return peak * len(rest) / (len(rest) - period) if is_peak else 0.0


def _moving_mean(values: np.ndarray, length: int) -> np.ndarray:
    """The mean over `length` values around each value; an even length counts the two ends half."""
    half = max(1, length // 2)
    weights = np.ones(2 * half + 1)
    if length % 2 == 0:
        weights[[0, -1]] = 0.5
    padded = np.pad(values, half, mode="edge")
    return np.convolve(padded, weights / weights.sum(), mode="valid")


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
    """Dates ("1949-01-31", "1949-01", "1949-01-31 06:00") in days, as `datetime.toordinal`; None if a cell is none."""
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


def _numbers(cells: Sequence[Any]) -> np.ndarray | None:
    found = [as_number(cell) for cell in cells]
    return None if None in found else np.array(found, np.float64)


def _days(cell: Any) -> float | None:
    if isinstance(cell, datetime.datetime | datetime.date):
        moment = cell
    else:
        text = str(cell).strip()
        if as_number(text) is not None:
            return None
        try:
            moment = datetime.datetime.fromisoformat(f"{text}-01" if text.count("-") == 1 else text)
        except ValueError:
            return None
    if not isinstance(moment, datetime.datetime):
        return float(moment.toordinal())
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC)
    return moment.toordinal() + (moment.hour + moment.minute / 60 + moment.second / 3600) / 24
