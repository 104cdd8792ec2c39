"""The NumPy engine: float32, float64 or bfloat16 products on the CPU, a batch spread over threads.

One thread takes one part of the batch from the first layer to the last, with a single-threaded BLAS; that keeps its
activations in its own cache and needs two synchronisations a step instead of hundreds. What cannot be split by rows
(the scores of a large vocabulary, a single long sequence) the kernels split by columns or heads.

With dtype "bfloat16" parameters, sums, softmax, norms and losses are float32, and the factors of matrix products are
rounded to bfloat16 (`bfloat16_kernels.py`). That needs oneDNN and a processor with such instructions; elsewhere the
engine computes in float32 and says so once.

With `kernels="plain"` the operations run as they are written in `glassbert.ops`, in the calling thread and with NumPy's
own BLAS threads, unless a number of threads is given.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import hashlib
import math
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import FlatArrays, FlatGradients, Layout
from glassbert.engines import (
    linear_kernels,  # noqa: F401 (enters its kernels)
    onednn,
    quantized_kernels,  # noqa: F401 (enters its kernels)
    tiled_kernels,  # noqa: F401 (enters its kernels)
)
from glassbert.engines.kernels import KERNEL_SETS, Kernels, Operations
from glassbert.engines.machine import usable_cores
from glassbert.engines.numpy_kernels import KERNELS
from glassbert.errors import EngineError


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


class NumpyDropout:
    """Dropout masks as a pure function of (seed, name, row): the same for any number of threads."""

    def __init__(self, seed: int, first_row: int = 0):
        self.seed = seed
        self.first_row = first_row

    def from_row(self, first_row: int) -> NumpyDropout:
        return NumpyDropout(self.seed, self.first_row + first_row)

    def for_all_rows(self) -> NumpyDropout:
        return NumpyDropout(self.seed)

    def mask(self, name: str, shape: tuple[int, ...], rate: float, row: int = 0) -> np.ndarray:
        size = math.prod(shape[1:])
        first = self.first_row + row
        starts = [_start(f"{self.seed}/{name}/{first + i}") for i in range(shape[0])]
        numbers = splitmix(np.array(starts, np.uint64)[:, None], -(-size // 4))  # [rows, size / 4] of 64 bits
        return (numbers.view(np.uint16)[:, :size] >= round(rate * 65536)).reshape(shape)

    def uniform(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        starts = [_start(f"{self.seed}/{name}/{self.first_row + i}") for i in range(shape[0])]
        numbers = splitmix(np.array(starts, np.uint64)[:, None], math.prod(shape[1:]))
        return ((numbers >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _start(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def splitmix(start: np.ndarray, count: int) -> np.ndarray:
    """`count` random 64-bit numbers after each start: the SplitMix64 generator, which needs no state but a counter."""
    z = start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    scratch = z >> np.uint64(30)
    z ^= scratch
    z *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(z, np.uint64(27), out=scratch)
    z ^= scratch
    z *= np.uint64(0x94D049BB133111EB)
    np.right_shift(z, np.uint64(31), out=scratch)
    z ^= scratch
    return z


class NumpyEngine:
    """Arrays, threads, precision and kernels of NumPy."""

    name = "numpy"
    compiles = False

    def __init__(self, dtype: str = "float32", threads: int | None = None, kernels: str = "fast"):
        if dtype not in ("float32", "float64", "bfloat16"):
            raise EngineError(f"the NumPy engine computes in float32, float64 or bfloat16, not {dtype!r}")
        is_count = isinstance(threads, int | np.integer) and not isinstance(threads, bool) and threads >= 1
        if threads is not None and not is_count:
            raise EngineError(f"threads must be a whole number of at least 1, got {threads!r}")
        if kernels not in KERNEL_SETS:
            raise EngineError(f"unknown kernels {kernels!r}; choose one of {', '.join(KERNEL_SETS)}")
        keep_freed_memory()
        if dtype == "bfloat16" and onednn.why_not():
            warnings.warn(f"precision is float32, not bfloat16: {onednn.why_not()}", stacklevel=2)
            dtype = "float32"
        self.xp = np
        self.dtype_name = dtype
        self.dtype = np.dtype("float64" if dtype == "float64" else "float32")
        # bfloat16: float32, and a rounded copy of about half of the numbers
        self.bytes_kept = {"float32": 4, "float64": 8, "bfloat16": 5}[dtype]
        self.kernels = kernels
        self.limits_blas = kernels == "fast" or threads is not None
        self.threads = int(threads or (usable_cores() if kernels == "fast" else 1))
        self.ops = Operations(self._kernels())
        self.gradients = functools.partial(FlatGradients, dtype=self.dtype)

    def _kernels(self) -> Kernels:
        if self.kernels == "plain":
            return {}
        if self.dtype_name != "bfloat16":
            return KERNELS
        from glassbert.engines import bfloat16_kernels

        return bfloat16_kernels.KERNELS

    def with_kernels(self, kernels: str) -> NumpyEngine:
        """This engine with other kernels."""
        return self if kernels == self.kernels else NumpyEngine(self.dtype_name, None, kernels)

    def with_operations(self, replaced: Kernels) -> NumpyEngine:
        """This engine with single functions replaced, by the names of operations or their backwards."""
        engine = copy.copy(self)
        engine.ops = Operations(self._kernels(), replaced)
        return engine

    def __deepcopy__(self, memo: Any) -> NumpyEngine:
        return self  # it holds no data of a model

    def __reduce__(self) -> Any:
        return NumpyEngine, (self.dtype_name, self.threads, self.kernels)

    def array(self, values: Any) -> np.ndarray:
        return np.asarray(values, dtype=self.dtype, order="C")

    def integers(self, values: Any) -> np.ndarray:
        return np.asarray(values, dtype=np.intp, order="C")

    def to_numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def parameters(self, layout: Layout) -> FlatArrays:
        return FlatArrays(layout, self.dtype)

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
