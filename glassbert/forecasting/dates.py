"""Dates of a series: those that follow it, and dates as text.

Times are in days, as `datetime.toordinal`, with hours as fractions (`glassbert.tasks.series.times_in_days`).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import numpy as np

MONTHS = {1: 30.4, 3: 91.3, 12: 365.25}  # months -> days of a step
SECONDS = 86_400


def next_times(times: np.ndarray, count: int) -> np.ndarray:
    """The `count` times after the last one: by whole months if the series has them, else by the median step."""
    step = float(np.median(np.diff(times))) if len(times) > 1 else 1.0
    last = _moment(times[-1])
    days = {_moment(time).day for time in times[-24:]}
    months = next((months for months, length in MONTHS.items() if abs(step - length) <= 0.05 * length), None)
    if months is None or len(days) > 1:
        return times[-1] + step * np.arange(1, count + 1)
    found = []
    for number in range(1, count + 1):
        month = last.year * 12 + last.month - 1 + number * months
        found.append(last.replace(year=month // 12, month=month % 12 + 1))
    return np.array([_days(moment) for moment in found])


def date_texts(times: Sequence[float] | np.ndarray) -> list[str]:
    """ISO dates, as short as the times allow: 1949, 1949-01, 1949-01-31 or 1949-01-31 06:00."""
    moments = [_moment(time) for time in times]
    if any((moment.hour, moment.minute, moment.second) != (0, 0, 0) for moment in moments):
        return [moment.isoformat(" ", "minutes") for moment in moments]
    length = 10
    if len(moments) > 1 and all(moment.day == 1 for moment in moments):
        length = 4 if all(moment.month == 1 for moment in moments) else 7
    return [moment.isoformat()[:length] for moment in moments]


def as_datetime64(times: np.ndarray) -> np.ndarray:
    """For the axis of a figure."""
    return np.array([_moment(time) for time in times], "datetime64[s]")


def _moment(time: float) -> datetime.datetime:
    days = int(np.floor(time))
    seconds = round((float(time) - days) * SECONDS)
    return datetime.datetime.fromordinal(days) + datetime.timedelta(seconds=seconds)


def _days(moment: datetime.datetime) -> float:
    return moment.toordinal() + (moment.hour * 3600 + moment.minute * 60 + moment.second) / SECONDS
