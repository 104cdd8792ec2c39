"""The check in several processes: each runs some of the cases and planted faults, and the results keep their order.

Processes are started anew (spawn) on every platform, because a fork would copy locks of the threads of NumPy and MLX.
A process finds cases and faults by their names, so parts of an extension, which it does not know, are not sent to it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

from glassbert.errors import GlassBertError
from glassbert.proof.cases import Case, all_cases
from glassbert.proof.mutants import Mutant, Verdict, all_mutants, judge
from glassbert.proof.referee import CaseResult, check_case

TOGETHER = 4  # tasks that a process takes at a time
WORTH = 25  # tasks for which a further process, which takes seconds to start, is worth it


class Task(NamedTuple):
    """A case, or a planted fault, by name."""

    name: str
    planted: bool
    use_mlx: bool
    every_entry: bool


def run_task(task: Task) -> CaseResult | Verdict:
    if task.planted:
        return judge(all_mutants()[task.name])
    return check_case(all_cases()[task.name], task.use_mlx, task.every_entry)


def count_for(workers: int, cases: list[Case], mutants: list[Mutant], device: str) -> int:
    """How many processes to use: one on a GPU, for few tasks, and for cases that are not in the tables."""
    known = all_cases()
    if device == "gpu" or any(known.get(case.name) is not case for case in cases):
        return 1
    return max(1, min(workers, (len(cases) + len(mutants)) // WORTH))


def run_in_processes(tasks: list[Task], workers: int, progress: Callable[[str], None]) -> list[CaseResult | Verdict]:
    """The results of all tasks, in their order; `progress` is called with the name of each that is done."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        return list(_results(pool.map(run_task, tasks, chunksize=TOGETHER), tasks, progress))
    except BrokenProcessPool as error:
        raise GlassBertError("a process of the check was ended from outside; `--workers 1` needs none") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _results(
    found: Iterator[CaseResult | Verdict], tasks: list[Task], progress: Callable[[str], None]
) -> Iterator[CaseResult | Verdict]:
    for task, result in zip(tasks, found, strict=True):
        progress(task.name)
        yield result
