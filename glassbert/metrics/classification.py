"""Metrics for predicted labels: accuracy, confusion matrix, precision, recall, F1, and agreement beyond chance.

    accuracy           = correct / N
    top-k accuracy     = share of examples whose label is among the k highest scores
    balanced accuracy  = mean over labels of (correct of this label / examples of this label)
    C[i, j]            = number of examples whose label is labels[i] and whose prediction is labels[j]

    precision = TP / (TP + FP)      recall = TP / (TP + FN)      F1 = 2·TP / (2·TP + FP + FN)

Averages of precision, recall and F1 over labels:

    micro      from the sums of TP, FP and FN over all labels
    macro      the unweighted mean over the labels that occur in truth or prediction
    weighted   the mean weighted by how often a label occurs in the truth

A single value 0/0 is Undefined. Inside an average 0/0 counts as 0, as in scikit-learn.

Matthews' correlation and Cohen's kappa, from C with row sums t and column sums p (0 for guessing, 1 for perfect):

    MCC   = (N·Σ C_kk - Σ t_k·p_k) / sqrt((N² - Σ p_k²)·(N² - Σ t_k²))
    kappa = 1 - Σ w_ij·C_ij / Σ w_ij·(t_i·p_j / N)      w_ij = [i ≠ j], |i - j| or (i - j)²
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import (
    Value,
    as_labels,
    as_numbers,
    as_weights,
    check_lengths,
    ratio,
    ratio_or_zero,
    sums_by_group,
    weighted_mean,
    where_defined,
)
from glassbert.metrics.shares import Share, counted, itself

Average = Literal["binary", "micro", "macro", "weighted"]
UNDEFINED_REASONS = {
    "precision": "precision: nothing was predicted to have the label",
    "recall": "recall: no example has the label",
    "f1": "F1: the label occurs neither in the truth nor in the predictions",
}
PENALTY_POWERS = {None: 0, "linear": 1, "quadratic": 2}

# ---- accuracy --------------------------------------------------------------------------------------------------------


def _correct(truth: Any, predicted: Any) -> np.ndarray:
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    check_lengths(truth=truth, predicted=predicted)
    if truth.shape != predicted.shape:
        raise InputError(f"truth has the shape {list(truth.shape)} and predicted {list(predicted.shape)}")
    return (truth == predicted).reshape(len(truth), -1).all(-1)


def _count_correct(truth: Any, predicted: Any) -> Share:
    correct = _correct(truth, predicted)
    return Share(int(correct.sum()), len(correct))


@counted(_count_correct)
def accuracy(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """For labels [N]. For indicators [N, L] (multilabel) an example is correct if all its labels are."""
    return weighted_mean(_correct(truth, predicted).astype(np.float64), weights)


def top_k_accuracy(truth: Any, scores: Any, k: int, weights: Any = None) -> Value:
    """`truth` [N] are column indices of `scores` [N, L].

    Among tied scores, the label counts with the probability that a random order puts it among the first k. So a model
    that scores all labels equally gets k / L, whatever the order of the columns.
    """
    scores = as_numbers(scores, "scores")
    if scores.ndim != 2:
        raise InputError(f"scores must be [N, labels], got the shape {list(scores.shape)}")
    if not 1 <= k <= scores.shape[1]:
        raise InputError(f"k must be between 1 and the number of labels, {scores.shape[1]}; got {k}")
    columns = as_columns(truth, scores)
    own = scores[np.arange(len(scores)), columns][:, None]  # [N, 1]
    above, tied = (scores > own).sum(1), (scores == own).sum(1)
    return weighted_mean(np.clip((k - above) / tied, 0.0, 1.0), weights)


def balanced_accuracy(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """The mean recall over the labels that occur in the truth."""
    matrix = confusion_matrix(truth, predicted, weights=weights)
    support = matrix.sum(-1)  # [..., L]
    recalls = ratio_or_zero(np.diagonal(matrix, axis1=-2, axis2=-1), support)
    occurring = (support > 0).sum(-1)
    return where_defined(recalls.sum(-1) / np.maximum(occurring, 1), occurring > 0, "there are no examples")


def as_columns(truth: Any, scores: np.ndarray) -> np.ndarray:
    """`truth` checked to be column indices of scores [N, L]."""
    columns = as_labels(truth, "truth")
    check_lengths(truth=columns, scores=scores)
    if columns.dtype.kind not in "iu" or columns.min() < 0 or columns.max() >= scores.shape[1]:
        raise InputError(f"truth must hold column indices of the scores, 0 to {scores.shape[1] - 1}")
    return columns


# ---- confusion matrix ------------------------------------------------------------------------------------------------


def confusion_matrix(
    truth: Any, predicted: Any, labels: Sequence[Any] | None = None, weights: Any = None
) -> np.ndarray:
    """[L, L], or [R, L, L] for weights [R, N]; rows are the truth. `labels` sets the order (default: sorted)."""
    rows, columns, names = _label_indices(truth, predicted, labels)
    weights = as_weights(weights, len(rows))
    counts = sums_by_group(weights, rows * len(names) + columns, len(names) ** 2)
    return counts.reshape(*counts.shape[:-1], len(names), len(names))


def _label_indices(
    truth: Any, predicted: Any, labels: Sequence[Any] | None = None
) -> tuple[np.ndarray, np.ndarray, list]:
    """Truth and predictions as indices into the list of labels, and that list."""
    truth, predicted = as_labels(truth, "truth"), as_labels(predicted, "predicted")
    check_lengths(truth=truth, predicted=predicted)
    if labels is None:
        names, indices = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
        return indices[: len(truth)], indices[len(truth) :], names.tolist()
    return _indices_in(truth, labels, "truth"), _indices_in(predicted, labels, "predicted"), list(labels)


def _indices_in(values: np.ndarray, labels: Sequence[Any], name: str) -> np.ndarray:
    names = np.asarray(labels)
    order = np.argsort(names, kind="stable")
    indices = order[np.minimum(np.searchsorted(names, values, sorter=order), len(names) - 1)]
    unknown = np.flatnonzero(names[indices] != values)
    if unknown.size:
        raise InputError(
            f"{name}[{unknown[0]}] is {values[unknown[0]].item()!r}, which is none of the {len(names)} labels"
        )
    return indices


# ---- precision, recall, F1 -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelCounts:
    """True positives, false positives and false negatives of every label, [..., L], in the order of `names`."""

    tp: np.ndarray
    fp: np.ndarray
    fn: np.ndarray
    names: tuple[Any, ...]

    @property
    def support(self) -> np.ndarray:
        """How often a label occurs in the truth."""
        return self.tp + self.fn

    @property
    def occurring(self) -> np.ndarray:
        """Which labels occur in truth or prediction."""
        return self.tp + self.fp + self.fn > 0

    def parts(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Numerator and denominator of "precision", "recall" or "f1"."""
        return {
            "precision": (self.tp, self.tp + self.fp),
            "recall": (self.tp, self.tp + self.fn),
            "f1": (2 * self.tp, 2 * self.tp + self.fp + self.fn),
        }[metric]

    def per_label(self, metric: str) -> np.ndarray:
        """[..., L]; NaN where a label has no value."""
        top, bottom = self.parts(metric)
        return np.where(bottom > 0, ratio_or_zero(top, bottom), np.nan)

    def average(self, metric: str, how: Average) -> Value:
        """The micro, macro or weighted average over labels."""
        top, bottom = self.parts(metric)
        if how == "micro":
            return ratio(top.sum(-1), bottom.sum(-1), UNDEFINED_REASONS[metric].replace("the label", "any label"))
        if how in ("macro", "weighted"):
            share = self.occurring if how == "macro" else self.support
            mean = (ratio_or_zero(top, bottom) * share).sum(-1) / np.maximum(share.sum(-1), 1e-300)
            return where_defined(mean, share.sum(-1) > 0, "no label occurs")
        raise InputError(f"average must be binary, micro, macro or weighted, got {how!r}")

    def for_label(self, metric: str, label: Any) -> Value:
        """The value of one label."""
        if label not in self.names:
            raise InputError(f"the positive label {label!r} is none of {', '.join(map(repr, self.names))}")
        index = self.names.index(label)
        top, bottom = self.parts(metric)
        reason = UNDEFINED_REASONS[metric].replace("the label", f"the label {label!r}")
        return ratio(top[..., index], bottom[..., index], reason)


