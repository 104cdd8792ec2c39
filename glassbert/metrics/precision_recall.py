"""Precision, recall and F1: of what was claimed, how much is true; of what is true, how much was claimed.

    precision = TP / (TP + FP)      recall = TP / (TP + FN)      F1 = 2·TP / (2·TP + FP + FN)

Averages over labels:

    micro      the counts of all labels added up first
    macro      the plain mean over the labels that occur in truth or prediction
    weighted   the mean weighted by how often a label occurs in the truth

A single number that would be 0/0 is Undefined. Inside an average 0/0 counts as 0, as it does everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.confusion import confusion_matrix, numbered
from glassbert.metrics.inputs import as_weights, check_lengths
from glassbert.metrics.undefined import Value, ratio, where_possible, zero_where_empty

Average = Literal["binary", "micro", "macro", "weighted"]
CANNOT = {
    "precision": "precision: nothing was predicted to have the label",
    "recall": "recall: no example has the label",
    "f1": "F1: the label occurs neither in the truth nor in the predictions",
}


@dataclass(frozen=True)
class LabelCounts:
    """For every label, [..., L]: true positives, false positives and false negatives, in the order of `names`."""

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
        return self.tp + self.fp + self.fn > 0

    def parts(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Numerator and denominator."""
        return {
            "precision": (self.tp, self.tp + self.fp),
            "recall": (self.tp, self.tp + self.fn),
            "f1": (2 * self.tp, 2 * self.tp + self.fp + self.fn),
        }[metric]

    def per_label(self, metric: str) -> np.ndarray:
        """[..., L]; NaN where a label has no value."""
        top, bottom = self.parts(metric)
        return np.where(bottom > 0, zero_where_empty(top, bottom), np.nan)

    def average(self, metric: str, how: Average) -> Value:
        top, bottom = self.parts(metric)
        if how == "micro":
            return ratio(top.sum(-1), bottom.sum(-1), CANNOT[metric].replace("the label", "any label"))
        if how in ("macro", "weighted"):
            share = self.occurring if how == "macro" else self.support
            mean = (zero_where_empty(top, bottom) * share).sum(-1) / np.maximum(share.sum(-1), 1e-300)
            return where_possible(mean, share.sum(-1) > 0, "no label occurs")
        raise InputError(f"average must be binary, micro, macro or weighted, got {how!r}")

    def of(self, metric: str, label: Any) -> Value:
        """The value of one label."""
        if label not in self.names:
            raise InputError(f"the positive label {label!r} is none of {', '.join(map(repr, self.names))}")
        place = self.names.index(label)
        top, bottom = self.parts(metric)
        return ratio(top[..., place], bottom[..., place], CANNOT[metric].replace("the label", f"the label {label!r}"))


def count_labels(truth: Any, predicted: Any, labels: Sequence[Any] | None = None, weights: Any = None) -> LabelCounts:
    """From labels [N], or from indicators [N, L] of 0 and 1 where an example may have several labels."""
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if truth.ndim == 2 or predicted.ndim == 2:
        return _count_indicators(truth, predicted, labels, weights)
    names = numbered(truth, predicted, labels)[2]
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
        raise InputError(f"there are {truth.shape[1]} columns and {len(names)} names of labels")
    weights = as_weights(weights, len(truth))
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    tp = weights @ (truth * predicted)
    return LabelCounts(tp, weights @ predicted - tp, weights @ truth - tp, names)


def _score(metric: str, truth: Any, predicted: Any, average: Average, positive: Any, weights: Any) -> Value:
    if average == "binary":
        truth, predicted = np.asarray(truth), np.asarray(predicted)
        counts = count_labels(truth == positive, predicted == positive, [False, True], weights)
        return counts.of(metric, True)
    return count_labels(truth, predicted, weights=weights).average(metric, average)


def precision(truth: Any, predicted: Any, average: Average = "binary", positive: Any = 1, weights: Any = None) -> Value:
    return _score("precision", truth, predicted, average, positive, weights)


def recall(truth: Any, predicted: Any, average: Average = "binary", positive: Any = 1, weights: Any = None) -> Value:
    return _score("recall", truth, predicted, average, positive, weights)


def f1(truth: Any, predicted: Any, average: Average = "binary", positive: Any = 1, weights: Any = None) -> Value:
    return _score("f1", truth, predicted, average, positive, weights)
