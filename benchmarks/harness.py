"""Rounds that can be trusted: contenders take turns, disturbed rounds are repeated, medians have intervals.

    times = interleave({"ours": turn, "theirs": other_turn}, rounds=9)
    speed = Spread.of_ratio(times["theirs"], times["ours"])
    print(speed.text(), times.note())

In a round every contender takes its turn, so a slow phase of the machine affects all of them. Before the first turn and
after each turn a control is timed: a fixed small computation on all cores. A round is disturbed if a control in it is
more than 12 % slower than the lower quartile of all controls. Disturbed rounds are repeated; when as many further
rounds as were asked for are spent, the least disturbed ones fill the gaps and are counted.

A ratio is taken within a round. Its median over rounds is reported, with the 95 % bootstrap interval of that median:

    rᵢ = aboveᵢ / belowᵢ        ratio = median(r)        interval = quantiles of median(r*), r* drawn from r
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.engines.machine import usable_cores
from glassbert.engines.threads import single_threaded_blas

SETTLE = 0.05  # seconds between two contenders, so that threads of the first stop spinning
LEVEL = 0.95  # of an interval
RESAMPLES = 4000
DISTURBED = 1.12  # a control above this multiple of the quiet one
FEWEST = 3  # rounds, whatever the deadline is


# ---- the control ---------------------------------------------------------------------------------------------------


class Control:
    """A fixed computation of about 10 ms on every core; calling it returns its seconds."""

    SIZE, REPEATS = 192, 32

    def __init__(self, cores: int | None = None):
        self.cores = cores or usable_cores()
        rng = np.random.default_rng(0)
        self._inputs = [rng.random((self.SIZE, self.SIZE), np.float32) for _ in range(self.cores)]
        self._pool = ThreadPoolExecutor(self.cores)
        for _ in range(3):
            self()

    def __call__(self) -> float:
        with single_threaded_blas():
            start = time.perf_counter()
            list(self._pool.map(self._work, self._inputs))
            return time.perf_counter() - start

    def _work(self, x: np.ndarray) -> None:
        for _ in range(self.REPEATS):
            np.tanh(x @ x)


@functools.cache
def default_control() -> Control:
    return Control()


# ---- rounds --------------------------------------------------------------------------------------------------------


class Rounds(dict[str, list[float]]):
    """The results of the kept rounds by contender, and what became of the others.

    repeated    rounds that were disturbed and left out
    disturbed   rounds that are kept although they were disturbed, because there were no better ones
    """

    repeated: int = 0
    disturbed: int = 0

    @property
    def count(self) -> int:
        return len(next(iter(self.values()), []))

    def facts(self) -> dict[str, int]:
        """For the JSON report."""
        return {"rounds": self.count, "repeated_rounds": self.repeated, "disturbed_rounds": self.disturbed}

    def note(self) -> str:
        """For the table."""
        more = f", {self.repeated} disturbed ones repeated" if self.repeated else ""
        more += f", {self.disturbed} disturbed ones kept" if self.disturbed else ""
        return f"Medians of {self.count} rounds{more}; {INTERVAL_NOTE}."


INTERVAL_NOTE = f"a ratio is taken within a round (low – high: {LEVEL:.0%} bootstrap interval of the median)"


@dataclass
class _Round:
    values: dict[str, float]
    controls: list[float]


def interleave(
    turns: Mapping[str, Callable[[], float]],
    rounds: int,
    settle: float = SETTLE,
    deadline: float | None = None,
    *,
    mirrored: bool = False,
    control: Callable[[], float] | str | None = "default",
) -> Rounds:
    """Let every function take its turn in each round; returns their results by name.

    settle      seconds of rest before a turn
    deadline    of `time.monotonic`: no further round begins after it, but there are always at least three
    mirrored    every round goes forth and back (A B B A), and a result is the mean of both: a drift cancels out
    control     returns the seconds of a fixed computation; None: no round is left out
    """
    measure = default_control() if control == "default" else control
    made: list[_Round] = []
    while len(made) < (2 * rounds if callable(measure) else rounds):
        if deadline is not None and len(made) >= FEWEST and time.monotonic() > deadline:
            break
        _, kept, _ = choose_rounds([one.controls for one in made], rounds)
        if kept >= rounds:
            break
        made.append(_one_round(turns, settle, mirrored, measure, f"round {kept + 1} of {rounds}"))
    show_progress("")
    chosen, _, disturbed = choose_rounds([one.controls for one in made], rounds)
    found = Rounds({name: [made[i].values[name] for i in chosen] for name in turns})
    found.repeated, found.disturbed = len(made) - len(chosen), disturbed
    return found


def _one_round(
    turns: Mapping[str, Callable[[], Any]], settle: float, mirrored: bool, control: Any, what: str
) -> _Round:
    order = [*turns, *reversed(turns)] if mirrored else list(turns)
    controls = [control()] if control is not None else []
    results: dict[str, list[Any]] = {name: [] for name in turns}
    for name in order:
        show_progress(f"{what}: {name}")
        time.sleep(settle)
        results[name].append(turns[name]())
        if control is not None:
            time.sleep(settle)
            controls.append(control())
    return _Round({name: statistics.fmean(v) if mirrored else v[0] for name, v in results.items()}, controls)


def choose_rounds(controls: Sequence[Sequence[float]], wanted: int) -> tuple[list[int], int, int]:
    """The indices of the rounds to keep; how many of all are undisturbed; how many kept ones are disturbed.

    Undisturbed rounds come first, then the least disturbed ones, until there are `wanted`.
    """
    every = [value for one in controls for value in one]
    if not every:
        count = min(wanted, len(controls))
        return list(range(count)), count, 0
    quiet = float(np.quantile(every, 0.25))
    slowest = [max(one) / quiet for one in controls]
    calm = [i for i, one in enumerate(slowest) if one <= DISTURBED]
    restless = sorted((i for i, one in enumerate(slowest) if one > DISTURBED), key=slowest.__getitem__)
    filled = restless[: max(0, wanted - len(calm))]
    return sorted([*calm[:wanted], *filled]), len(calm), len(filled)


def timed(
    step: Callable[[int], object], steps: int, finish: Callable[[], object] = lambda: None, warmup: int = 1
) -> float:
    """Seconds per step over `steps` calls of `step(i)`, after `warmup` calls; `finish` waits for the device."""
    for i in range(warmup):
        step(i)
    finish()
    start = time.perf_counter()
    for i in range(steps):
        step(i)
    finish()
    return (time.perf_counter() - start) / steps


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of a single call."""
    return timed(lambda _: work(), 1, warmup=0)


