"""Finding the period of a series: by its autocorrelation, with the calendar's help.

    r(k) = Σ (v_t - v̄)·(v_(t+k) - v̄) / Σ (v_t - v̄)²       after a straight trend is taken out

r falls from 1 at lag 0. Where the series repeats itself it rises again; the period is the highest point after r first
fell below 0. Noise moves that point by a step or two, so a period within a twentieth of one the calendar suggests (12
months, 365 days) becomes that one.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.tasks.table import as_number

WEAKEST = 0.2  # an autocorrelation below this is no period
# The length of a step in days, to within a tenth, and the periods that people, weeks and years have in such steps.
CALENDAR = (
    (1 / 24, (24, 168)),
    (1.0, (7, 365)),
    (7.0, (52,)),
    (30.4, (12,)),
    (91.3, (4,)),
)


def find_period(values: np.ndarray, suggested: Sequence[int] = ()) -> int | None:
    """The length of the period, or None where the series has none that shows at least twice."""
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InputError("a period is found in a single row of finite numbers")
    if len(values) < 6 or not np.ptp(values):
        return None
    r = autocorrelation(values)[: len(values) // 2 + 1]
    below = np.flatnonzero(r < 0)
    if not below.size:
        return None
    found = int(below[0] + r[below[0] :].argmax())
    if r[found] < max(WEAKEST, 2 / np.sqrt(len(values))):
        return None
    return next((period for period in suggested if abs(found - period) <= 0.05 * period), found)


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """r(0), r(1), ... by the fast Fourier transform, without a straight trend."""
    steps = np.arange(len(values)) - (len(values) - 1) / 2
    rest = values - values.mean()
    rest = rest - steps * (steps @ rest) / (steps @ steps)
    size = 1 << (2 * len(values) - 1).bit_length()  # room enough that the end does not meet the beginning
    power = np.abs(np.fft.rfft(rest, size)) ** 2
    r = np.fft.irfft(power, size)[: len(values)]
    return r / r[0] if r[0] > 1e-20 * (values @ values) else np.zeros_like(r)


def time_numbers(cells: Sequence[Any]) -> np.ndarray | None:
    """Moments as days: dates, months ("1949-01"), or plain numbers; None where cells are none of these."""
    days = []
    for cell in cells:
        moment = _days(cell)
        if moment is None:
            return None
        days.append(moment)
    return np.array(days)


def calendar_periods(moments: np.ndarray) -> tuple[int, ...]:
    step = float(np.median(np.diff(moments))) if len(moments) > 1 else 0.0
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
