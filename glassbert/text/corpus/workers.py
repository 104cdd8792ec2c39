"""Processes that make parts, fed no faster than they work.

They are started only when there is a second unit: a small corpus is made where it is asked for.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
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
    """What every unit of a build has in common."""

    folder: Path  # where parts go
    tokenizer: Path
    fingerprint: str
    settings: Settings
    bands: tuple[int, int]


def make(unit: Unit, digest: str, job: Job) -> int:
    tokenizer = _tokenizer(job.tokenizer, job.fingerprint)
    write_part(job.folder, unit.number, make_part(unit, digest, tokenizer, job.settings, job.bands))
    return unit.number


@cache
def _tokenizer(folder: Path, fingerprint: str) -> FastTokenizer:
    """Opened once; the fingerprint tells apart what two builds in one process put into the same folder."""
    from glassbert.text.fast import load_tokenizer

    return load_tokenizer(folder)


def make_all(units: Iterable[tuple[Unit, str]], job: Job, workers: int) -> Iterator[int]:
    """Make the parts of all units; gives the number of each unit whose part is on disk."""
    units = iter(units)
    begun = [unit for _, unit in zip(range(2 if workers > 1 else 1), units, strict=False)]
    if len(begun) < 2:
        for unit, digest in chain(begun, units):
            make(unit, digest, job)
            yield unit.number
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    waiting: deque[Future[int]] = deque()
    try:
        for unit, digest in chain(begun, units):
            with _script_hidden():
                waiting.append(pool.submit(make, unit, digest, job))
            while len(waiting) > 2 * workers or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise TextError(
            "a worker process was killed, most likely for want of memory; what is done is kept: run the same build "
            "again, with fewer --workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _script_hidden() -> Iterator[None]:
    """A spawned process first imports the script that was run, which would build the corpus once more.

    Everything that a worker needs is in this package. Processes are spawned when there is work for them.
    """
    script = sys.modules["__main__"]
    shown = {name: getattr(script, name, None) for name in ("__file__", "__spec__")}
    vars(script).update(dict.fromkeys(shown))
    try:
        yield
    finally:
        vars(script).update(shown)


def _begin() -> None:
    """A worker leaves Ctrl-C to the process that started it, and ends when that one is gone, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
