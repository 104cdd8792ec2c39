"""Where will the loss end? A straight line through the last half of the curve, both axes in logarithms, to the end.

    log loss(p) = log loss(now) + slope · log(p / now)          p is the progress of the run, from 0 to 1

A short curve says little about its slope, so the slope is drawn towards the usual one; and the range is what slopes
around it would give. The constants come from runs of many sizes and lengths (`python -m benchmarks.forecast`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FIRST = 0.1  # of the run: earlier there is nothing to go by
FEWEST = 12  # points
USUAL_SLOPE = -0.13
TRUST = 0.7  # in the slope of the curve; the rest goes to the usual one
SLOPE_OFF = 0.1  # by how much slopes were off, in nine runs of ten
NOISE = 0.01  # of a loss at the end


class Forecast(NamedTuple):
    """The expected loss at the end, and the range in which nine runs of ten end."""

    loss: float
    low: float
    high: float


def forecast(progress: Sequence[float], losses: Sequence[float]) -> Forecast | None:
    """The loss at progress 1 from pairs of progress and training loss; None where there is too little to go by."""
    p, loss = np.asarray(progress, np.float64), np.asarray(losses, np.float64)
    if not len(p) or p[-1] < FIRST * 0.99:
        return None
    now = float(p[-1])
    good = (p > now / 2) & np.isfinite(loss) & (loss > 0)
    if good.sum() < FEWEST:
        return None
    slope, height = np.polyfit(np.log(p[good] / now), np.log(loss[good]), 1)
    slope = TRUST * slope + (1 - TRUST) * USUAL_SLOPE
    left = -math.log(min(now, 1.0))
    off = SLOPE_OFF * left + NOISE
    return Forecast(*(float(np.exp(height + slope * left + shift)) for shift in (0.0, -off, off)))