def count_labels(truth: Any, predicted: Any, labels: Sequence[Any] | None = None, weights: Any = None) -> LabelCounts:
    """Counts from labels [N], or from 0/1 indicators [N, L] where an example may have several labels."""
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if truth.ndim == 2 or predicted.ndim == 2:
        return _count_indicators(truth, predicted, labels, weights)
    names = _label_indices(truth, predicted, labels)[2]
    matrix = confusion_matrix(truth, predicted, names, weights)
    tp = np.diagonal(matrix, axis1=-2, axis2=-1)
    return LabelCounts(tp, matrix.sum(-2) - tp, matrix.sum(-1) - tp, tuple(names))


def _count_indicators(
    truth: np.ndarray, predicted: np.ndarray, labels: Sequence[Any] | None, weights: Any
) -> LabelCounts:
    check_lengths(truth=truth, predicted=predicted)
    if truth.shape != predicted.shape:
        raise InputError(f"truth has the shape {list(truth.shape)} and predicted {list(predicted.shape)}")
    for name, array in (("truth", truth), ("predicted", predicted)):
        if not np.isin(array, (0, 1)).all():
            raise InputError(f"{name} must hold 0 and 1 for every label of every example")
    names = tuple(range(truth.shape[1])) if labels is None else tuple(labels)
    if len(names) != truth.shape[1]:
        raise InputError(f"there are {truth.shape[1]} columns and {len(names)} label names")
    weights = as_weights(weights, len(truth))
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    tp = weights @ (truth * predicted)
    return LabelCounts(tp, weights @ predicted - tp, weights @ truth - tp, names)


