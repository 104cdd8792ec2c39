r"""Schedules: how the learning rate, the masking rate or the length of the rows changes while a model learns.

A schedule of the learning rate is a pure function from progress (0 at the beginning of a run, 1 at its end) to a
factor. It does not care what progress is measured in: steps over all steps, tokens over all tokens, or seconds over the
seconds that the run may take. The last makes the decay end when the time does, however fast the machine is.

    factor
      1 |   /‾‾‾‾‾‾‾‾‾‾‾\             wsd: warm up, stay, decay
        |  /             \
      0 | /_______________\__ progress
"""

from __future__ import annotations

import difflib
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from glassbert.errors import TrainingError

Schedule = Callable[[float], float]


def constant(progress: float, warmup: float) -> float:
    return 1.0


def linear(progress: float, warmup: float) -> float:
    return 1.0 - _after(progress, warmup)


def cosine(progress: float, warmup: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * _after(progress, warmup)))


def inverse_root(progress: float, warmup: float) -> float:
    """√(warm-up / progress): the schedule of the first Transformer, which needs no end."""
    start = warmup if warmup > 0 else 0.01
    return math.sqrt(start / max(progress, start))


def wsd(progress: float, warmup: float, decay: float = 0.2) -> float:
    """Warm up, stay, decay: full speed until the last fifth, then 1 - √x down to nothing."""
    return 1.0 - math.sqrt(_after(progress, max(warmup, 1.0 - decay)))


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse-root": inverse_root,
    "wsd": wsd,
}


def make_schedule(name: str, *, warmup: float = 0.0, floor: float = 0.0, **settings: Any) -> Schedule:
    """A schedule by name: it rises in a straight line over the first `warmup` of the run, and falls to `floor` at most.

    schedule = make_schedule("cosine", warmup=0.05)
    optimizer.learning_rate = highest * schedule(step / steps)        # or seconds / budget

    "wsd" takes `decay`, the share of the run in which it falls. The first step of a run has a progress above 0:
    at 0 a warm-up stands still.
    """
    if name not in SCHEDULES:
        close = difflib.get_close_matches(str(name), SCHEDULES, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise TrainingError(f"there is no schedule {name!r}{hint} There are {', '.join(SCHEDULES)}.")
    for what, share in {"warmup": warmup, "floor": floor, **settings}.items():
        if what not in ("warmup", "floor") and not (what == "decay" and name == "wsd"):
            raise TrainingError(f"the schedule {name!r} has no setting {what!r}")
        if not ((isinstance(share, (int, float)) and 0 <= share < 1) or (what == "decay" and share == 1)):
            raise TrainingError(f"{what} is a share of the run, in [0, 1), got {share!r}")

    def schedule(progress: float) -> float:
        progress = min(max(progress, 0.0), 1.0)
        if progress < warmup:
            return progress / warmup
        return floor + (1.0 - floor) * SCHEDULES[name](progress, warmup, **settings)

    return schedule


def _after(progress: float, start: float) -> float:
    """How much of the time after `start` has passed."""
    return min(max((progress - start) / (1.0 - start), 0.0), 1.0) if start < 1 else 0.0


@dataclass(frozen=True)
class Piecewise:
    """A value given at some points of progress: in a straight line between them, or in steps.

    Curricula are such values: Piecewise(((0.0, 0.3), (1.0, 0.15))) lowers a masking rate all along the run, and
    Piecewise(((0.0, 64), (0.8, 128)), steps=True) makes the rows longer for its last fifth.
    """

    points: Sequence[tuple[float, float]]
    steps: bool = False

    def __post_init__(self) -> None:
        places = [place for place, _ in self.points]
        rising = all(a < b for a, b in pairwise(places))
        if not (places and places[0] == 0.0 and places[-1] <= 1.0 and rising):
            raise TrainingError(f"the places of a curriculum rise from 0 to at most 1, got {places}")

    def __call__(self, progress: float) -> float:
        i = bisect_right([place for place, _ in self.points], max(progress, 0.0)) - 1
        place, value = self.points[i]
        if self.steps or i + 1 == len(self.points):
            return value
        next_place, next_value = self.points[i + 1]
        return value + (next_value - value) * (progress - place) / (next_place - place)
