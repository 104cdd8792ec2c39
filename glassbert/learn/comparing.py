"""Comparing one output with the right one: how many digits agree, where it is wrong, and what it looks like instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

SINGLE_DIGITS = 5  # of an answer in float32
HALF_DIGITS = 2
MATCHING = 1e-6  # how near an output must be to that of a known mistake, relative to its size


def digits_needed(value: np.ndarray, wanted: int) -> int:
    """An answer in float32 is held to fewer digits than one in float64."""
    if value.dtype == np.float32:
        return min(wanted, SINGLE_DIGITS)
    return min(wanted, HALF_DIGITS) if value.dtype == np.float16 else wanted


def scale_of(right: np.ndarray) -> float:
    """The largest finite magnitude, at least a tiny number."""
    finite = np.abs(right[np.isfinite(right)]) if right.size else right
    return max(float(finite.max()) if finite.size else 0.0, 1e-12)


def agreeing_digits(value: np.ndarray, right: np.ndarray) -> float:
    """-log10 of the largest error, relative to the largest right value; 16 if there is none."""
    value, right = value.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(value - right)
    if not np.isfinite(off).all():
        return 0.0
    error = float(off.max()) / scale_of(right) if off.size else 0.0
    return 16.0 if error <= 1e-16 else max(0.0, -math.log10(error))


def matches(value: np.ndarray, other: np.ndarray) -> bool:
    """Whether two outputs are the same but for rounding, NaN in the same places included."""
    if value.shape != other.shape:
        return False
    tolerance = 1e-4 if np.float32 in (value.dtype, other.dtype) else MATCHING
    value, other = value.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(value) & np.isfinite(other)
    if not np.array_equal(np.isfinite(value), np.isfinite(other)):
        return False
    return bool((np.abs(value[finite] - other[finite]) <= tolerance * max(scale_of(other), scale_of(value))).all())


def where_wrong(value: np.ndarray, right: np.ndarray, digits: int) -> str:
    """Which entries are wrong, as a sentence without its subject: the first index, its value, and what all share."""
    value, right = value.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(value - right) <= 10.0**-digits * scale_of(right))
    if right.ndim == 0:
        return f"is {number(value)} instead of {number(right)}"
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"at {list(first)} it is {number(value[first])} instead of {number(right[first])}"
    share = "in every entry" if wrong.all() else f"in {int(wrong.sum())} of {wrong.size} entries"
    return f"is wrong {share}{common_place(wrong)}: {place}"


def common_place(wrong: np.ndarray) -> str:
    """What the wrong entries have in common: the same index along one axis."""
    if wrong.all():
        return ""
    found = []
    for axis in range(wrong.ndim):
        others = tuple(a for a in range(wrong.ndim) if a != axis)
        hit = np.atleast_1d(wrong.any(others))
        if 0 < hit.sum() < len(hit) and hit.sum() <= max(1, len(hit) // 2):
            indices = ", ".join(map(str, np.flatnonzero(hit)))
            found.append(f"index {indices} of axis {axis}")
    return f", all with {' and '.join(found)}" if found else ""


def number(value: Any) -> str:
    value = float(value)
    return f"{value:.6g}" if math.isfinite(value) else str(value)


def wrong_shape(value: np.ndarray, right: np.ndarray) -> str:
    """What is wrong with a shape."""
    text = f"has the shape {list(value.shape)}, and {list(right.shape)} is needed"
    if value.size == right.size and [n for n in value.shape if n != 1] == [n for n in right.shape if n != 1]:
        return f"{text}: an axis of length 1 is {'too many' if value.ndim > right.ndim else 'missing'} (keepdims)"
    if value.shape == right.shape[::-1]:
        return f"{text}: it is transposed"
    if value.ndim == right.ndim + 1 and value.shape[1:] == right.shape:
        return f"{text}: the first axis was not summed"
    return text


def looks_like(
    value: np.ndarray, right: np.ndarray, inputs: Mapping[str, Any], others: Mapping[str, np.ndarray]
) -> tuple[str, str] | None:
    """A mistake that can be seen from the numbers alone: its name and a sentence."""
    if value.shape != right.shape or not np.isfinite(value).all() or not np.isfinite(right).all():
        return None
    if not value.any() and right.any():
        return "all zeros", "All its entries are 0: the result was never written into it."
    if matches(value, -right):
        return "the sign is wrong", "It is the negative of the right answer."
    for name, other in others.items():
        if matches(value, other):
            return "outputs in another order", f"It is the right {name}: the outputs are in another order."
    for name, given in inputs.items():
        if isinstance(given, np.ndarray) and given.shape == value.shape and matches(value, given):
            return "an input returned unchanged", f"It is {name}, unchanged."
    if right.ndim == 2 and right.shape[0] == right.shape[1] and matches(value, right.T):
        return "transposed", "It is the transpose of the right answer."
    return constant_factor(value, right, inputs)


def constant_factor(value: np.ndarray, right: np.ndarray, inputs: Mapping[str, Any]) -> tuple[str, str] | None:
    """The right answer times a constant, and which size that constant is."""
    value, right = value.astype(np.float64), right.astype(np.float64)
    total = float((right * right).sum())
    if total == 0.0 or right.size < 2:
        return None
    factor = float((value * right).sum()) / total
    if factor == 0.0 or abs(factor - 1.0) < 1e-6 or not matches(value, factor * right):
        return None
    sizes = {n for given in inputs.values() if isinstance(given, np.ndarray) for n in given.shape if n > 1}
    rows = {math.prod(g.shape[:-1]) for g in inputs.values() if isinstance(g, np.ndarray) and g.ndim > 1}
    for size in sorted(sizes | rows | {2}):
        known = {size: f"{size}", 1 / size: f"1/{size}", size**0.5: f"√{size}", size**-0.5: f"1/√{size}"}
        for candidate, words in known.items():
            if abs(factor / candidate - 1.0) < 1e-6:
                return "a constant factor", f"It is {words} times the right answer: a sum and a mean, or a root?"
    return "a constant factor", f"It is {factor:.6g} times the right answer in every entry."
