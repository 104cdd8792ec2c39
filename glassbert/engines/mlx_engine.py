"""The MLX engine: Apple and NVIDIA GPUs, a step compiled as a whole.

Parameters are float32. With dtype "bfloat16" the arithmetic is done in bfloat16 on a copy made at the beginning of
the step, while norms' statistics, softmax, losses and embedding gradients stay in float32, and so do the parameters
that the optimizer moves.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from glassbert.arrays import Gradients, Layout
from glassbert.engines import (
    mlx_many,
    mlx_quantized,  # noqa: F401 (enters its kernels)
)
from glassbert.engines.kernels import KERNEL_SETS, Kernels, Operations
from glassbert.engines.mlx_cuda.launch import on_cuda
from glassbert.engines.mlx_kernels import KERNELS
from glassbert.errors import EngineError

COMPUTE = {"float32": mx.float32, "bfloat16": mx.bfloat16}


class MlxDropout:
    """Dropout masks as a function of (seed, name). The seed is an array, so that a compiled step can take it."""

    def __init__(self, seed: int | mx.array):
        self.key = seed if isinstance(seed, mx.array) else mx.random.key(seed)

    def from_row(self, first_row: int) -> MlxDropout:
        return self

    def for_all_rows(self) -> MlxDropout:
        return self

    def mask(self, name: str, shape: tuple[int, ...], rate: float, row: int = 0) -> mx.array:
        key = self.key + mx.array([zlib.crc32(name.encode()), row], dtype=mx.uint32)
        return mx.random.bernoulli(1.0 - rate, shape, key=key)

    def uniform(self, name: str, shape: tuple[int, ...]) -> mx.array:
        key = self.key + mx.array([zlib.crc32(name.encode()), 0], dtype=mx.uint32)
        return mx.random.uniform(shape=shape, key=key)


class MlxEngine:
    """Arrays, precision and kernels of MLX. A batch is never split over threads."""

    name = "mlx"
    compiles = True
    threads = 1
    limits_blas = False

    def __init__(self, dtype: str = "float32", kernels: str = "fast"):
        if dtype not in COMPUTE:
            raise EngineError(
                f"the MLX engine computes in float32 or bfloat16, not {dtype!r}; float64 needs engine='numpy'"
            )
        if kernels not in KERNEL_SETS:
            raise EngineError(f"unknown kernels {kernels!r}; choose one of {', '.join(KERNEL_SETS)}")
        self.kernels = kernels
        self.ops = Operations(KERNELS if kernels == "fast" else {})
        self.many = mlx_many if kernels == "fast" and on_cuda() else None
        self.xp = mx
        self.dtype_name = dtype
        self.dtype = mx.float32
        self.compute_dtype = COMPUTE[dtype]
        self.bytes_kept = self.compute_dtype.size

    def with_kernels(self, kernels: str) -> MlxEngine:
        """This engine with other kernels."""
        return self if kernels == self.kernels else MlxEngine(self.dtype_name, kernels)

    def with_operations(self, replaced: Kernels) -> MlxEngine:
        """This engine with single functions replaced, by the names of operations or their backwards."""
        engine = copy.copy(self)
        engine.ops = Operations(KERNELS if self.kernels == "fast" else {}, replaced)
        return engine

    def __deepcopy__(self, memo: Any) -> MlxEngine:
        return self  # it holds no data of a model

    def __reduce__(self) -> Any:
        return MlxEngine, (self.dtype_name, self.kernels)

    def array(self, values: Any) -> mx.array:
        return values if isinstance(values, mx.array) else mx.array(np.asarray(values, dtype=np.float32))

    def integers(self, values: Any) -> mx.array:
        return values if isinstance(values, mx.array) else mx.array(np.asarray(values, dtype=np.int32))

    def to_numpy(self, array: Any) -> np.ndarray:
        if isinstance(array, mx.array):
            if array.dtype == mx.bfloat16:
                array = array.astype(mx.float32)
            return np.array(array)
        return np.asarray(array)

    def parameters(self, layout: Layout) -> dict[str, mx.array]:
        return {name: mx.zeros(shape, dtype=mx.float32) for name, shape in layout.shapes.items()}

    def gradients(self, layout: Layout) -> Gradients:
        return Gradients(layout.shapes)

    def for_computing(self, parameters: Mapping[str, mx.array]) -> Mapping[str, mx.array]:
        if self.compute_dtype == mx.float32:
            return parameters
        if self.many is None:
            return {name: value.astype(self.compute_dtype) for name, value in parameters.items()}
        small = {name: value for name, value in parameters.items() if self.many.small(value)}
        cast = self.many.each("y = x;", {"x": list(small.values())}, {}, {"y": self.compute_dtype})["y"]
        together = dict(zip(small, cast, strict=True))
        return {n: together[n] if n in together else v.astype(self.compute_dtype) for n, v in parameters.items()}

    def dropout(self, seed: int | mx.array) -> MlxDropout:
        return MlxDropout(seed)

    def split(self, batch: int, tokens: np.ndarray | None = None) -> list[slice]:
        return [slice(0, batch)]
