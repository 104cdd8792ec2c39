"""From which score on does a label count? Tuned for every label on validation data, by F1.

All thresholds are tried at once: sorted by score, the first k examples are claimed to have the label, and

    F1(k) = 2·TP(k) / (k + positives)

The best cut lies halfway between the last score above it and the first one below. Of equally good cuts the one nearest
to `default` is taken. A label without positives keeps the default, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_numbers, check_lengths


@dataclass(frozen=True)
class Thresholds:
    """For every label: claim it where score >= values. `f1` is NaN and a note is there where it could not be tuned."""

    values: np.ndarray
    f1: np.ndarray
    notes: tuple[str, ...]

    def apply(self, scores: Any) -> np.ndarray:
        return as_numbers(scores, "scores") >= self.values


def tune_thresholds(truth: Any, scores: Any, names: Sequence[str] | None = None, default: float = 0.5) -> Thresholds:
    """`truth` [N, L] of 0 and 1, `scores` [N, L]; or [N] both, for a single label."""
    truth, scores = np.asarray(truth), as_numbers(scores, "scores")
    check_lengths(truth=truth, scores=scores)
    if truth.shape != scores.shape or truth.ndim not in (1, 2) or not np.isin(truth, (0, 1)).all():
        raise InputError(f"truth must hold 0 and 1 for every score: {list(truth.shape)} for {list(scores.shape)}")
    truth, scores = truth.reshape(len(truth), -1).astype(bool), scores.reshape(len(scores), -1)
    names = names or [f"label {label}" for label in range(truth.shape[1])]
    values, best, notes = np.full(truth.shape[1], default), np.full(truth.shape[1], np.nan), []
    for label in range(truth.shape[1]):
        if truth[:, label].any():
            values[label], best[label] = _best_cut(truth[:, label], scores[:, label], default)
        else:
            notes.append(f"{names[label]}: no example has it, so its threshold stays at {default:g}")
    return Thresholds(values, best, tuple(notes))


def _best_cut(truth: np.ndarray, scores: np.ndarray, default: float) -> tuple[float, float]:
    order = np.argsort(-scores, kind="stable")
    falling, hits = scores[order], np.cumsum(truth[order])
    claimed = np.arange(1, len(scores) + 1)
    f1 = 2 * hits / (claimed + hits[-1])
    below = np.append(falling[1:], -np.inf)
    cuttable = falling > below  # never between equal scores
    best = np.flatnonzero(cuttable & (f1 >= f1[cuttable].max() - 1e-12))
    low = np.where(np.isfinite(below[best]), below[best], np.minimum(falling[best], default) - 1e-6)
    middle = low + (falling[best] - low) / 2
    # Halfway between neighbouring floats is one of them: only the upper one keeps what is below out.
    cuts = np.where(
        (low < default) & (default <= falling[best]), default, np.where(middle > low, middle, falling[best])
    )
    nearest = int(np.abs(cuts - default).argmin())
    return float(cuts[nearest]), float(f1[best[nearest]])
