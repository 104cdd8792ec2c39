"""Calibration: does "70 % sure" come true in 70 of 100 cases?

Predictions are put into bins by their confidence; in each bin the mean confidence is compared with the share that came
true. The expected calibration error is the mean gap, weighted by the size of the bins:

    ECE = Σ_b n_b / N · |share that came true in b - mean confidence in b|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_binary, as_weights, check_lengths, sums_by_group
from glassbert.metrics.probability import checked_columns, checked_probabilities
from glassbert.metrics.undefined import Value, zero_where_empty

Bins = Literal["uniform", "quantile"]


@dataclass(frozen=True)
class CalibrationCurve:
    """One entry for every bin that is not empty."""

    confidence: np.ndarray
    came_true: np.ndarray
    counts: np.ndarray


def calibration_curve(truth: Any, probabilities: Any, bins: int = 10, strategy: Bins = "uniform") -> CalibrationCurve:
    """For [N] the probability of the positive class; for [N, L] the highest one and whether it was right."""
    confidence, came_true = claims(truth, probabilities)
    groups = _bin_of(confidence, bins, strategy)
    counts, sure, right = (sums_by_group(values, groups, bins) for values in _parts(confidence, came_true))
    full = counts > 0
    return CalibrationCurve(sure[full] / counts[full], right[full] / counts[full], counts[full].astype(np.int64))


def expected_calibration_error(
    truth: Any, probabilities: Any, bins: int = 10, strategy: Bins = "uniform", weights: Any = None
) -> Value:
    confidence, came_true = claims(truth, probabilities)
    groups = _bin_of(confidence, bins, strategy)
    weights = as_weights(weights, len(confidence))
    gap = np.abs(sums_by_group(weights * (came_true - confidence), groups, bins)).sum(-1)
    error = zero_where_empty(gap, weights.sum(-1))
    return float(error) if error.ndim == 0 else error


def claims(truth: Any, probabilities: Any) -> tuple[np.ndarray, np.ndarray]:
    """How sure the model was, and whether it came true, [N] each."""
    p = checked_probabilities(probabilities)
    if p.ndim == 1:
        positive = as_binary(truth)
        check_lengths(truth=positive, probabilities=p)
        return p, positive.astype(np.float64)
    return p.max(1), (p.argmax(1) == checked_columns(truth, p)).astype(np.float64)


def _parts(confidence: np.ndarray, came_true: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ones(len(confidence)), confidence, came_true


def _bin_of(confidence: np.ndarray, bins: int, strategy: str) -> np.ndarray:
    """A value on an edge belongs to the bin below it."""
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}")
    if strategy not in ("uniform", "quantile"):
        raise InputError(f"strategy must be 'uniform' or 'quantile', got {strategy!r}")
    shares = np.linspace(0.0, 1.0, bins + 1)
    edges = np.quantile(confidence, shares) if strategy == "quantile" else shares
    return np.searchsorted(edges[1:-1], confidence)
