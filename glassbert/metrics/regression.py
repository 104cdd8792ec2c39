"""Errors of predicted numbers.

RMSE = sqrt(mean (y - ŷ)²)      MAE = mean |y - ŷ|      R² = 1 - Σ (y - ŷ)² / Σ (y - mean y)²
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_numbers, as_weights, check_lengths, weighted_mean
from glassbert.metrics.undefined import Value, where_possible, zero_where_empty


def rmse(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """In the units of the target; large errors weigh more."""
    root = np.sqrt(weighted_mean(_errors(truth, predicted) ** 2, weights))
    return float(root) if np.ndim(root) == 0 else root


def mae(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """In the units of the target; every error weighs what it is."""
    return weighted_mean(np.abs(_errors(truth, predicted)), weights)


def r2(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """1 is perfect, 0 as good as predicting the mean, below 0 worse than that."""
    errors, y = _errors(truth, predicted), as_numbers(truth, "truth")
    weights = as_weights(weights, len(y))
    spread = weighted_spread(y, y, weights)
    possible = spread > no_spread(y, weights)
    left = zero_where_empty(weights @ errors**2, np.where(possible, spread, 0.0))
    return where_possible(1.0 - left, possible, f"R² needs targets that differ, and all of them are {y[0]:.6g}")


def weighted_spread(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ w·(x - mean x)·(y - mean y) over the last axis, with the means of each row of weights."""
    total = weights.sum(-1)
    x, y = np.broadcast_arrays(x, y)
    mean_x, mean_y = (weights * x).sum(-1) / total, (weights * y).sum(-1) / total
    return (weights * (x - mean_x[..., None]) * (y - mean_y[..., None])).sum(-1)


def no_spread(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What rounding alone may make of a spread that is 0."""
    return weights.sum(-1) * (1e-14 * np.abs(x).max(-1)) ** 2


def _errors(truth: Any, predicted: Any) -> np.ndarray:
    truth, predicted = as_numbers(truth, "truth"), as_numbers(predicted, "predicted")
    if truth.ndim != 1 or predicted.ndim != 1:
        raise InputError(f"one number for each example is needed, got {list(truth.shape)} and {list(predicted.shape)}")
    check_lengths(truth=truth, predicted=predicted)
    return truth - predicted
