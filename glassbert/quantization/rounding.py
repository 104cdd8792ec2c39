"""Floats to codes of 8 or 4 bits.

    symmetric     scale = max |w| / (2^(b-1) - 1)           Ŵ = scale · code
    asymmetric    scale = (max - min) / (2^b - 1)           Ŵ = scale · code + offset

The range of a group may be made smaller: a few large weights are clipped, and all others get finer steps. `best_range`
tries some ranges and keeps, for every group, the one with the smallest squared error

    error = Σ_c importance[c] · (W[r, c] - Ŵ[r, c])²

where the importance of a column is the mean square of the activation that it is multiplied by, where that is known.
Then scale and offset are fitted to the codes by least squares.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from glassbert.errors import InputError
from glassbert.ops.quantized import QuantizedArray, dequantize

BITS = (8, 4)
SHARES = {8: (1.0,), 4: (1.0, 0.96, 0.92, 0.88, 0.84, 0.8, 0.76, 0.72, 0.66, 0.6)}  # of the full range
SMALLEST_SCALE = 6.2e-5  # of normal numbers in float16
AT_ONCE = 1 << 21  # weights
PACKED = {8: np.int8, 4: np.uint8}


def check_bits(bits: int) -> int:
    if isinstance(bits, bool) or bits not in BITS:
        raise InputError(f"weights are quantised to {' or '.join(map(str, BITS))} bits, not {bits!r}")
    return int(bits)


def group_for(width: int, group: int | None) -> int:
    """The group size that is used: `group` where it divides the width of a row, otherwise the whole row."""
    if group is None:
        return width
    if isinstance(group, bool) or not isinstance(group, int) or group < 2:
        raise InputError(f"a group has at least 2 weights, got {group!r}")
    return group if width % group == 0 else width


def quantize_array(
    values: np.ndarray,
    bits: int,
    *,
    group: int | None = None,
    symmetric: bool = True,
    importance: np.ndarray | None = None,
) -> QuantizedArray:
    """A matrix [R, C] in 8 or 4 bits; `group` columns of a row share a scale, or all of them (None)."""
    check_bits(bits)
    values = np.asarray(values, np.float32)
    if values.ndim != 2:
        raise InputError(f"only matrices are quantised, not an array of the shape {list(values.shape)}")
    if not np.isfinite(values).all():
        raise InputError("a matrix with values that are not finite cannot be quantised")
    size = group_for(values.shape[1], group)
    step = max(1, AT_ONCE // values.shape[1])
    parts = [_rows(values[i : i + step], bits, size, symmetric, importance) for i in range(0, len(values), step)]
    codes, scales = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    offsets = None if symmetric else np.concatenate([part[2] for part in parts])
    shape = (values.shape[0], values.shape[1])
    return QuantizedArray(
        pack(codes.reshape(shape), bits), scales, offsets, bits, shape, _zero(bits) if symmetric else 0,
        np.dtype(np.float32),
    )  # fmt: skip


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """[R, C] codes as they are stored: int8, or two codes of 4 bits in a byte."""
    if bits == 8:
        return codes.astype(np.int8)
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)))
    low, high = codes[:, 0::2].astype(np.uint8), codes[:, 1::2].astype(np.uint8)
    return low | (high << 4)


def _zero(bits: int) -> int:
    return 0 if bits == 8 else 8


def _limits(bits: int, symmetric: bool) -> tuple[int, int]:
    """The lowest and the highest code. Symmetric codes leave out the lowest one."""
    if bits == 8:
        return (-127, 127) if symmetric else (-128, 127)
    return (1, 15) if symmetric else (0, 15)


def _rows(
    values: np.ndarray, bits: int, size: int, symmetric: bool, importance: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes [R, G, size] and scales, offsets [R, G] of some rows."""
    groups = values.reshape(len(values), -1, size)
    weights = None if importance is None else _normalised(importance).reshape(1, -1, size)
    bottom, top = groups.min(-1), groups.max(-1)
    best: tuple[np.ndarray, ...] | None = None
    for share in SHARES[bits]:
        found = _with_range(groups, bottom * share, top * share, bits, symmetric, weights)
        if best is None:
            best = found
            continue
        better = found[3] < best[3]
        best = tuple(np.where(better[..., None] if one.ndim == 3 else better, one, other)
                     for one, other in zip(found, best, strict=True))  # fmt: skip
    assert best is not None
    return best[0], best[1], best[2]


