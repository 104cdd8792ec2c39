"""Checks of the inputs of metrics, and the error for a metric that has no value.

Every metric takes `weights`: how often each example counts. [N] weights the examples of one value; [R, N] gives R
values at once, [R]. The bootstrap uses this: a resample is the number of times each example was drawn.

Some inputs have no value: AUC with one class, correlation with a constant. A metric then raises `Undefined` with the
reason, and tables (`Scores`) print the reason instead of a number. Within a batch of resamples ([R, N]) nothing is
raised: such a resample is NaN, and the bootstrap counts it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from glassbert.errors import GlassBertError, InputError

Value: TypeAlias = Any  # a float; for weights [R, N] an array [R]


class Undefined(GlassBertError):
    """The metric has no value for this input; the message is the reason."""


def ratio(numerator: Any, denominator: Any, reason: str) -> Value:
    """numerator / denominator; undefined where the denominator is 0."""
    numerator, denominator = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    defined = denominator != 0
    return where_defined(numerator / np.where(defined, denominator, 1.0), defined, reason)


def where_defined(values: Any, defined: Any, reason: str) -> Value:
    """The values where `defined` is true. Elsewhere a scalar raises Undefined, and an entry of a batch is NaN."""
    values, defined = np.broadcast_arrays(np.asarray(values, np.float64), defined)
    if values.ndim == 0:
        if not defined:
            raise Undefined(reason)
        return float(values)
    return np.where(defined, values, np.nan)


def ratio_or_zero(numerator: Any, denominator: Any) -> np.ndarray:
    """numerator / denominator, with 0/0 = 0. Only for the terms of an average, never for a value shown alone."""
    denominator = np.asarray(denominator, np.float64)
    return np.where(denominator != 0, numerator / np.where(denominator != 0, denominator, 1.0), 0.0)


def as_numbers(values: Any, name: str) -> np.ndarray:
    """float64 [N, ...]; NaN and infinity are an error that names the index."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
    bad = ~np.isfinite(array)
    if bad.any():
        index = np.argwhere(bad)[0]
        where = f"{name}[{', '.join(map(str, index))}]" if index.size else name
        raise InputError(f"{where} is {array[tuple(index)]}; {name} must be finite ({int(bad.sum()):,} values are not)")
    return array


def as_labels(values: Any, name: str) -> np.ndarray:
    """Labels of any type, [N]."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must be one label for each example, got an array of shape {list(array.shape)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name}[{int(np.argmin(np.isfinite(array)))}] is not finite")
    return array


def as_binary(values: Any, name: str = "truth") -> np.ndarray:
    """bool [N] from 0 and 1, or False and True."""
    array = as_labels(values, name)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        odd = array[0] if array.dtype.kind not in "biuf" else array[~np.isin(array, (0, 1))][0]
        raise InputError(f"{name} must hold 0 and 1, got {odd!r}; pass `{name} == positive_label`")
    return array.astype(bool)


def check_lengths(**arrays: Any) -> None:
    """All arrays must have the same length, and it must not be 0."""
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
        raise InputError("weights must not be negative: they are how often an example counts")
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
    """The mean of values [N], for each row of weights."""
    weights = as_weights(weights, len(values))
    mean = (weights @ values) / weights.sum(-1)
    return float(mean) if np.ndim(mean) == 0 else mean
