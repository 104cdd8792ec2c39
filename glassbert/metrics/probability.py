"""How good are probabilities? Two proper scores: both are best when the probabilities are the true ones.

log loss = - mean ln p(label)
Brier    = mean (p - y)²  for two classes;  mean Σ_k (p_k - [label = k])²  for several
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_binary, as_labels, as_numbers, check_lengths, weighted_mean
from glassbert.metrics.undefined import Value

SMALLEST = np.finfo(np.float64).eps  # a probability of 0 costs 36 instead of infinity


def log_loss(truth: Any, probabilities: Any, weights: Any = None) -> Value:
    """`probabilities` [N] of the positive class with truth 0 and 1, or [N, L] with truth as columns."""
    return weighted_mean(-np.log(np.clip(_of_the_label(truth, probabilities), SMALLEST, 1.0)), weights)


def brier_score(truth: Any, probabilities: Any, weights: Any = None) -> Value:
    """Between 0 and 1 for two classes, between 0 and 2 for several."""
    p = checked_probabilities(probabilities)
    own = _of_the_label(truth, p)
    if p.ndim == 1:
        return weighted_mean((1.0 - own) ** 2, weights)
    return weighted_mean((p * p).sum(1) - own * own + (1.0 - own) ** 2, weights)


def checked_probabilities(probabilities: Any) -> np.ndarray:
    """[N], or [N, L] with rows that sum to 1."""
    p = as_numbers(probabilities, "probabilities")
    if p.ndim not in (1, 2):
        raise InputError(f"probabilities must be [N] or [N, labels], got the shape {list(p.shape)}")
    if p.size and (p.min() < 0 or p.max() > 1):
        raise InputError(
            f"probabilities must lie between 0 and 1, got {p.min():.4g} to {p.max():.4g}; are these logits?"
        )
    if p.ndim == 2 and p.size and np.abs(p.sum(1) - 1).max() > 1e-3:
        row = int(np.abs(p.sum(1) - 1).argmax())
        raise InputError(f"probabilities of an example must sum to 1; those of row {row} sum to {p[row].sum():.4g}")
    return p


def _of_the_label(truth: Any, probabilities: Any) -> np.ndarray:
    """The probability that was given to what is true, [N]."""
    p = checked_probabilities(probabilities)
    if p.ndim == 1:
        positive = as_binary(truth)
        check_lengths(truth=positive, probabilities=p)
        return np.where(positive, p, 1.0 - p)
    return p[np.arange(len(p)), checked_columns(truth, p)]


def checked_columns(truth: Any, scores: np.ndarray) -> np.ndarray:
    """Labels as columns of scores [N, L]."""
    columns = as_labels(truth, "truth")
    check_lengths(truth=columns, scores=scores)
    if columns.dtype.kind not in "iu" or columns.min() < 0 or columns.max() >= scores.shape[1]:
        raise InputError(f"truth must hold columns of the scores, 0 to {scores.shape[1] - 1}")
    return columns
