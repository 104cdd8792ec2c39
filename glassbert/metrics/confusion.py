"""The confusion matrix: how often each label was taken for each.

C[i, j] = number of examples whose label is labels[i] and whose prediction is labels[j]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_labels, as_weights, check_lengths, sums_by_group


def confusion_matrix(
    truth: Any, predicted: Any, labels: Sequence[Any] | None = None, weights: Any = None
) -> np.ndarray:
    """[L, L], or [R, L, L] for weights [R, N]; rows are the truth. `labels` gives the order, else they are sorted."""
    indices, guesses, names = numbered(truth, predicted, labels)
    weights = as_weights(weights, len(indices))
    counts = sums_by_group(weights, indices * len(names) + guesses, len(names) ** 2)
    return counts.reshape(*counts.shape[:-1], len(names), len(names))


def numbered(truth: Any, predicted: Any, labels: Sequence[Any] | None = None) -> tuple[np.ndarray, np.ndarray, list]:
    """Both as places in the list of labels, and that list."""
    truth, predicted = as_labels(truth, "truth"), as_labels(predicted, "predicted")
    check_lengths(truth=truth, predicted=predicted)
    if labels is None:
        names, places = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
        return places[: len(truth)], places[len(truth) :], names.tolist()
    return _places(truth, labels, "truth"), _places(predicted, labels, "predicted"), list(labels)


def _places(values: np.ndarray, labels: Sequence[Any], name: str) -> np.ndarray:
    names = np.asarray(labels)
    order = np.argsort(names, kind="stable")
    places = order[np.minimum(np.searchsorted(names, values, sorter=order), len(names) - 1)]
    strange = np.flatnonzero(names[places] != values)
    if strange.size:
        raise InputError(
            f"{name}[{strange[0]}] is {values[strange[0]].item()!r}, which is none of the {len(names)} labels"
        )
    return places
