"""Averages of weights: of the best evaluations of one seed, or of several seeds.

    weights, used, best = average_greedily(candidates, first, measure, metric)

Candidates are added to the mean one after the other, the best first, and kept if the mean scores better on the choosing
examples. Averages of models that began with the same weights often score better than each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.metrics import Metric, Scores


class Measured(NamedTuple):
    """A main score and a loss, comparable: a higher score is better, then a lower loss."""

    score: float
    loss: float

    def better(self, other: Measured | None, metric: Metric) -> bool:
        if other is None or self.score != other.score:
            return other is None or metric.better(self.score, other.score)
        return self.loss < other.loss

    @classmethod
    def of_state(cls, one: Mapping[str, Any]) -> Measured:
        """From an entry of `TuningState.top`, whose loss is None if it is unknown."""
        return cls(one["score"], math.inf if one["loss"] is None else one["loss"])


def measured(scores: Scores, metric: Metric) -> Measured | None:
    """None if the main score is undefined."""
    value = scores[metric.name].value
    return None if value is None else Measured(value, math.inf if scores.loss is None else scores.loss)


def average_greedily(
    candidates: Sequence[dict[str, np.ndarray]],
    first: Measured,
    measure: Callable[[dict[str, np.ndarray]], Measured | None],
    metric: Metric,
) -> tuple[dict[str, np.ndarray], list[int], Measured]:
    """Weights that start as `candidates[0]`, with every further candidate added to their mean if that scores better.

    Returns the weights, the indices of the candidates in the mean, and its score.
    """
    weights, used, best = candidates[0], [0], first
    for index, candidate in enumerate(candidates[1:], 1):
        share = np.float32(1.0 / (len(used) + 1))
        trial = {name: array + share * (candidate[name] - array) for name, array in weights.items()}
        found = measure(trial)
        if found is not None and found.better(best, metric):
            weights, used, best = trial, [*used, index], found
    return weights, used, best
