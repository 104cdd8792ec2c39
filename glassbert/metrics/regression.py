"""Metrics for numbers: errors, correlations, forecast errors, and the similarity of representations.

    RMSE = sqrt(mean (y - ŷ)²)      MAE = mean |y - ŷ|      R² = 1 - Σ (y - ŷ)² / Σ (y - mean y)²

    Pearson   r = Σ (x - x̄)(y - ȳ) / sqrt(Σ (x - x̄)² · Σ (y - ȳ)²)
    Spearman  Pearson of the ranks; equal values share the mean of their ranks
    Kendall   tau-b = (C - D) / sqrt((C + D + X)·(C + D + Y))

Of all pairs, C are in the same order, D in opposite order, X tied in x alone and Y tied in y alone.

    sMAPE = mean 200·|y - ŷ| / (|y| + |ŷ|)                                in percent, between 0 and 200; 0/0 = 0
    MASE  = mean |y - ŷ| / mean_t |history_t - history_(t - period)|

MASE divides by the error of the seasonal naive forecast (the value one period before) on the training series. Below 1
the model has a smaller error than that forecast. It has no unit, so it compares across series.

    CKA(X, Y) = |YᵀX|² / (|XᵀX|·|YᵀY|)        X [N, A] and Y [N, B] with columns centred; |·| Frobenius

CKA is 1 for representations that are equal up to rotation and scale. With fewer inputs than columns even random
representations have a high CKA: use several times more inputs than columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import (
    Undefined,
    Value,
    as_numbers,
    as_weights,
    check_lengths,
    ratio,
    ratio_or_zero,
    sums_by_group,
    weighted_mean,
    where_defined,
)

# ---- errors ----------------------------------------------------------------------------------------------------------


def rmse(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """Root mean squared error, in the unit of the target."""
    root = np.sqrt(weighted_mean(_errors(truth, predicted) ** 2, weights))
    return float(root) if np.ndim(root) == 0 else root


def mae(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """Mean absolute error, in the unit of the target."""
    return weighted_mean(np.abs(_errors(truth, predicted)), weights)


def r2(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """1 is perfect, 0 equals predicting the mean, below 0 is worse than that."""
    errors, y = _errors(truth, predicted), as_numbers(truth, "truth")
    weights = as_weights(weights, len(y))
    spread = _weighted_covariance(y, y, weights)
    defined = spread > _rounding_error(y, weights)
    unexplained = ratio_or_zero(weights @ errors**2, np.where(defined, spread, 0.0))
    return where_defined(1.0 - unexplained, defined, f"R² needs targets that differ, and all of them are {y[0]:.6g}")


def _weighted_covariance(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ w·(x - mean x)·(y - mean y) over the last axis, with the means of each row of weights."""
    total = weights.sum(-1)
    x, y = np.broadcast_arrays(x, y)
    mean_x, mean_y = (weights * x).sum(-1) / total, (weights * y).sum(-1) / total
    return (weights * (x - mean_x[..., None]) * (y - mean_y[..., None])).sum(-1)


