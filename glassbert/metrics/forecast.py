"""Errors of forecasts.

    sMAPE = mean 200·|y - ŷ| / (|y| + |ŷ|)                                in percent, between 0 and 200; 0/0 = 0
    MASE  = mean |y - ŷ| / mean_t |history_t - history_(t - period)|

MASE compares with the seasonal naive forecast (the value one period before) on the training series: below 1 the model
is better than what that forecast did there. It has no units, so series can be compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_numbers, check_lengths, weighted_mean
from glassbert.metrics.undefined import Undefined, Value, ratio, zero_where_empty


def smape(truth: Any, predicted: Any, weights: Any = None) -> Value:
    truth, predicted = _forecasts(truth, predicted)
    errors = zero_where_empty(200.0 * np.abs(truth - predicted), np.abs(truth) + np.abs(predicted))
    return weighted_mean(errors.reshape(len(errors), -1).mean(1), weights)


def mase(truth: Any, predicted: Any, history: Any, period: int = 1, weights: Any = None) -> Value:
    """`truth` and `predicted` [N] or [N, horizon]; `history` is the training series."""
    truth, predicted = _forecasts(truth, predicted)
    errors = np.abs(truth - predicted).reshape(len(truth), -1).mean(1)
    scale = seasonal_naive_error(history, period)
    return ratio(
        weighted_mean(errors, weights), scale, f"MASE: the history repeats itself exactly every {period} steps"
    )


def seasonal_naive_error(history: Any, period: int = 1) -> float:
    """The mean absolute difference between values one period apart."""
    history = as_numbers(history, "history")
    if period < 1:
        raise InputError(f"the period must be at least 1, got {period}")
    if history.ndim != 1 or len(history) <= period:
        raise Undefined(f"a history of {history.size} values has no two values that are {period} steps apart")
    return float(np.abs(history[period:] - history[:-period]).mean())


def _forecasts(truth: Any, predicted: Any) -> tuple[np.ndarray, np.ndarray]:
    truth, predicted = as_numbers(truth, "truth"), as_numbers(predicted, "predicted")
    if truth.shape != predicted.shape or truth.ndim not in (1, 2):
        raise InputError(f"forecasts must fit the truth: {list(predicted.shape)} for {list(truth.shape)}")
    check_lengths(truth=truth, predicted=predicted)
    return truth, predicted