def _score(metric: str, truth: Any, predicted: Any, average: Average, positive: Any, weights: Any) -> Value:
    if average == "binary":
        truth, predicted = np.asarray(truth), np.asarray(predicted)
        counts = count_labels(truth == positive, predicted == positive, [False, True], weights)
        return counts.for_label(metric, True)
    return count_labels(truth, predicted, weights=weights).average(metric, average)


def _f1_of(share: float) -> float:
    return 2 * share / (1 + share)


def _counter(metric: str) -> Any:
    """The counts of a metric of one label. Averages over labels are not shares of examples."""

    def count(truth: Any, predicted: Any, average: Average = "binary", positive: Any = 1) -> Share | None:
        if average != "binary" or np.ndim(truth) != 1:
            return None
        true, chosen = np.asarray(truth) == positive, np.asarray(predicted) == positive
        among = {"precision": chosen, "recall": true, "f1": true | chosen}[metric]
        return Share(int((true & chosen).sum()), int(among.sum()), _f1_of if metric == "f1" else itself)

    return count


@counted(_counter("precision"))
def precision(truth: Any, predicted: Any, average: Average = "binary", positive: Any = 1, weights: Any = None) -> Value:
    """TP / (TP + FP) of the label `positive`, or an average over labels."""
    return _score("precision", truth, predicted, average, positive, weights)


@counted(_counter("recall"))
def recall(truth: Any, predicted: Any, average: Average = "binary", positive: Any = 1, weights: Any = None) -> Value:
    """TP / (TP + FN) of the label `positive`, or an average over labels."""
    return _score("recall", truth, predicted, average, positive, weights)


@counted(_counter("f1"))
def f1(truth: Any, predicted: Any, average: Average = "binary", positive: Any = 1, weights: Any = None) -> Value:
    """The harmonic mean of precision and recall of the label `positive`, or an average over labels."""
    return _score("f1", truth, predicted, average, positive, weights)


# ---- agreement beyond chance -----------------------------------------------------------------------------------------


def matthews_correlation(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """The correlation of truth and prediction as indicators; also for more than two labels."""
    matrix = confusion_matrix(truth, predicted, weights=weights)
    t, p, n = matrix.sum(-1), matrix.sum(-2), matrix.sum((-1, -2))
    correct = np.trace(matrix, axis1=-2, axis2=-1)
    spread_p, spread_t = n * n - (p * p).sum(-1), n * n - (t * t).sum(-1)
    reason = "Matthews' correlation needs two labels or more in the truth and in the predictions"
    return ratio(n * correct - (t * p).sum(-1), np.sqrt(np.maximum(spread_p * spread_t, 0.0)), reason)


def cohen_kappa(
    truth: Any,
    predicted: Any,
    penalty: Literal["linear", "quadratic"] | None = None,
    labels: Sequence[Any] | None = None,
    weights: Any = None,
) -> Value:
    """`penalty` is the cost w_ij of predicting j for i; None: 1 for every error.

    "linear" and "quadratic" are for ordered labels: pass `labels` in order unless sorting gives it.
    """
    if penalty not in PENALTY_POWERS:
        raise InputError(f"penalty must be None, 'linear' or 'quadratic', got {penalty!r}")
    matrix = confusion_matrix(truth, predicted, labels, weights)
    ranks = np.arange(matrix.shape[-1])
    distance = np.abs(ranks[:, None] - ranks)
    cost = (distance > 0).astype(float) if penalty is None else distance.astype(float) ** PENALTY_POWERS[penalty]
    by_chance = matrix.sum(-1)[..., :, None] * matrix.sum(-2)[..., None, :] / matrix.sum((-1, -2))[..., None, None]
    reason = "kappa: truth and predictions are all the same label"
    return 1.0 - ratio((cost * matrix).sum((-1, -2)), (cost * by_chance).sum((-1, -2)), reason)


def quadratic_weighted_kappa(
    truth: Any, predicted: Any, labels: Sequence[Any] | None = None, weights: Any = None
) -> Value:
    """Kappa with quadratic penalty. For integer labels a gap in the scale counts: 3 to 5 is a distance of 2."""
    if labels is None:
        both = np.concatenate([np.asarray(truth), np.asarray(predicted)])
        if both.size and both.dtype.kind in "iu":
            labels = range(int(both.min()), int(both.max()) + 1)
    return cohen_kappa(truth, predicted, "quadratic", labels, weights)
