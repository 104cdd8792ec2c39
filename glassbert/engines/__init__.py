"""Engines: NumPy and MLX behind the same methods. An engine owns its kernels; nothing is process-wide."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from glassbert.arrays import Array, Gradients, Layout, namespace
from glassbert.engines.kernels import KERNEL_SETS, Operations, Source, State, which
from glassbert.engines.machine import recommended_engine
from glassbert.engines.numpy_engine import NumpyEngine
from glassbert.errors import EngineError, needs

ENGINES = ("auto", "numpy", "mlx")


class DropoutSource(Protocol):
    """Dropout masks of one pass: the same name, shape and row give the same mask again."""

    def from_row(self, first_row: int) -> DropoutSource:
        """The masks of a batch that begins at this row."""

    def for_all_rows(self) -> DropoutSource:
        """The masks of what all rows of the batch share: the same for every part of it."""

    def mask(self, name: str, shape: tuple[int, ...], rate: float, row: int = 0) -> Array:
        """A boolean mask, true where a value is kept."""

    def uniform(self, name: str, shape: tuple[int, ...]) -> Array:
        """Numbers in [0, 1), for sampling."""


class Engine(Protocol):
    """What models need from an engine."""

    name: str
    dtype_name: str
    kernels: str
    threads: int
    limits_blas: bool  # whether a pass holds BLAS to one thread
    compiles: bool  # whether a training step is compiled as a whole
    bytes_kept: int  # of one number of an activation that waits for the backward
    ops: Operations

    @property
    def dtype(self) -> Any: ...
    @property
    def xp(self) -> Any: ...
    def with_kernels(self, kernels: str) -> Any: ...
    def with_operations(self, replaced: Mapping[str, Any]) -> Any: ...
    def array(self, values: Any) -> Array: ...
    def integers(self, values: Any) -> Array: ...
    def to_numpy(self, array: Any) -> np.ndarray: ...
    def parameters(self, layout: Layout) -> Any: ...
    @property
    def gradients(self) -> Callable[[Layout], Gradients]: ...
    def for_computing(self, parameters: Mapping[str, Array]) -> Mapping[str, Array]: ...
    def dropout(self, seed: Any) -> DropoutSource: ...
    def split(self, batch: int, tokens: np.ndarray | None = None) -> list[slice]: ...


def get_engine(
    engine: Any = "auto", dtype: str = "float32", threads: int | None = None, kernels: str = "fast"
) -> Engine:
    """The engine of that name. `auto` takes MLX on Apple silicon and CUDA, NumPy elsewhere and for float64.

    `kernels="plain"` runs the operations as they are written in `glassbert.ops`.
    """
    if hasattr(engine, "ops"):
        return engine
    if engine not in ENGINES:
        raise EngineError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    dtype = str(dtype)  # np.dtype("float64") equals its name, but is not the key of a table
    if engine == "auto":
        engine = "numpy" if dtype == "float64" else recommended_engine()
    if engine == "numpy":
        return NumpyEngine(dtype, threads, kernels)
    if importlib.util.find_spec("mlx") is None:
        raise EngineError(needs("engine 'mlx'", "mlx[cpu]" if sys.platform == "linux" else "mlx"))
    from glassbert.engines.mlx_engine import MlxEngine

    return MlxEngine(dtype, kernels)


__all__ = [
    "ENGINES",
    "KERNEL_SETS",
    "Array",
    "DropoutSource",
    "Engine",
    "NumpyEngine",
    "Operations",
    "Source",
    "State",
    "get_engine",
    "namespace",
    "which",
]
