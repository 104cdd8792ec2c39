"""Metrics for scores that rank examples: ROC curve and AUC, precision-recall curve and average precision, thresholds.

    AUC = Σ_g P_g·(negatives below g + N_g / 2) / (P·N)      g over groups of equal scores
    AP  = Σ_n (R_n - R_(n-1))·P_n                            n over thresholds from the highest to the lowest

AUC is the probability that a positive example gets a higher score than a negative one; ties count half. AP does not
interpolate between points, because no threshold reaches the precision on a straight line between two of them.

`tune_thresholds` chooses for each label the threshold with the best F1 on validation data. Sorted by score, the first
k examples are predicted to have the label:

    F1(k) = 2·TP(k) / (k + positives)

The threshold lies halfway between the last score above it and the first one below. Among equally good thresholds it
takes the one nearest to `default`. A label without positives keeps the default and gets a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import (
    Undefined,
    Value,
    as_binary,
    as_numbers,
    as_weights,
    check_lengths,
    ratio,
    ratio_or_zero,
    sums_by_group,
    where_defined,
)
from glassbert.metrics.shares import Share, counted

NO_POSITIVES = "no example is positive, so recall is undefined"

# ---- ROC -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RocCurve:
    """Points from the highest threshold (infinity: no example is positive) to the lowest."""

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray
    thresholds: np.ndarray


def roc_curve(truth: Any, scores: Any) -> RocCurve:
    """`truth` [N] of 0 and 1, `scores` [N]."""
    thresholds, positives, negatives = _counts_by_score(truth, scores)
    if not positives.sum() or not negatives.sum():
        raise Undefined(_single_class_reason(positives.sum(), "a ROC curve"))
    tp, fp = np.cumsum(positives[::-1]), np.cumsum(negatives[::-1])  # thresholds fall
    return RocCurve(
        np.concatenate([[0.0], fp / fp[-1]]),
        np.concatenate([[0.0], tp / tp[-1]]),
        np.concatenate([[np.inf], thresholds[::-1]]),
    )


def _count_pairs(truth: Any, scores: Any) -> Share | None:
    """Disjoint pairs of a positive and a negative example, if all are in the right order."""
    if np.ndim(truth) != 1 or roc_auc(truth, scores) < 1:
        return None
    positives = int(np.asarray(truth).sum())
    pairs = min(positives, len(truth) - positives)
    return Share(pairs, pairs)


@counted(_count_pairs)
def roc_auc(truth: Any, scores: Any, weights: Any = None) -> Value:
    """`truth` [N] of 0 and 1, `scores` [N]. For [N, L] the mean over the labels that have positives and negatives."""
    if np.ndim(truth) == 2:
        return _mean_auc(np.asarray(truth), np.asarray(scores), weights)
    _, positives, negatives = _counts_by_score(truth, scores, weights)
    below = np.cumsum(negatives, -1) - negatives / 2
    reason = _single_class_reason(positives.sum() if positives.ndim == 1 else 0, "AUC")
    return ratio((positives * below).sum(-1), positives.sum(-1) * negatives.sum(-1), reason)


def _mean_auc(truth: np.ndarray, scores: np.ndarray, weights: Any) -> Value:
    check_lengths(truth=truth, scores=scores)
    if truth.shape != scores.shape:
        raise InputError(f"truth has the shape {list(truth.shape)} and scores {list(scores.shape)}")
    usable = np.flatnonzero(truth.any(0) & ~truth.all(0))
    if not usable.size:
        raise Undefined("AUC needs a label that some examples have and some do not have")
    values = np.mean([roc_auc(truth[:, label], scores[:, label], weights) for label in usable], axis=0)
    return float(values) if values.ndim == 0 else values


def _counts_by_score(truth: Any, scores: Any, weights: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct scores in ascending order [G]; the weight of positives and of negatives at each [..., G]."""
    truth, scores = as_binary(truth), as_numbers(scores, "scores")
    check_lengths(truth=truth, scores=scores)
    if scores.ndim != 1:
        raise InputError(f"scores must be one number for each example, got the shape {list(scores.shape)}")
    weights = as_weights(weights, len(truth))
    values, groups = np.unique(scores, return_inverse=True)
    positives = sums_by_group(weights * truth, groups, len(values))
    return values, positives, sums_by_group(weights * ~truth, groups, len(values))


