"""Agreement beyond chance, from the confusion matrix C with row sums t and column sums p.

Matthews' correlation: the correlation of truth and prediction as indicators, 0 for guessing, 1 for perfect.

    MCC = (N·Σ C_kk - Σ t_k·p_k) / sqrt((N² - Σ p_k²)·(N² - Σ t_k²))

Cohen's kappa: how much less disagreement there is than chance would give, w_ij the price of taking i for j.

    kappa = 1 - Σ w_ij·C_ij / Σ w_ij·(t_i·p_j / N)      w_ij = [i ≠ j], |i - j| or (i - j)²
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.confusion import confusion_matrix
from glassbert.metrics.undefined import Value, ratio

PRICES = {None: 0, "linear": 1, "quadratic": 2}


def matthews_correlation(truth: Any, predicted: Any, weights: Any = None) -> Value:
    matrix = confusion_matrix(truth, predicted, weights=weights)
    t, p, n = matrix.sum(-1), matrix.sum(-2), matrix.sum((-1, -2))
    right = np.trace(matrix, axis1=-2, axis2=-1)
    spread_p, spread_t = n * n - (p * p).sum(-1), n * n - (t * t).sum(-1)
    reason = "Matthews' correlation needs two labels or more in the truth and in the predictions"
    return ratio(n * right - (t * p).sum(-1), np.sqrt(np.maximum(spread_p * spread_t, 0.0)), reason)


def cohen_kappa(
    truth: Any,
    predicted: Any,
    price: Literal["linear", "quadratic"] | None = None,
    labels: Sequence[Any] | None = None,
    weights: Any = None,
) -> Value:
    """`price="quadratic"` is for ranks; give `labels` in their order unless sorting gives it."""
    if price not in PRICES:
        raise InputError(f"price must be None, 'linear' or 'quadratic', got {price!r}")
    matrix = confusion_matrix(truth, predicted, labels, weights)
    places = np.arange(matrix.shape[-1])
    distance = np.abs(places[:, None] - places)
    cost = (distance > 0).astype(float) if price is None else distance.astype(float) ** PRICES[price]
    by_chance = matrix.sum(-1)[..., :, None] * matrix.sum(-2)[..., None, :] / matrix.sum((-1, -2))[..., None, None]
    reason = "kappa: truth and predictions are one and the same label throughout"
    return 1.0 - ratio((cost * matrix).sum((-1, -2)), (cost * by_chance).sum((-1, -2)), reason)


def quadratic_weighted_kappa(
    truth: Any, predicted: Any, labels: Sequence[Any] | None = None, weights: Any = None
) -> Value:
    """For ranks that are whole numbers the price is the square of their distance, gaps in the scale included."""
    if labels is None:
        both = np.concatenate([np.asarray(truth), np.asarray(predicted)])
        if both.size and both.dtype.kind in "iu":
            labels = range(int(both.min()), int(both.max()) + 1)
    return cohen_kappa(truth, predicted, "quadratic", labels, weights)
