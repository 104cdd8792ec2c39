"""Make parts in worker processes, with a bounded queue.

Processes are started only if there are at least two units; a small corpus is built in the main process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from glassbert.errors import TextError
from glassbert.text.corpus.parts import Unit, make_part, write_part
from glassbert.text.corpus.settings import Settings

if TYPE_CHECKING:
    from glassbert.text.fast import FastTokenizer


@dataclass(frozen=True)
class Job:
    """The arguments that all units of a build share."""

    folder: Path  # of the parts
    tokenizer: Path
    fingerprint: str
    settings: Settings
    bands: tuple[int, int]


MakeParts = Callable[[Iterable[tuple[Unit, str]], Job, int], Iterator[int]]  # `make_all`, or its like elsewhere


def make(unit: Unit, digest: str, job: Job) -> int:
    """Make and write the part of a unit; returns the number of the unit."""
    tokenizer = _tokenizer(job.tokenizer, job.fingerprint)
    write_part(job.folder, unit.number, make_part(unit, digest, tokenizer, job.settings, job.bands))
    return unit.number


@cache
def _tokenizer(folder: Path, fingerprint: str) -> FastTokenizer:
    """Load the tokenizer once per process. `fingerprint` is part of the cache key: two builds may use one folder."""
    from glassbert.text.fast import load_tokenizer

    return load_tokenizer(folder)


def make_all(units: Iterable[tuple[Unit, str]], job: Job, workers: int) -> Iterator[int]:
    """Make the parts of all units; yields the number of each unit when its part is on disk."""
    units = iter(units)
    first = [unit for _, unit in zip(range(2 if workers > 1 else 1), units, strict=False)]
    if len(first) < 2:
        for unit, digest in chain(first, units):
            make(unit, digest, job)
            yield unit.number
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    waiting: deque[Future[int]] = deque()
    try:
        for unit, digest in chain(first, units):
            with _hidden_main_module():
                waiting.append(pool.submit(make, unit, digest, job))
            while len(waiting) > 2 * workers or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise TextError(
            "a worker process was killed, probably because memory ran out; finished parts are kept: run the same "
            "build again, with fewer --workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _hidden_main_module() -> Iterator[None]:
    """Hide the main script while processes are spawned.

    A spawned process imports the main script first, which would build the corpus again. Workers need only this package.
    `submit` spawns the processes.
    """
    script = sys.modules["__main__"]
    saved = {name: getattr(script, name, None) for name in ("__file__", "__spec__")}
    vars(script).update(dict.fromkeys(saved))
    try:
        yield
    finally:
        vars(script).update(saved)


def _start_worker() -> None:
    """Initialise a worker: ignore Ctrl-C, which the parent handles, and exit when the parent ends for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
