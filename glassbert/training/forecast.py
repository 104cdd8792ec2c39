"""Where will the held-out loss end? A straight line through the last evaluations, both axes in logarithms, to the end.

    log loss(p) = log loss(now) + slope · log(p / now)          p is the progress of the run, from 0 to 1

A few evaluations say little about the slope, so it is drawn towards the usual one; and the range is what slopes around
it would give. The training loss has a thousand points, but where the masking rate falls its questions become easier
all the time. The constants come from runs of many sizes and lengths (`python -m benchmarks.forecast`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

FIRST = 0.1  # of the run: earlier there is nothing to go by
SINCE = 0.495  # of what has passed: an evaluation at half of it, give or take a step, is the first that counts
USUAL_SLOPE = -0.15
TRUST = 0.6  # in the slope of the curve; the rest goes to the usual one
SLOPE_OFF = 0.1  # by how much slopes were off, in nine runs of ten
NOISE = 0.01  # of a loss at the end


class Forecast(NamedTuple):
    """The expected loss at the end, and the range in which nine runs of ten end."""

    loss: float
    low: float
    high: float


def forecast(evaluations: Sequence[Mapping[str, Any]]) -> Forecast | None:
    """The loss at progress 1 from the evaluations of a log; None where there is too little to go by."""
    if not evaluations or evaluations[-1]["progress"] < FIRST * 0.99:
        return None
    last = evaluations[-1]
    now = min(last["progress"], 1.0)
    points = [
        (line["progress"] / now, float(line["loss"]))
        for line in evaluations
        # Losses of shorter rows are another curve.
        if line["progress"] >= SINCE * now and line.get("length") == last.get("length")
    ]
    p, loss = np.array([(p, loss) for p, loss in points if math.isfinite(loss) and loss > 0]).reshape(-1, 2).T
    if not len(p) or p[-1] < 1.0:  # the last one is what the line goes through
        return None
    slope = USUAL_SLOPE
    if p[0] < 1.0:
        slope = TRUST * float(np.polyfit(np.log(p), np.log(loss), 1)[0]) + (1 - TRUST) * USUAL_SLOPE
    left = -math.log(now)
    off = SLOPE_OFF * left + NOISE
    return Forecast(*(float(loss[-1] * np.exp(slope * left + shift)) for shift in (0.0, -off, off)))
