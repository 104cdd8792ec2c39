"""The MLX engine: Apple and NVIDIA GPUs, a step compiled as a whole.

Parameters are float32. With dtype "bfloat16" the arithmetic is done in bfloat16 on a copy made at the beginning of
the step, while norms' statistics, softmax, losses and embedding gradients stay in float32, and so do the parameters
that the optimizer moves.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

import glassbert.engines.mlx_kernels  # noqa: F401  (registers the fast kernels)
from glassbert.engines.parameters import Gradients, Layout
from glassbert.errors import EngineError

COMPUTE = {"float32": mx.float32, "bfloat16": mx.bfloat16}


class MlxDropout:
    """Dropout masks as a function of (seed, place). The seed is an array, so that a compiled step can take it."""

    def __init__(self, seed: int | mx.array):
        self.key = seed if isinstance(seed, mx.array) else mx.random.key(seed)

    def from_row(self, first_row: int) -> MlxDropout:
        return self

    def keep(self, place: str, shape: tuple[int, ...], rate: float, row: int = 0) -> mx.array:
        key = self.key + mx.array([zlib.crc32(place.encode()), row], dtype=mx.uint32)
        return mx.random.bernoulli(1.0 - rate, shape, key=key)


class MlxEngine:
    """Arrays and precision of MLX. A batch is never split: the device is one."""

    name = "mlx"
    compiles = True
    threads = 1

    def __init__(self, dtype: str = "float32"):
        if dtype not in COMPUTE:
            raise EngineError(
                f"the MLX engine computes in float32 or bfloat16, not {dtype!r}; float64 needs engine='numpy'"
            )
        self.xp = mx
        self.dtype_name = dtype
        self.dtype = mx.float32
        self.compute_dtype = COMPUTE[dtype]

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
        return {name: value.astype(self.compute_dtype) for name, value in parameters.items()}

    def dropout(self, seed: int | mx.array) -> MlxDropout:
        return MlxDropout(seed)

    def split(self, batch: int, tokens: np.ndarray | None = None) -> list[slice]:
        return [slice(0, batch)]
