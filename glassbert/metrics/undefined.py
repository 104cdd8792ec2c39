"""A metric that cannot be computed says why.

There is no AUC where only one class occurs, and no correlation with a constant. A zero there, or a NaN, would be read
as a result. So a metric raises `Undefined` with the reason, and tables (`Scores`) print the reason instead.

Within a batch of bootstrap resamples nothing is raised: a resample without a value is NaN, and the bootstrap counts it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from glassbert.errors import GlassBertError

Value: TypeAlias = Any  # a float; for weights [R, N] an array [R]


class Undefined(GlassBertError):
    """The metric has no value for this input; the message is the reason."""


def ratio(numerator: Any, denominator: Any, reason: str) -> Value:
    """numerator / denominator, and no value where the denominator is 0."""
    numerator, denominator = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    possible = denominator != 0
    return where_possible(numerator / np.where(possible, denominator, 1.0), possible, reason)


def where_possible(values: Any, possible: Any, reason: str) -> Value:
    """The values, and none where it is not possible: Undefined for a single number, NaN inside a batch."""
    values, possible = np.broadcast_arrays(np.asarray(values, np.float64), possible)
    if values.ndim == 0:
        if not possible:
            raise Undefined(reason)
        return float(values)
    return np.where(possible, values, np.nan)


def zero_where_empty(numerator: Any, denominator: Any) -> np.ndarray:
    """numerator / denominator, with 0/0 = 0: for the parts of an average, never for a number that is shown alone."""
    denominator = np.asarray(denominator, np.float64)
    return np.where(denominator != 0, numerator / np.where(denominator != 0, denominator, 1.0), 0.0)
