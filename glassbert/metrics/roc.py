"""The ROC curve and the area under it, for scores that rank examples.

At every threshold: the share of positives above it against the share of negatives above it. The area is the chance that
a positive example gets a higher score than a negative one, ties counting half:

    AUC = Σ_g P_g·(negatives below g + N_g / 2) / (P·N)      g over groups of equal scores
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_binary, as_numbers, as_weights, check_lengths, sums_by_group
from glassbert.metrics.undefined import Undefined, Value, ratio


@dataclass(frozen=True)
class RocCurve:
    """From the strictest threshold (infinity: nobody is positive) to the loosest."""

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray
    thresholds: np.ndarray


def roc_curve(truth: Any, scores: Any) -> RocCurve:
    thresholds, positives, negatives = by_score(truth, scores)
    if not positives.sum() or not negatives.sum():
        raise Undefined(one_class(positives.sum(), "a ROC curve"))
    tp, fp = np.cumsum(positives[::-1]), np.cumsum(negatives[::-1])  # thresholds fall
    return RocCurve(
        np.concatenate([[0.0], fp / fp[-1]]),
        np.concatenate([[0.0], tp / tp[-1]]),
        np.concatenate([[np.inf], thresholds[::-1]]),
    )


def roc_auc(truth: Any, scores: Any, weights: Any = None) -> Value:
    """`truth` [N] of 0 and 1, `scores` [N]. For truth [N, L] of indicators the mean over labels that have both."""
    if np.ndim(truth) == 2:
        return _mean_auc(np.asarray(truth), np.asarray(scores), weights)
    _, positives, negatives = by_score(truth, scores, weights)
    below = np.cumsum(negatives, -1) - negatives / 2
    reason = one_class(positives.sum() if positives.ndim == 1 else 0, "AUC")
    return ratio((positives * below).sum(-1), positives.sum(-1) * negatives.sum(-1), reason)


def _mean_auc(truth: np.ndarray, scores: np.ndarray, weights: Any) -> Value:
    check_lengths(truth=truth, scores=scores)
    if truth.shape != scores.shape:
        raise InputError(f"truth has the shape {list(truth.shape)} and scores {list(scores.shape)}")
    usable = np.flatnonzero(truth.any(0) & ~truth.all(0))
    if not usable.size:
        raise Undefined("AUC needs a label that some examples have and some have not")
    values = np.mean([roc_auc(truth[:, label], scores[:, label], weights) for label in usable], axis=0)
    return float(values) if values.ndim == 0 else values


def by_score(truth: Any, scores: Any, weights: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct scores, rising [G]; the weight of positives and of negatives at each [..., G]."""
    truth, scores = as_binary(truth), as_numbers(scores, "scores")
    check_lengths(truth=truth, scores=scores)
    if scores.ndim != 1:
        raise InputError(f"scores must be one number for each example, got the shape {list(scores.shape)}")
    weights = as_weights(weights, len(truth))
    values, groups = np.unique(scores, return_inverse=True)
    positives = sums_by_group(weights * truth, groups, len(values))
    return values, positives, sums_by_group(weights * ~truth, groups, len(values))


def one_class(positives: float, metric: str) -> str:
    return f"{metric} needs both classes, and all examples are {'positive' if positives else 'negative'}"
