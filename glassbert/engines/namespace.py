"""Which array library does this array belong to?

The mathematics is written once, over the array's own namespace: `xp = namespace(x)` is `numpy` for a NumPy
array and `mlx.core` for an MLX array. Both spell the functions used here the same way. `y += x` works in place on
NumPy and makes a new array on MLX, so readable code is also the fast code.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray or mlx.core.array; operations are written over both


def namespace(x: Array) -> ModuleType:
    if isinstance(x, (np.ndarray, np.generic)):
        return np
    mlx = sys.modules.get("mlx.core")
    if mlx is not None and isinstance(x, mlx.array):
        return mlx
    raise TypeError(f"expected a NumPy or MLX array, got {type(x).__name__}")


def is_numpy(x: Array) -> bool:
    return isinstance(x, (np.ndarray, np.generic))
