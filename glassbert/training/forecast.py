"""Where will the loss end? A power law through the curve so far, drawn out to the end of the run.

    loss(t) = floor + scale · t^-power

For every floor and power on a grid the best scale is a straight-line fit, so that the whole fit is a table of errors.
All entries that explain the curve about as well as the best one count: the range of what they predict is the range of
the forecast. It is wide early in a run, and rightly so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FIRST = 0.1  # of the run: earlier there is nothing to fit
RECENT = 6.0  # the stretch that is fitted: from a sixth of what is done to now
BINS = 40
POWERS = np.linspace(0.05, 1.5, 59)
FLOORS = np.linspace(0.0, 0.98, 50)  # as a share of the lowest loss seen


class Forecast(NamedTuple):
    """The expected loss at the end, and the range that fits the curve about as well."""

    loss: float
    low: float
    high: float


def forecast(progress: Sequence[float], losses: Sequence[float], warmup: float = 0.0) -> Forecast | None:
    """The loss at progress 1 from pairs of progress and training loss; None where there is too little to go by."""
    p, loss = np.asarray(progress, np.float64), np.asarray(losses, np.float64)
    # The first steep descent follows no power law, so only the last stretch in log progress counts.
    good = np.isfinite(loss) & (p > max(0.005, 0.5 * min(warmup, FIRST), p[-1] / RECENT if len(p) else 0.0))
    p, loss = p[good], loss[good]
    if len(p) < 12 or p[-1] < FIRST * 0.99:
        return None
    t, y, weight, noise = _binned(p, loss)
    if len(t) < 6:
        return None
    x = t[None, :] ** -POWERS[:, None]  # [powers, bins]
    floor = FLOORS * y.min()
    rest = y[None, :] - floor[:, None]  # [floors, bins]
    scale = (rest[:, None, :] * x * weight).sum(-1) / (x * x * weight).sum(-1)  # [floors, powers]
    error = ((rest[:, None, :] - scale[..., None] * x) ** 2 * weight).mean(-1) / weight.mean()
    final = floor[:, None] + scale  # at t = 1
    best = np.unravel_index(np.argmin(error), error.shape)
    likely = error <= error[best] * (1 + 4 / len(t)) + noise * noise
    return Forecast(float(final[best]), float(final[likely].min()), float(final[likely].max()))


def _binned(p: np.ndarray, loss: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Means over stretches of equal length in log progress, their weights, and the noise of one mean."""
    edges = np.geomspace(p[0], p[-1] * (1 + 1e-9), BINS + 1)
    where = np.clip(np.digitize(p, edges) - 1, 0, BINS - 1)
    counts = np.bincount(where, minlength=BINS)
    filled = counts > 0
    t = np.bincount(where, p, BINS)[filled] / counts[filled]
    y = np.bincount(where, loss, BINS)[filled] / counts[filled]
    steps = np.diff(loss)
    noise = float(np.std(steps) / np.sqrt(2) / np.sqrt(counts[filled].mean())) if len(steps) > 1 else 0.0
    return t, y, np.sqrt(counts[filled]), noise
