"""Threads: several parts of a computation side by side, each with a BLAS of one thread.

A multi-threaded BLAS is never asked to help: its own threads go on spinning for tens of milliseconds after a product,
on the very cores that the next parts need.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Part = TypeVar("Part")
Result = TypeVar("Result")
_worker = threading.local()
_lock = threading.Lock()
_inside = 0
_limiter: Any = None


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="glassbert")


if hasattr(os, "register_at_fork"):  # a forked child inherits the pool but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """While inside, a product uses one thread; the last one out restores what was before."""
    global _inside, _limiter
    with _lock:
        if _inside == 0:
            _limiter = _blas().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limiter.restore_original_limits()


def threads_to_use() -> int:
    """How many tasks `run_together` would run side by side from here: 1 inside a task."""
    return 1 if getattr(_worker, "busy", False) else getattr(_worker, "threads", usable_cores())


@contextlib.contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let the kernels called from here split their work into so many parts."""
    before = getattr(_worker, "threads", None)
    _worker.threads = threads
    try:
        with single_threaded_blas():
            yield
    finally:
        if before is None:
            del _worker.threads
        else:
            _worker.threads = before


def run_together(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """work(part) for all parts, side by side, in their order. Inside such a task, one after the other.

    Every task runs in a copy of the caller's context, where `np.errstate` is kept.
    """
    if getattr(_worker, "busy", False):
        return [work(part) for part in parts]
    if len(parts) == 1:
        with single_threaded_blas():
            return [work(parts[0])]

    def marked(part: Part) -> Result:
        _worker.busy = True
        try:
            return work(part)
        finally:
            _worker.busy = False

    with single_threaded_blas():
        futures = [_pool(len(parts) - 1).submit(contextvars.copy_context().run, marked, part) for part in parts[1:]]
        results: list[Result] = []
        error: BaseException | None = None
        for i in range(len(parts)):
            try:  # every part ends before anybody hears of a failure: none may go on behind the caller's back
                results.append(futures[i - 1].result() if i else marked(parts[0]))
            except BaseException as raised:
                error = error or raised
        if error is not None:
            raise error
        return results