def _with_range(
    groups: np.ndarray, bottom: np.ndarray, top: np.ndarray, bits: int, symmetric: bool, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scales, offsets and squared errors of every group with this range."""
    low, high = _limits(bits, symmetric)
    zero = _zero(bits)
    if symmetric:
        scale = np.maximum(np.abs(bottom), np.abs(top)) / (high - zero)
        offset = np.zeros_like(scale)
        shift = np.full_like(scale, zero)
    else:
        scale = (top - bottom) / (high - low)
        offset = bottom - low * scale
        shift = np.zeros_like(scale)
    scale, offset = _stored(np.where(scale > 0, scale, 1.0)), _stored(offset)
    codes = _codes(groups, scale, offset, shift, low, high)
    if bits == 4 and not symmetric:
        scale, offset = _fitted(groups, codes, scale, offset, weights)
        codes = _codes(groups, scale, offset, shift, low, high)
    difference = groups - ((codes - shift[..., None]) * scale[..., None] + offset[..., None])
    squares = difference * difference
    return codes, scale, offset, (squares if weights is None else squares * weights).sum(-1)


def _codes(
    groups: np.ndarray, scale: np.ndarray, offset: np.ndarray, shift: np.ndarray, low: int, high: int
) -> np.ndarray:
    exact = (groups - offset[..., None]) / scale[..., None] + shift[..., None]
    return np.clip(np.rint(exact), low, high).astype(np.float32)


def _fitted(
    groups: np.ndarray, codes: np.ndarray, scale: np.ndarray, offset: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset by least squares over the codes; where the codes are all equal, the given ones."""
    share = np.ones_like(codes) if weights is None else np.broadcast_to(weights, codes.shape)
    total = share.sum(-1)
    x, y = (share * codes).sum(-1) / total, (share * groups).sum(-1) / total
    centred = codes - x[..., None]
    variance = (share * centred * centred).sum(-1)
    slope = (share * centred * groups).sum(-1) / np.where(variance > 0, variance, 1.0)
    good = (variance > 0) & (slope > 0)
    slope = _stored(np.where(good, slope, scale))
    return slope, np.where(good, _stored(y - slope * x), offset)


def _normalised(importance: np.ndarray) -> np.ndarray:
    """With the mean 1, and no column without any weight."""
    importance = np.asarray(importance, np.float32)
    mean = float(importance.mean())
    return importance / mean + 0.01 if mean > 0 and math.isfinite(mean) else np.ones_like(importance)


def _stored(values: np.ndarray) -> np.ndarray:
    """Scales and offsets in float32, rounded as they are stored."""
    if values.shape[-1] == 1:
        return values.astype(np.float32)  # one for each row: float32
    half = values.astype(np.float16).astype(np.float32)
    small = (np.abs(values) < SMALLEST_SCALE) & (values != 0)
    return np.where(small.any() or not np.isfinite(half).all(), values, half).astype(np.float32)


def compact(weight: QuantizedArray) -> QuantizedArray:
    """The same with scales and offsets in float16, where these have the same values."""

    def half(values: np.ndarray | None) -> np.ndarray | None:
        if values is None or values.shape[1] == 1:
            return values
        with np.errstate(over="ignore"):
            short = values.astype(np.float16)
        return short if (short == values).all() else values

    scales, offsets = half(weight.scales), half(weight.offsets)
    assert scales is not None
    return replace(weight, scales=scales, offsets=offsets)


def relative_error(values: np.ndarray, weight: QuantizedArray) -> float:
    """‖W - Ŵ‖ / ‖W‖"""
    difference = np.linalg.norm(values - dequantize(weight))
    return float(difference / max(float(np.linalg.norm(values)), 1e-30))