# ---- medians -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A median over rounds, and the bootstrap interval of this median."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], level: float = LEVEL) -> Spread:
        return cls(statistics.median(values), *median_interval(values, level))

    @classmethod
    def of_ratio(cls, above: Sequence[float], below: Sequence[float], level: float = LEVEL) -> Spread:
        """The median of the ratio within a round, not the ratio of the medians."""
        return cls.of([a / b for a, b in zip(above, below, strict=True)], level)

    @property
    def range(self) -> list[float]:
        return [rounded(self.low), rounded(self.high)]

    def text(self, digits: int = 2, unit: str = "") -> str:
        return f"{self.median:.{digits}f}{unit} ({self.low:.{digits}f} – {self.high:.{digits}f})"


def median_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The interval of the median by resampling the values; the same for the same values."""
    given = np.asarray(values, np.float64)
    drawn = np.random.default_rng(len(given)).integers(0, len(given), (RESAMPLES, len(given)))
    medians = np.median(given[drawn], axis=1)  # [resamples]
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def rounded(value: float) -> float:
    """Rounded to four significant digits."""
    return float(f"{value:.4g}")


# ---- options and progress ------------------------------------------------------------------------------------------


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json` prints one line at the end, `--json FILE` writes the file."""
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="the numbers as JSON: in FILE, or as the last line"
    )


def count(text: str) -> int:
    """The type of an option: a whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def show_progress(text: str) -> None:
    """Show a status line, which the next one overwrites; only on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
