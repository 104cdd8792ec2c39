"""The NumPy engine: float32 or float64 on the CPU, a batch spread over threads.

One thread works on one part of the batch from the first layer to the last, with a single-threaded BLAS; that keeps
its activations in its own cache and needs two meetings a step instead of hundreds. What is not split (the scores of a
large vocabulary, a single long sequence) runs on a multi-threaded BLAS.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from glassbert.engines.parameters import FlatArrays, FlatGradients, Layout
from glassbert.errors import EngineError

Result = TypeVar("Result")
_worker = threading.local()


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


@functools.cache
def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory for the next array instead of returning it to the system page by page.

    A training step frees and allocates the same sizes again and again; without this a quarter of its time goes
    into page faults. Elsewhere than on glibc nothing happens.
    """
    if sys.platform != "linux" or "GLASSBERT_PLAIN_MALLOC" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    trim_threshold, mmap_threshold = -1, -3
    mallopt(mmap_threshold, 1 << 30)
    mallopt(trim_threshold, (1 << 31) - 1)


def run_together(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run the tasks side by side, each with a BLAS of one thread; a single task has the whole BLAS for itself."""
    if len(tasks) == 1 or getattr(_worker, "busy", False):
        return [task() for task in tasks]

    def marked(task: Callable[[], Result]) -> Result:
        _worker.busy = True
        try:
            return task()
        finally:
            _worker.busy = False

    with _blas().limit(limits=1, user_api="blas"):
        futures = [_pool(len(tasks) - 1).submit(marked, task) for task in tasks[1:]]
        first: Any = None
        error: BaseException | None = None
        try:
            first = marked(tasks[0])
        except BaseException as raised:  # the others must end before BLAS gets its threads back
            error = raised
        results = []
        for future in futures:
            try:
                results.append(future.result())
            except BaseException as raised:
                error = error or raised
        if error is not None:
            raise error
        return [first, *results]


class NumpyDropout:
    """Dropout masks as a pure function of (seed, place, row): the same for any number of threads."""

    def __init__(self, seed: int, first_row: int = 0):
        self.seed = seed
        self.first_row = first_row

    def from_row(self, first_row: int) -> NumpyDropout:
        return NumpyDropout(self.seed, self.first_row + first_row)

    def keep(self, place: str, shape: tuple[int, ...], rate: float, row: int = 0) -> np.ndarray:
        threshold = round(rate * 65536)
        key = int.from_bytes(hashlib.blake2b(f"{self.seed}/{place}".encode(), digest_size=16).digest(), "little")
        size = int(np.prod(shape[1:], dtype=np.int64))
        keep = np.empty((shape[0], size), dtype=np.bool_)
        for i in range(shape[0]):
            source = np.random.Philox(key=key, counter=(self.first_row + row + i) << 192)
            bits = source.random_raw(-(-size // 4)).view(np.uint16)[:size]
            np.greater_equal(bits, threshold, out=keep[i])
        return keep.reshape(shape)


class NumpyEngine:
    """Arrays, threads and precision of NumPy."""

    name = "numpy"
    compiles = False

    def __init__(self, dtype: str = "float32", threads: int | None = None):
        if dtype not in ("float32", "float64"):
            raise EngineError(
                f"the NumPy engine computes in float32 or float64, not {dtype!r}; bfloat16 needs engine='mlx'"
            )
        if threads is not None and threads < 1:
            raise EngineError(f"threads must be at least 1, got {threads}")
        keep_freed_memory()
        self.xp = np
        self.dtype_name = dtype
        self.dtype = np.dtype(dtype)
        self.threads = threads or usable_cores()

    def array(self, values: Any) -> np.ndarray:
        return np.ascontiguousarray(values, dtype=self.dtype)

    def integers(self, values: Any) -> np.ndarray:
        return np.ascontiguousarray(values, dtype=np.intp)

    def to_numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def parameters(self, layout: Layout) -> FlatArrays:
        return FlatArrays(layout, self.dtype)

    def gradients(self, layout: Layout) -> FlatGradients:
        return FlatGradients(layout, self.dtype)

    def for_computing(self, parameters: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return parameters

    def dropout(self, seed: int) -> NumpyDropout:
        return NumpyDropout(seed)

    def split(self, batch: int, tokens: np.ndarray | None = None) -> list[slice]:
        """The rows of a batch as one run for every thread, with about the same number of tokens each."""
        parts = min(self.threads, batch)
        weights = np.ones(batch) if tokens is None else np.maximum(tokens, 1)
        reached = np.cumsum(weights)
        edges = [0]
        for i in range(1, parts):
            edge = int(np.searchsorted(reached, reached[-1] * i / parts - 1e-9)) + 1
            edges.append(min(max(edge, edges[-1] + 1), batch - (parts - i)))
        return [slice(a, b) for a, b in zip(edges, [*edges[1:], batch], strict=True)]
