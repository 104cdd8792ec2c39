"""When a run ends and what may take its time: clock, budget, intervals, time allowances, cost of the end, stop signals.

A budget in minutes includes the last evaluation, the last checkpoint and the report. Their cost is measured during the
run and reserved, so the learning rate schedule ends when training ends and the run ends on time.
"""

from __future__ import annotations

import math
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Self

from glassbert.training.data import HELD_OUT_BATCH, TrainingData
from glassbert.training.settings import TrainingSettings

FINAL_SHARE = 0.03  # of a budget in minutes, for the last evaluation
OVERTIME = 0.005  # of a budget in minutes, for a last evaluation that starts late
EVALUATIONS, CHECKPOINTS = 20, 10  # per run, unless the settings give an interval
HANGUP = getattr(signal, "SIGHUP", None)  # the terminal was closed; Windows has no such signal
# Launchers forward SIGUSR1 to their processes without ending them; Slurm sends it before the time limit.
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]

Now = Callable[[], float]


class Clock:
    """Seconds of a run, including those before an interruption: a resumed run continues from its checkpoint's count."""

    def __init__(self, elapsed: float = 0.0, now: Now = time.monotonic, started: float | None = None):
        """`started` is the time of `now` at which this process started the run (default: the current time)."""
        self._now = now
        self._zero = (now() if started is None else started) - elapsed

    @property
    def elapsed(self) -> float:
        return self._now() - self._zero


class Budget:
    """The progress of a run from 0 to 1, measured in steps, tokens or minutes."""

    def __init__(self, kind: str, amount: float, begun: float | None = None):
        self.kind = kind
        self.amount = amount
        self.begun = begun  # seconds on the clock when the first step began
        self.reserve = 0.0  # seconds that the end of the run will take
        self._highest = 0.0

    @property
    def deterministic(self) -> bool:
        """Whether a step has the same progress in every repetition of the run."""
        return self.kind != "minutes"

    def progress(self, step: int, tokens: int, seconds: float) -> float:
        """The share of the budget used before step `step` (counted from 0). It never decreases."""
        if self.kind == "steps":
            return min(1.0, step / self.amount)
        if self.kind == "tokens":
            return min(1.0, tokens / self.amount)
        begun = self.begun or 0.0
        usable = 60 * self.amount - self.reserve - begun
        share = 1.0 if usable <= 0 else min(1.0, (seconds - begun) / usable)
        self._highest = max(self._highest, share)
        return self._highest

    def middle_of_step(self, before: float, step: int, tokens: int, batch: int, last_stride: float) -> float:
        """The progress at which the learning rate of a step is read: its middle, so that warm-up never gives 0.

        With a budget in minutes the step is assumed to take as long as the last one (`last_stride`).
        """
        stride = last_stride
        if self.deterministic:
            stride = self.progress(step + 1, tokens + batch, 0.0) - before
        return min(1.0, before + max(0.5 * stride, 1e-5))

    def seconds_left(self, progress: float, seconds: float) -> float | None:
        """Estimated seconds until the run ends, with evaluation and saving; None before the first step."""
        if self.kind == "minutes":
            return max(0.0, 60 * self.amount - seconds)
        training = seconds - (self.begun or 0.0)
        return training / progress * (1.0 - progress) + self.reserve if progress > 0 else None


