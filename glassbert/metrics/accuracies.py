"""Accuracy: the share of examples that are right.

accuracy           = right / N
top-k accuracy     = share of examples whose label is among the k highest scores
balanced accuracy  = mean over labels of (right of this label / examples of this label)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.confusion import confusion_matrix
from glassbert.metrics.inputs import as_numbers, check_lengths, weighted_mean
from glassbert.metrics.probability import checked_columns
from glassbert.metrics.undefined import Value, where_possible, zero_where_empty


def accuracy(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """For labels [N]. For indicators [N, L] (multilabel) an example is right when all its labels are."""
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    check_lengths(truth=truth, predicted=predicted)
    if truth.shape != predicted.shape:
        raise InputError(f"truth has the shape {list(truth.shape)} and predicted {list(predicted.shape)}")
    right = truth == predicted
    return weighted_mean(right.reshape(len(right), -1).all(-1).astype(np.float64), weights)


def top_k_accuracy(truth: Any, scores: Any, k: int, weights: Any = None) -> Value:
    """`truth` [N] are columns of `scores` [N, L].

    Where others tie with the label's score, it counts by the chance that a draw among them leaves it within the
    first k: no order of columns can flatter a model that scores everything alike.
    """
    scores = as_numbers(scores, "scores")
    if scores.ndim != 2:
        raise InputError(f"scores must be [N, labels], got the shape {list(scores.shape)}")
    if not 1 <= k <= scores.shape[1]:
        raise InputError(f"k must be between 1 and the number of labels, {scores.shape[1]}; got {k}")
    columns = checked_columns(truth, scores)
    own = scores[np.arange(len(scores)), columns][:, None]  # [N, 1]
    above, tied = (scores > own).sum(1), (scores == own).sum(1)
    return weighted_mean(np.clip((k - above) / tied, 0.0, 1.0), weights)


def balanced_accuracy(truth: Any, predicted: Any, weights: Any = None) -> Value:
    """Labels that never occur in the truth are left out of the mean."""
    matrix = confusion_matrix(truth, predicted, weights=weights)
    support = matrix.sum(-1)  # [..., L]
    recall = zero_where_empty(np.diagonal(matrix, axis1=-2, axis2=-1), support)
    occurring = (support > 0).sum(-1)
    return where_possible(recall.sum(-1) / np.maximum(occurring, 1), occurring > 0, "there are no examples")