def _single_class_reason(positives: float, metric: str) -> str:
    return f"{metric} needs both classes, and all examples are {'positive' if positives else 'negative'}"


# ---- precision and recall --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """Points from the highest threshold to the lowest; at `thresholds[i]` scores >= thresholds[i] are positive."""

    precision: np.ndarray
    recall: np.ndarray
    thresholds: np.ndarray


def precision_recall_curve(truth: Any, scores: Any) -> PrecisionRecallCurve:
    """`truth` [N] of 0 and 1, `scores` [N]."""
    thresholds, positives, negatives = _counts_by_score(truth, scores)
    tp, fp = np.cumsum(positives[::-1]), np.cumsum(negatives[::-1])
    if not tp[-1]:
        raise Undefined(NO_POSITIVES)
    return PrecisionRecallCurve(tp / (tp + fp), tp / tp[-1], thresholds[::-1])


def average_precision(truth: Any, scores: Any, weights: Any = None) -> Value:
    """The area under the precision-recall curve, as a step function."""
    _, positives, negatives = _counts_by_score(truth, scores, weights)
    positives, negatives = positives[..., ::-1], negatives[..., ::-1]
    tp, fp = np.cumsum(positives, -1), np.cumsum(negatives, -1)
    area = (positives * ratio_or_zero(tp, tp + fp)).sum(-1)
    return where_defined(ratio_or_zero(area, tp[..., -1]), tp[..., -1] > 0, NO_POSITIVES)


# ---- thresholds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thresholds:
    """A label is predicted where score >= its value. Where it could not be tuned, `f1` is NaN and there is a note."""

    values: np.ndarray
    f1: np.ndarray
    notes: tuple[str, ...]

    def apply(self, scores: Any) -> np.ndarray:
        """bool, of the shape of `scores`."""
        return as_numbers(scores, "scores") >= self.values


def tune_thresholds(truth: Any, scores: Any, names: Sequence[str] | None = None, default: float = 0.5) -> Thresholds:
    """`truth` [N, L] of 0 and 1, `scores` [N, L]; or [N] both, for a single label."""
    truth, scores = np.asarray(truth), as_numbers(scores, "scores")
    check_lengths(truth=truth, scores=scores)
    if truth.shape != scores.shape or truth.ndim not in (1, 2) or not np.isin(truth, (0, 1)).all():
        raise InputError(
            f"truth must hold 0 or 1 for every score: its shape is {list(truth.shape)}, that of the scores "
            f"{list(scores.shape)}"
        )
    truth, scores = truth.reshape(len(truth), -1).astype(bool), scores.reshape(len(scores), -1)
    names = names or [f"label {label}" for label in range(truth.shape[1])]
    values, best, notes = np.full(truth.shape[1], default), np.full(truth.shape[1], np.nan), []
    for label in range(truth.shape[1]):
        if truth[:, label].any():
            values[label], best[label] = _best_threshold(truth[:, label], scores[:, label], default)
        else:
            notes.append(f"{names[label]}: no example has it, so its threshold stays at {default:g}")
    return Thresholds(values, best, tuple(notes))


def _best_threshold(truth: np.ndarray, scores: np.ndarray, default: float) -> tuple[float, float]:
    """The threshold and its F1."""
    order = np.argsort(-scores, kind="stable")
    falling, hits = scores[order], np.cumsum(truth[order])
    predicted = np.arange(1, len(scores) + 1)
    f1 = 2 * hits / (predicted + hits[-1])
    below = np.append(falling[1:], -np.inf)
    separable = falling > below  # no threshold lies between equal scores
    best = np.flatnonzero(separable & (f1 >= f1[separable].max() - 1e-12))
    low = np.where(np.isfinite(below[best]), below[best], np.minimum(falling[best], default) - 1e-6)
    middle = low + (falling[best] - low) / 2
    # Halfway between adjacent floats rounds to one of them; then the upper one must be the threshold.
    cuts = np.where(
        (low < default) & (default <= falling[best]), default, np.where(middle > low, middle, falling[best])
    )
    nearest = int(np.abs(cuts - default).argmin())
    return float(cuts[nearest]), float(f1[best[nearest]])
