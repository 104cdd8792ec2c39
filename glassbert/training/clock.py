"""Time in a run: how much of the budget is gone, and what may be spent on things that are not training.

A budget in minutes is a contract. The last evaluation, the last save and the report cost time as well; what they will
cost is measured during the run and kept in reserve, so that the schedule of the learning rate ends where training must
end, and the run ends when its time does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Now = Callable[[], float]


class Clock:
    """Seconds of a run, over all its sittings: a resumed run goes on counting where its checkpoint stopped."""

    def __init__(self, elapsed: float = 0.0, now: Now = time.monotonic, began: float | None = None):
        """`began` is when this sitting began, on the clock of `now`; without it, now."""
        self._now = now
        self._zero = (now() if began is None else began) - elapsed

    @property
    def elapsed(self) -> float:
        return self._now() - self._zero


class Budget:
    """How far a run is, from 0 to 1, by steps, tokens or minutes."""

    def __init__(self, kind: str, amount: float, begun: float | None = None):
        self.kind = kind
        self.amount = amount
        self.begun = begun  # seconds on the clock when the first step began
        self.reserve = 0.0  # seconds that the end of the run will take
        self._reached = 0.0

    @property
    def deterministic(self) -> bool:
        """Whether the progress of a step is the same in every repetition of the run."""
        return self.kind != "minutes"

    def progress(self, step: int, tokens: int, seconds: float) -> float:
        """The share that is gone before step `step` (counted from 0). It never goes back."""
        if self.kind == "steps":
            return min(1.0, step / self.amount)
        if self.kind == "tokens":
            return min(1.0, tokens / self.amount)
        begun = self.begun or 0.0
        usable = 60 * self.amount - self.reserve - begun
        share = 1.0 if usable <= 0 else min(1.0, (seconds - begun) / usable)
        self._reached = max(self._reached, share)
        return self._reached

    def middle_of_step(self, before: float, step: int, tokens: int, batch: int, last_stride: float) -> float:
        """The progress at which a step's learning rate is read: half-way through it, so that a warm-up never stands
        still. Where the clock decides, a step is expected to be as long as the last one.
        """
        stride = last_stride
        if self.deterministic:
            stride = self.progress(step + 1, tokens + batch, 0.0) - before
        return min(1.0, before + max(0.5 * stride, 1e-5))

    def seconds_left(self, progress: float, seconds: float) -> float | None:
        """An estimate of what is to come, the end of the run included; None before the first steps."""
        if self.kind == "minutes":
            return max(0.0, 60 * self.amount - seconds)
        training = seconds - (self.begun or 0.0)
        return training / progress * (1.0 - progress) + self.reserve if progress > 0 else None


def times_in_a_run(kind: str, amount: float, batch_tokens: int, most: int) -> int:
    """How often something is done that costs as much as some tens of steps: rarely in a short run."""
    steps = {"steps": amount, "tokens": amount / batch_tokens, "minutes": 100 * amount}[kind]
    return max(2, min(most, int(steps // 50)))


class Pace:
    """Says when something is due that happens at even intervals: every `steps`, or so many times in a run."""

    def __init__(self, steps: int | None, times: int):
        self.steps = steps
        self.times = times

    def due(self, step: int, before: float, after: float) -> bool:
        """After step `step` (counted from 1), which moved the progress from `before` to `after`."""
        if self.steps is not None:
            return step % self.steps == 0
        return int(after * self.times + 1e-9) > int(before * self.times + 1e-9)


@dataclass
class Allowance:
    """A share of the time for something that is nice to have: it happens when what it costs has been earned."""

    share: float
    least: float = 0.0  # seconds from one time to the next
    spent: float = 0.0
    last: float = float("-inf")
    times: int = 0

    def permits(self, seconds: float) -> bool:
        expected = self.spent / self.times if self.times else 0.0
        return seconds - self.last >= self.least and self.spent + expected <= self.share * seconds

    @contextmanager
    def spending(self, clock: Clock) -> Iterator[None]:
        began = clock.elapsed
        try:
            yield
        finally:
            self.last = clock.elapsed
            self.spent += self.last - began
            self.times += 1
