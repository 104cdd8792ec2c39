"""What an optimizer may be given: settings within their ranges, and a saved state that fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.errors import TrainingError


def check_fit(what: str, wanted: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray]) -> None:
    """An error that names the first array that is missing, unknown or of another shape."""
    for name in [*wanted, *arrays]:
        if name not in arrays:
            raise TrainingError(f"{what} has no {name!r}; it was saved by another optimizer or for another model")
        if name not in wanted:
            raise TrainingError(f"{what} has {name!r}, which belongs to another optimizer or another model")
        if tuple(arrays[name].shape) != wanted[name]:
            raise TrainingError(f"{what}: {name!r} has the shape {arrays[name].shape}, and {wanted[name]} is needed")


def _number(low: float, high: float = math.inf) -> Any:
    def fits(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < high

    return fits


def _betas(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(_number(0, 1)(beta) for beta in value)


CHECKS: dict[str, tuple[Any, str]] = {
    "learning_rate": (_number(0), "a number of at least 0"),
    "weight_decay": (_number(0), "a number of at least 0"),
    "clip": (lambda value: value is None or (_number(0)(value) and value > 0), "a number above 0, or None"),
    "betas": (_betas, "a pair of numbers in [0, 1)"),
    "momentum": (_number(0, 1), "in [0, 1)"),
    "epsilon": (_number(0), "a number of at least 0"),
    "gamma": (lambda value: _number(0)(value) and value > 0, "a number above 0"),
    "every": (lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1"),
    "iterations": (lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1"),
}
