"""Ranks from probabilities, where quadratic kappa is what counts.

The median of the probabilities makes the mean absolute error small. It lies near the middle: the less a model knows,
the less its answers spread. Quadratic kappa asks for more. With correlation r, means μ and standard deviations s of
predicted and true ranks,

    kappa = 2 r s_p s_t / (s_p² + s_t² + (μ_p - μ_t)²)

is largest, and equal to r, where predicted ranks have the mean and the spread of the true ones. So the mean rank e of
the probabilities is moved and stretched until it has both, and rounded:

    rank = round(μ_t + (e - μ_e) · s_t / s_e)

This is the same as borders on the scale of e, one between each two ranks: the `cuts` of the task card. They are fitted
on examples that were held out. From few examples they stay near those of plain rounding.
"""

from __future__ import annotations

import numpy as np

PRIOR = 20  # as many examples speak for plain rounding


def median_ranks(probabilities: np.ndarray) -> np.ndarray:
    """[N] from [N, L]: at least half of the probability lies at or below this rank."""
    return (np.cumsum(probabilities, -1)[:, :-1] < 0.5).sum(-1)


def ranks_by_cuts(probabilities: np.ndarray, cuts: tuple[float, ...]) -> np.ndarray:
    """[N] from [N, L]: the number of cuts at or below the mean rank."""
    return (mean_ranks(probabilities)[:, None] >= np.array(cuts)).sum(-1)


def mean_ranks(probabilities: np.ndarray) -> np.ndarray:
    return probabilities @ np.arange(probabilities.shape[-1])


def fit_cuts(truth: np.ndarray, probabilities: np.ndarray) -> tuple[float, ...]:
    """The L - 1 cuts that give these examples the mean and the spread of their true ranks."""
    rounding = np.arange(probabilities.shape[-1] - 1) + 0.5
    if not len(truth):
        return tuple(rounding.tolist())
    means = mean_ranks(probabilities)
    if np.mean((means - means.mean()) * (truth - np.mean(truth))) <= 0:  # nothing to stretch, or the wrong way round
        return tuple(rounding.tolist())
    matched = means.mean() + (rounding - np.mean(truth)) * np.std(means) / np.std(truth)
    weight = len(truth) / (len(truth) + PRIOR)
    return tuple((weight * matched + (1 - weight) * rounding).tolist())


def cross_fitted_ranks(truth: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Ranks [N] of even rows with cuts fitted on odd rows, and the reverse."""
    chosen = np.zeros(len(truth), np.int64)
    for half in (slice(0, None, 2), slice(1, None, 2)):
        others = slice(1 - half.start, None, 2)
        chosen[half] = ranks_by_cuts(probabilities[half], fit_cuts(truth[others], probabilities[others]))
    return chosen
