"""Scores of spans: a span counts only if its type and both of its ends are right.

precision = right / predicted      recall = right / true      F1 = 2·right / (predicted + true)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_weights, check_lengths
from glassbert.metrics.precision_recall import Average, LabelCounts
from glassbert.metrics.tags import sentence_spans
from glassbert.metrics.undefined import Undefined, Value

Tags = Sequence[Sequence[str]]


def count_spans(truth: Tags, predicted: Tags, strict: bool = False, weights: Any = None) -> LabelCounts:
    """Counts by type of span, from the tags of sentences; weights are those of sentences."""
    check_lengths(truth=truth, predicted=predicted)
    for number, (a, b) in enumerate(zip(truth, predicted, strict=True)):
        if len(a) != len(b):
            raise InputError(f"sentence {number} has {len(a)} tags and {len(b)} predicted ones")
    found = sentence_spans([*truth, *predicted], strict)
    pairs = list(zip(found[: len(truth)], found[len(truth) :], strict=True))
    names = sorted({span.type for both in pairs for spans in both for span in spans})
    if not names:
        raise Undefined("there are no spans, neither in the truth nor in the predictions")
    column = {name: place for place, name in enumerate(names)}
    counts = np.zeros((3, len(pairs), len(names)))  # right, predicted, true
    for row, (real, claimed) in enumerate(pairs):
        for spans, kind in ((set(real) & set(claimed), 0), (claimed, 1), (real, 2)):
            for span in spans:
                counts[kind, row, column[span.type]] += 1
    weights = as_weights(weights, len(pairs))
    right, claimed_, real_ = (weights @ part for part in counts)
    return LabelCounts(right, claimed_ - right, real_ - right, tuple(names))


def span_f1(
    truth: Tags, predicted: Tags, average: Average = "micro", strict: bool = False, weights: Any = None
) -> Value:
    return count_spans(truth, predicted, strict, weights).average("f1", average)


def span_precision(
    truth: Tags, predicted: Tags, average: Average = "micro", strict: bool = False, weights: Any = None
) -> Value:
    return count_spans(truth, predicted, strict, weights).average("precision", average)


def span_recall(
    truth: Tags, predicted: Tags, average: Average = "micro", strict: bool = False, weights: Any = None
) -> Value:
    return count_spans(truth, predicted, strict, weights).average("recall", average)
