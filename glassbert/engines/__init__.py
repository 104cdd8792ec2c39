"""Who computes: NumPy or MLX, behind the same few methods."""

from __future__ import annotations

import importlib.util
from typing import Any

from glassbert.engines.machine import recommended_engine
from glassbert.engines.namespace import Array, namespace
from glassbert.engines.numpy_engine import NumpyEngine
from glassbert.errors import EngineError

ENGINES = ("auto", "numpy", "mlx")


def get_engine(engine: Any = "auto", dtype: str = "float32", threads: int | None = None) -> Any:
    """The engine of that name. `auto` takes MLX on Apple silicon and CUDA, NumPy elsewhere and for float64."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise EngineError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    if engine == "auto":
        engine = "numpy" if dtype == "float64" else recommended_engine()
    if engine == "numpy":
        return NumpyEngine(dtype, threads)
    if importlib.util.find_spec("mlx") is None:
        raise EngineError("engine 'mlx' needs the package MLX: pip install 'glassbert[mlx]'")
    from glassbert.engines.mlx_engine import MlxEngine

    return MlxEngine(dtype)


__all__ = ["ENGINES", "Array", "NumpyEngine", "get_engine", "namespace"]
