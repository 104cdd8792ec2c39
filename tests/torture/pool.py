"""Many processes: a part of the bench is a list of tasks, each of which returns lines of the table."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.torture.table import Line, describe, merged, write_table

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
              "RUST_BACKTRACE": "0", "PYTHONWARNINGS": "ignore"}  # fmt: skip
REPORT = 15.0  # seconds between lines of progress


@dataclass(frozen=True)
class Task:
    part: str
    function: Callable[..., list[Line]]
    arguments: tuple[Any, ...]

    def __call__(self) -> list[Line]:
        """The lines of the task. A missing package leaves it out; an error of the bench itself is a failure."""
        try:
            return self.function(*self.arguments)
        except Exception as error:
            if isinstance(error, ImportError) and error.name not in (None, "glassbert"):
                return [Line(self.part, "left out", said=f"it needs {error.name}")]
            line = Line(self.part, "the bench", tried=1)
            line.fail(f"{self.function.__name__}{self.arguments}: {describe(error)}")
            return [line]


def shares(count: int, most: int) -> Iterator[tuple[int, int]]:
    """(number, size) of shares of at most `most`, together `count`."""
    for number, begin in enumerate(range(0, count, most)):
        yield number, min(most, count - begin)


def run_tasks(tasks: list[Task], workers: int, output: Path | None, before: Sequence[Line] = ()) -> list[Line]:
    """Run all tasks and say from time to time how far they are; the lines of `before` come first in the table.

    A worker that dies is a failure of its task.
    """
    os.environ.update(ONE_THREAD)
    begun = said = time.monotonic()
    lines = list(before)
    done = dict.fromkeys((task.part for task in tasks), 0)
    total = {part: sum(task.part == part for task in tasks) for part in done}
    for task, found in _results(tasks, workers):
        lines = merged([*lines, *found])
        done[task.part] += 1
        finished = done[task.part] == total[task.part]
        if finished or time.monotonic() - said > REPORT:
            said = time.monotonic()
            state = ", ".join(f"{part} {100 * done[part] // total[part]} %" for part in done)
            failed = sum(line.failed for line in lines)
            tried = sum(line.tried for line in lines)
            print(f"{said - begun:6.0f} s  {state}; tried {tried:,}, failed {failed:,}", flush=True)
        if output is not None:
            write_table(output, lines)
    return lines


def _results(tasks: list[Task], workers: int) -> Iterator[tuple[Task, list[Line]]]:
    if workers < 2:
        yield from ((task, task()) for task in tasks)
        return
    waiting = list(tasks)
    while waiting:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _quietly) as pool:
            futures: dict[Future[list[Line]], Task] = {pool.submit(task): task for task in waiting}
            try:
                for future in as_completed(futures):
                    found = future.result()
                    waiting.remove(futures[future])
                    yield futures[future], found
            except BrokenProcessPool:  # all tasks that were running are lost; the first of them is not tried again
                lost = waiting.pop(0)
                line = Line(lost.part, "the process", tried=1)
                line.fail(f"a worker died; perhaps in {lost.function.__name__}{lost.arguments}")
                yield lost, [line]


def _quietly() -> None:
    """Ctrl-C ends the main process, and this one with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
