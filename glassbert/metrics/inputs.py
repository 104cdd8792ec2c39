"""What metrics are given, checked once: lengths that fit, numbers that are numbers, weights that count.

Weights say how often every example counts. One row of them, [N], weighs a metric; R rows, [R, N], give R values at
once, which is how the bootstrap works: a resample is nothing but how often each example was drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.undefined import Undefined


def as_numbers(values: Any, name: str) -> np.ndarray:
    """float64 [N, ...]; NaN and infinity are refused with their row."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
    bad = ~np.isfinite(array)
    if bad.any():
        place = np.argwhere(bad)[0]
        where = f"{name}[{', '.join(map(str, place))}]" if place.size else name
        raise InputError(
            f"{where} is {array[tuple(place)]}, and there are {int(bad.sum()):,} such values: {name} must be finite"
        )
    return array


def as_labels(values: Any, name: str) -> np.ndarray:
    """Labels of any kind, [N]."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be one label for each example, got an array of shape {list(array.shape)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name}[{int(np.argmin(np.isfinite(array)))}] is not a number")
    return array


def as_binary(values: Any, name: str = "truth") -> np.ndarray:
    """bool [N] from 0 and 1, or False and True."""
    array = as_labels(values, name)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        odd = array[0] if array.dtype.kind not in "biuf" else array[~np.isin(array, (0, 1))][0]
        raise InputError(f"{name} must hold 0 and 1, got {odd!r}; say which label is the positive one: {name} == label")
    return array.astype(bool)


def check_lengths(**arrays: Any) -> None:
    """All of one length, and that not 0."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
        raise InputError(f"one value for each example is needed, but {listed}")
    if 0 in lengths.values():
        raise Undefined("there are no examples")


def as_weights(weights: Any, examples: int) -> np.ndarray:
    """float64 [..., N]; None counts every example once."""
    if weights is None:
        return np.ones(examples)
    array = as_numbers(weights, "weights")
    if array.ndim == 0 or array.shape[-1] != examples:
        raise InputError(f"weights must be [{examples}] or [R, {examples}], got the shape {list(array.shape)}")
    if (array < 0).any():
        raise InputError("weights say how often an example counts and cannot be negative")
    if array.ndim == 1 and not array.any():
        raise Undefined("all weights are 0: no example counts")
    return array


def sums_by_group(weights: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """[..., N] summed into [..., count]: entry g is the sum where groups == g."""
    if weights.ndim == 1:
        return np.bincount(groups, weights, minlength=count)
    sums = np.zeros((*weights.shape[:-1], count))
    if groups.size:
        order = np.argsort(groups, kind="stable")
        present, starts = np.unique(groups[order], return_index=True)
        sums[..., present] = np.add.reduceat(weights[..., order], starts, axis=-1)
    return sums


def weighted_mean(values: np.ndarray, weights: Any) -> Any:
    """The mean over the last axis of values [N], for each row of weights."""
    weights = as_weights(weights, len(values))
    mean = (weights @ values) / weights.sum(-1)
    return float(mean) if np.ndim(mean) == 0 else mean