def times_in_a_run(kind: str, amount: float, batch_tokens: int, most: int) -> int:
    """How often to do something that costs tens of steps: at most once in 50 steps, at least twice in a run."""
    steps = {"steps": amount, "tokens": amount / batch_tokens, "minutes": 100 * amount}[kind]
    return max(2, min(most, int(steps // 50)))


class Interval:
    """Tells when a periodic action is due: every `steps` steps, or `times` times in a run."""

    def __init__(self, steps: int | None, times: int):
        self.steps = steps
        self.times = times

    def due(self, step: int, before: float, after: float) -> bool:
        """Whether it is due after step `step` (counted from 1), which moved the progress from `before` to `after`."""
        if self.steps is not None:
            return step % self.steps == 0
        return int(after * self.times + 1e-9) > int(before * self.times + 1e-9)


@dataclass
class Allowance:
    """Limits an optional action to a share of the elapsed time, from its mean cost so far."""

    share: float
    least: float = 0.0  # seconds between two times
    spent: float = 0.0
    last: float = float("-inf")
    times: int = 0

    def permits(self, seconds: float) -> bool:
        expected = self.spent / self.times if self.times else 0.0
        return seconds - self.last >= self.least and self.spent + expected <= self.share * seconds

    @contextmanager
    def spending(self, clock: Clock) -> Iterator[None]:
        """Measure the action inside and count it."""
        began = clock.elapsed
        try:
            yield
        finally:
            self.last = clock.elapsed
            self.spent += self.last - began
            self.times += 1


class Costs:
    """The last measured seconds per evaluated row, checkpoint, report and step; estimates the cost of ending a run."""

    def __init__(self, data: TrainingData) -> None:
        self.held_out = data.held_out_rows()  # may be fewer than the settings ask for
        self.by_source = [data.held_out_rows(name) for name in data.validation_by_source]
        self.rows_at_end = data.rows_at_end
        self.seconds = {"row": 0.0, "save": 0.0, "report": 0.0, "step": 0.0}

    @contextmanager
    def measuring(self, name: str, units: int = 1) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = (time.monotonic() - began) / units

    def of_ending(self, settings: TrainingSettings) -> float:
        """Seconds of the last two evaluations, the last checkpoint, the model's folder and the report."""
        rows = self.evaluation_rows(settings) + self.final_rows(settings)
        rows += sum(min(available, self.rows_per_source(settings)) for available in self.by_source)
        rows += self.rows_at_end
        cost = self.seconds
        return rows * cost["row"] + 1.5 * cost["save"] + cost["report"] + 0.5 * cost["step"]

    def evaluation_rows(self, settings: TrainingSettings) -> int:
        """Rows of an evaluation during the run."""
        return min(settings.evaluation_rows, self.held_out)

    def final_rows(self, settings: TrainingSettings) -> int:
        """Rows of the last evaluation: fewer than in the settings where they would exceed `FINAL_SHARE` of the time."""
        return min(self.held_out, self._affordable_rows(settings))

    def rows_per_source(self, settings: TrainingSettings) -> int:
        """Rows of the last evaluation for each source, in whole batches; together as many as that may have.

        One batch at least, or as many rows as the last evaluation where it is asked for fewer. The held-out rows may be
        those of the domain alone, while general text has more.
        """
        batches = self._affordable_rows(settings) // (HELD_OUT_BATCH * max(1, len(self.by_source)))
        return HELD_OUT_BATCH * batches if batches else min(HELD_OUT_BATCH, settings.final_evaluation_rows)

    def _affordable_rows(self, settings: TrainingSettings) -> int:
        wanted = settings.final_evaluation_rows
        if settings.minutes is None or not self.seconds["row"]:
            return wanted
        affordable = int(FINAL_SHARE * 60 * settings.minutes / self.seconds["row"])
        return min(wanted, max(self.evaluation_rows(settings), affordable))

    def evaluation_deadline(self, settings: TrainingSettings) -> float:
        """Seconds on the clock at which the last evaluation must end, so that model and report can follow."""
        if settings.minutes is None:
            return math.inf
        return (1 + OVERTIME) * 60 * settings.minutes - 0.5 * self.seconds["save"] - self.seconds["report"]


class Interrupts:
    """Catches stop signals: the first sets `requested`, which the run checks between two steps.

    The second raises KeyboardInterrupt at once; the run can then be resumed from its last checkpoint. `last_signal` is
    the last signal that any run of this process received. SIGHUP stays ignored under nohup.
    """

    last_signal = 0

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # signal handlers need the main thread
            for number in STOP_SIGNALS:
                if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        Interrupts.last_signal = number
        if number == HANGUP:
            leave_terminal()
        elif self.requested:
            raise KeyboardInterrupt
        self.requested = True


def leave_terminal() -> None:
    """Send output that went to a terminal nowhere: the terminal is gone, and writing to it would fail."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