def _rounding_error(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The largest spread that rounding can produce for constant values."""
    return weights.sum(-1) * (1e-14 * np.abs(x).max(-1)) ** 2


def _errors(truth: Any, predicted: Any) -> np.ndarray:
    truth, predicted = as_numbers(truth, "truth"), as_numbers(predicted, "predicted")
    if truth.ndim != 1 or predicted.ndim != 1:
        raise InputError(f"one number for each example is needed, got {list(truth.shape)} and {list(predicted.shape)}")
    check_lengths(truth=truth, predicted=predicted)
    return truth - predicted


# ---- forecasts -------------------------------------------------------------------------------------------------------


def smape(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """Symmetric mean absolute percentage error; `truth` and `predicted` [N] or [N, horizon]."""
    truth, predicted = _as_forecasts(truth, predicted)
    errors = ratio_or_zero(200.0 * np.abs(truth - predicted), np.abs(truth) + np.abs(predicted))
    return weighted_mean(errors.reshape(len(errors), -1).mean(1), weights)


def mase(truth: Any, predicted: Any, history: Any, period: int = 1, weights: Any = None) -> Value:
    """Mean absolute scaled error; `truth` and `predicted` [N] or [N, horizon], `history` the training series."""
    truth, predicted = _as_forecasts(truth, predicted)
    errors = np.abs(truth - predicted).reshape(len(truth), -1).mean(1)
    scale = seasonal_naive_error(history, period)
    reason = f"MASE: the history repeats itself exactly every {period} steps"
    return ratio(weighted_mean(errors, weights), scale, reason)


def seasonal_naive_error(history: Any, period: int = 1) -> float:
    """The mean absolute difference between values one period apart."""
    history = as_numbers(history, "history")
    if period < 1:
        raise InputError(f"the period must be at least 1, got {period}")
    if history.ndim != 1 or len(history) <= period:
        raise Undefined(f"a history of {history.size} values has no two values that are {period} steps apart")
    return float(np.abs(history[period:] - history[:-period]).mean())


def _as_forecasts(truth: Any, predicted: Any) -> tuple[np.ndarray, np.ndarray]:
    truth, predicted = as_numbers(truth, "truth"), as_numbers(predicted, "predicted")
    if truth.shape != predicted.shape or truth.ndim not in (1, 2):
        raise InputError(
            f"forecasts and truth must have the same shape, [N] or [N, horizon]; got {list(predicted.shape)} and "
            f"{list(truth.shape)}"
        )
    check_lengths(truth=truth, predicted=predicted)
    return truth, predicted


# ---- correlation -----------------------------------------------------------------------------------------------------


def pearson(x: Any, y: Any, weights: Any = None) -> Value:
    """The linear correlation, between -1 and 1."""
    x, y, weights = _as_pair(x, y, weights)
    return _pearson(x - x.mean(), y - y.mean(), weights, np.abs(x).max(), np.abs(y).max())


def spearman(x: Any, y: Any, weights: Any = None) -> Value:
    """The rank correlation, between -1 and 1."""
    x, y, weights = _as_pair(x, y, weights)
    ranks_x, ranks_y = ranks(x, weights), ranks(y, weights)
    return _pearson(ranks_x, ranks_y, weights, np.abs(ranks_x).max(-1), np.abs(ranks_y).max(-1))


def kendall(x: Any, y: Any, weights: Any = None) -> Value:
    """Kendall's tau-b in O(N·log N); a weight of 2 stands for two equal examples."""
    x, y, weights = _as_pair(x, y, weights)
    order = np.lexsort((y, x))
    x, y, weights = x[order], y[order], weights[..., order]
    rank_x, rank_y = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    both = np.unique(rank_x * (rank_y.max() + 1) + rank_y, return_inverse=True)[1]
    discordant = _inversions(rank_y, weights)
    total = _pairs(weights.sum(-1))
    tied_x, tied_y, tied = (
        _pairs(sums_by_group(weights, groups, int(groups.max()) + 1)).sum(-1) for groups in (rank_x, rank_y, both)
    )
    surplus = total - tied_x - tied_y + tied - 2 * discordant
    untied = np.maximum((total - tied_x) * (total - tied_y), 0.0)
    return ratio(surplus, np.sqrt(untied), "Kendall's tau: one of the two is constant")


def ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Ranks from 1 for the smallest; equal values share the mean of their ranks. For weights [R, N] ranks [R, N]."""
    distinct, groups = np.unique(values, return_inverse=True)
    sizes = sums_by_group(weights, groups, len(distinct))
    return (np.cumsum(sizes, -1) - sizes + (sizes + 1) / 2)[..., groups]


def _pearson(x: np.ndarray, y: np.ndarray, weights: np.ndarray, largest_x: Any, largest_y: Any) -> Value:
    xx, yy, xy = (_weighted_covariance(a, b, weights) for a, b in ((x, x), (y, y), (x, y)))
    varies_x = xx > _rounding_error(largest_x[..., None], weights)
    varies_y = yy > _rounding_error(largest_y[..., None], weights)
    defined = varies_x & varies_y
    correlation = xy / np.sqrt(np.where(defined, xx, 1.0)) / np.sqrt(np.where(defined, yy, 1.0))
    return where_defined(np.clip(correlation, -1.0, 1.0), defined, "correlation: one of the two is constant")


def _pairs(n: np.ndarray) -> np.ndarray:
    return n * (n - 1) / 2


def _inversions(ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weight of pairs i < j with ranks[i] > ranks[j].

    Two ranks differ first in some bit. For each bit, examples are grouped by the higher bits, in order; within a group
    every 0 makes an inversion with each 1 before it.
    """
    found = np.zeros(weights.shape[:-1])
    for bit in range(int(ranks.max()).bit_length()):
        order = np.argsort(ranks >> (bit + 1), kind="stable")
        group, w = (ranks >> (bit + 1))[order], weights[..., order]
        ones = ((ranks >> bit) & 1)[order] == 1
        before = np.cumsum(w * ones, -1)
        starts = np.searchsorted(group, group)  # the start of each example's group
        earlier = np.concatenate([np.zeros((*before.shape[:-1], 1)), before], -1)[..., starts]
        found = found + (w * ~ones * (before - earlier)).sum(-1)
    return found


def _as_pair(x: Any, y: Any, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = as_numbers(x, "x"), as_numbers(y, "y")
    if x.ndim != 1 or y.ndim != 1:
        raise InputError(f"x and y must be [N] both, got the shapes {list(x.shape)} and {list(y.shape)}")
    check_lengths(x=x, y=y)
    return x, y, as_weights(weights, len(x))


# ---- similarity of representations -----------------------------------------------------------------------------------


def linear_cka(x: Any, y: Any) -> Value:
    """Linear CKA of two representations [N, A] and [N, B] of the same N inputs, between 0 and 1."""
    x, y = as_numbers(x, "x"), as_numbers(y, "y")
    if x.ndim != 2 or y.ndim != 2:
        raise InputError(f"representations must be [N, width], got {list(x.shape)} and {list(y.shape)}")
    check_lengths(x=x, y=y)
    x, y = x - x.mean(0), y - y.mean(0)
    # The smaller of the two products: [A, B] over columns, or [N, N] over inputs.
    if len(x) < max(x.shape[1], y.shape[1]):
        gram_x, gram_y = x @ x.T, y @ y.T
        shared = float((gram_x * gram_y).sum())
        norms = np.linalg.norm(gram_x) * np.linalg.norm(gram_y)
    else:
        shared = float(np.linalg.norm(x.T @ y) ** 2)
        norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return ratio(shared, norms, "CKA: one of the two is the same for all inputs")
