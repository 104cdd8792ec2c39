r"""Learning rate schedules.

A schedule is a pure function from progress (0 at the start of a run, 1 at its end) to a factor on the learning rate.
Progress may be measured in steps, tokens or seconds of the budget. With seconds the decay ends when the time does, on
fast and slow machines alike.

    factor
      1 |   /‾‾‾‾‾‾‾‾‾‾‾\             wsd: warm-up, stable, decay
        |  /             \
      0 | /_______________\__ progress
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from glassbert.errors import TrainingError
from glassbert.training.settings_base import unknown_name

Schedule = Callable[[float], float]


def constant(progress: float, warmup: float) -> float:
    return 1.0


def linear(progress: float, warmup: float) -> float:
    return 1.0 - _after(progress, warmup)


def cosine(progress: float, warmup: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * _after(progress, warmup)))


def inverse_root(progress: float, warmup: float) -> float:
    """√(warm-up / progress): the schedule of the original Transformer, which does not reach zero."""
    start = warmup if warmup > 0 else 0.01
    return math.sqrt(start / max(progress, start))


def wsd(progress: float, warmup: float, decay: float = 0.2) -> float:
    """Warm-up, stable, decay: 1 until the last `decay` of the run, then 1 - √x down to 0."""
    return 1.0 - math.sqrt(_after(progress, max(warmup, 1.0 - decay)))


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse-root": inverse_root,
    "wsd": wsd,
}


def make_schedule(name: str, *, warmup: float = 0.0, **settings: Any) -> Schedule:
    """Make a schedule by name: a linear rise over the first `warmup` of the run, then the curve of that name.

    schedule = make_schedule("cosine", warmup=0.05)
    optimizer.learning_rate = highest * schedule(step / steps)        # or seconds / budget

    "wsd" also takes `decay`, the share of the run in which it falls. With a warm-up the factor at progress 0 is 0, so
    read the first step's factor at a progress above 0.
    """
    if name not in SCHEDULES:
        raise TrainingError(unknown_name(f"there is no schedule {name!r}", name, SCHEDULES))
    for what, share in {"warmup": warmup, **settings}.items():
        if what != "warmup" and not (what == "decay" and name == "wsd"):
            raise TrainingError(f"the schedule {name!r} has no setting {what!r}")
        if not ((isinstance(share, (int, float)) and 0 <= share < 1) or (what == "decay" and share == 1)):
            raise TrainingError(f"{what} must be a share of the run, in [0, 1), got {share!r}")

    def schedule(progress: float) -> float:
        progress = min(max(progress, 0.0), 1.0)
        if progress < warmup:
            return progress / warmup
        return SCHEDULES[name](progress, warmup, **settings)

    return schedule


def _after(progress: float, start: float) -> float:
    """The progress since `start`, from 0 to 1."""
    return min(max((progress - start) / (1.0 - start), 0.0), 1.0) if start < 1 else 0.0
