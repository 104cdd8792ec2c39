"""The parts of the bench as functions that a process of the pool can be asked for."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.torture.costs import verification_cost
from tests.torture.flips import flip_bits
from tests.torture.fuzz import fuzz_files
from tests.torture.jobs import JOBS, UNLOCKED
from tests.torture.kills import fill_disk, kill_jobs, share_folder
from tests.torture.masks import random_masks
from tests.torture.pool import Task
from tests.torture.soak import soak
from tests.torture.strings import hostile_strings
from tests.torture.subjects import Subject, make_fuzzed, make_subjects
from tests.torture.table import Line

__all__ = ["SHARED", "soak", "tasks_for_jobs", "verification_cost"]


@functools.cache
def _subjects(make: Callable[[Path], list[Subject]]) -> list[Subject]:
    """Made once in each process."""
    folder = tempfile.mkdtemp(prefix="glassbert-torture-")
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return make(Path(folder))


def flips(count: int, seed: int, number: int) -> list[Line]:
    return flip_bits(_subjects(make_subjects), count, seed, number)


def fuzz(count: int, seed: int, number: int) -> list[Line]:
    """A share of the files, of one kind: the kinds take turns."""
    subjects = _subjects(make_fuzzed)
    return fuzz_files([subjects[number % len(subjects)]], count, seed, number)


# name -> (function of count, seed and number; the largest count of one task)
SHARED: dict[str, tuple[Callable[[int, int, int], list[Line]], int]] = {
    "flips": (flips, 250),
    "fuzz": (fuzz, 500),
    "strings": (hostile_strings, 20_000),
    "masks": (random_masks, 500),
}
OF_JOBS = {"kills": (kill_jobs, 7), "disk": (fill_disk, 2), "processes": (share_folder, 2)}


def tasks_for_jobs(part: str, count: int, seed: int) -> list[Task]:
    """The count divided over all commands, in small shares."""
    function, most = OF_JOBS[part]
    jobs = [job for job in JOBS if part != "processes" or job not in UNLOCKED]
    each = -(-count // len(jobs))
    return [
        Task(part, function, (job, min(most, each - begin), f"{seed} {begin}"))
        for begin in range(0, each, most)
        for job in jobs
    ]
