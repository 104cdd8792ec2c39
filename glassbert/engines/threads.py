"""Run parts of a computation in parallel threads, each with single-threaded BLAS.

BLAS is always limited to one thread: the threads of a multi-threaded BLAS keep spinning for tens of milliseconds after
a product, on the cores that the next parts need.
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

from glassbert.engines.machine import usable_cores

Part = TypeVar("Part")
Result = TypeVar("Result")
_worker = threading.local()
_lock = threading.Lock()
_active = 0
_limiter: Any = None


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")  # others, such as OpenMP, are not ours to restore


def _free_control() -> None:
    """Let any thread set limits: threadpoolctl 3.8 ignores every thread but the first that has set one."""
    for library in _blas().lib_controllers:
        getattr(library, "clear_controlling_thread", lambda force: None)(force=True)


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="glassbert")


if hasattr(os, "register_at_fork"):  # a forked child inherits the pool but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread. Nested and concurrent uses are counted; the last exit restores the limits."""
    global _active, _limiter
    with _lock:
        if _active == 0:
            _free_control()
            _limiter = _blas().limit(limits=1, user_api="blas")
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if _active == 0:
                _free_control()  # the last to leave need not be the first who came
                _limiter.restore_original_limits()
                _free_control()


def threads_to_use() -> int:
    """The number of tasks that `run_together` would run in parallel from here: 1 inside a task."""
    return 1 if getattr(_worker, "busy", False) else getattr(_worker, "threads", usable_cores())


@contextlib.contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Set the number of threads for kernels called inside."""
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
        if hasattr(_worker, "threads"):  # inside `using_threads`, which limits BLAS already
            return [work(parts[0])]
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
            try:  # wait for every part before raising, so that none is still running afterwards
                results.append(futures[i - 1].result() if i else marked(parts[0]))
            except BaseException as raised:
                error = error or raised
        if error is not None:
            raise error
        return results
