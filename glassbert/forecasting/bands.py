"""Bands around forecasts, made to contain a given share of the values.

    s(w, k)      = |truth - forecast| of window w, k steps ahead, on the scale of the model
    margin(t, k) = the ⌈(m + 1)·(1 - α)⌉-th smallest of the m errors s(w, k) that are known at time t
    α(t + 1, k)  = α(t, k) + RATE·(1 - COVERAGE - missed)     missed: 1 if the value at t was outside its band, else 0

The first formula is split conformal prediction: the band contains the share if errors do not change with time. They
often do: the steps and the frame were chosen on the validation windows, and a series can become more variable. So α,
the share that may be missed, follows what was missed so far (adaptive conformal inference).

The test windows show what such bands are worth: each gets the band of its own time, from the errors known by then. The
band of the future is made in the same way from all errors.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import numpy as np

COVERAGE = 0.8
RATE = 0.02


@dataclass(frozen=True)
class Bands:
    """`margin` [horizon] of the future; `tested` [W, horizon] of the test windows, and the share they contained."""

    margin: np.ndarray
    tested: np.ndarray
    coverage: float


def conformal_bands(
    calibration: np.ndarray,
    calibration_cuts: np.ndarray,
    test: np.ndarray,
    test_cuts: np.ndarray,
    coverage: float = COVERAGE,
    rate: float = RATE,
) -> Bands:
    """Bands from the errors [W, horizon] of calibration and test windows, whose horizons begin at the cuts [W].

    The error of window w at step k is known from time cuts[w] + k + 1 on.
    """
    horizon = test.shape[1]
    errors, cuts = np.concatenate([calibration, test]), np.concatenate([calibration_cuts, test_cuts])
    tested = np.zeros_like(test)
    future = np.zeros(horizon)
    for k in range(horizon):
        missable, known = 1.0 - coverage, sorted(errors[cuts + k < test_cuts[0], k].tolist())
        waiting = [w for w in range(len(errors)) if cuts[w] + k >= test_cuts[0]]  # in the order of time
        for row, cut in enumerate([*test_cuts.tolist(), int(test_cuts[-1]) + horizon]):
            while waiting and cuts[waiting[0]] + k < cut:
                window = waiting.pop(0)
                insort(known, errors[window, k])
                if window >= len(calibration):
                    own = window - len(calibration)
                    missable += rate * (1.0 - coverage - float(test[own, k] > tested[own, k]))
            margin = conformal_quantile(known, 1.0 - missable)
            if row < len(test):
                tested[row, k] = margin
            else:
                future[k] = margin
    return Bands(future, tested, float((test <= tested).mean()))


def conformal_quantile(ordered: list[float], share: float) -> float:
    """The ⌈(m + 1)·share⌉-th smallest of m sorted errors; the largest, if that is more than m."""
    rank = int(np.ceil((len(ordered) + 1) * share - 1e-9))
    return ordered[min(max(rank, 1), len(ordered)) - 1]
