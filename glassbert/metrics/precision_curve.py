"""Precision against recall, and the average precision.

    AP = Σ_n (R_n - R_(n-1))·P_n      n over thresholds from the strictest to the loosest

No straight lines between the points: those would promise a precision that no threshold gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.metrics.roc import by_score
from glassbert.metrics.undefined import Undefined, Value, where_possible, zero_where_empty

NO_POSITIVES = "no example is positive, so there is no recall to measure"


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """From the strictest threshold to the loosest; at `thresholds[i]` scores of at least that are positive."""

    precision: np.ndarray
    recall: np.ndarray
    thresholds: np.ndarray


def precision_recall_curve(truth: Any, scores: Any) -> PrecisionRecallCurve:
    thresholds, positives, negatives = by_score(truth, scores)
    tp, fp = np.cumsum(positives[::-1]), np.cumsum(negatives[::-1])
    if not tp[-1]:
        raise Undefined(NO_POSITIVES)
    return PrecisionRecallCurve(tp / (tp + fp), tp / tp[-1], thresholds[::-1])


def average_precision(truth: Any, scores: Any, weights: Any = None) -> Value:
    _, positives, negatives = by_score(truth, scores, weights)
    positives, negatives = positives[..., ::-1], negatives[..., ::-1]
    tp, fp = np.cumsum(positives, -1), np.cumsum(negatives, -1)
    area = (positives * zero_where_empty(tp, tp + fp)).sum(-1)
    return where_possible(zero_where_empty(area, tp[..., -1]), tp[..., -1] > 0, NO_POSITIVES)
