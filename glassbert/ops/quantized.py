"""Weights in 8 or 4 bits: integer codes with a scale, and the two operations that read them.

    W[r, c] ≈ Ŵ[r, c] = scale[r, g] · (code[r, c] - zero) + offset[r, g]        g = the group of column c

A group is some columns of one row, or the whole row (per channel). Without offsets the codes are symmetric around
`zero`. Codes of 4 bits are stored two in a byte, the lower half first; a row of odd width ends with an unused half.

    y = x̂ Ŵᵀ + b          x [..., I]; Ŵ [O, I]; b [O]; y [..., O]

x̂ is x, or x rounded to 8 bits, by the range of every token or by a fixed range that was found with real text:

    step = (high - low) / 255       x̂ = step · (clip(round(x / step) + z, 0, 255) - z)       z = round(-low / step)

The codes are constants: quantised weights are frozen. A change of low rank (LoRA) may be added to some rows R of Ŵ,

    y[R] += s (x Aᵀ) Bᵀ
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.ops.embedding import embedding_backward
from glassbert.ops.registry import operation

LEVELS = 255  # steps between the lowest and the highest activation
TOKEN = "token"  # activations are rounded by the range of their own token


@dataclass(frozen=True, eq=False)
class QuantizedArray:
    """A matrix of codes that stands for a matrix of floats [R, C].

    codes     [R, C] integers of 8 bits, or [R, C / 2] bytes with two codes of 4 bits each
    scales    [R, G], offsets [R, G] or None
    zero      the code of 0 where there are no offsets
    rounding  of the activations that are multiplied by it: None (not rounded), TOKEN, or a range (low, high)
    changes   (rows, A, B, s) of low-rank changes
    """

    codes: Array
    scales: Array
    offsets: Array | None
    bits: int
    shape: tuple[int, int]
    zero: int
    dtype: Any
    rounding: Any = None
    changes: tuple[tuple[slice, Array, Array, float], ...] = ()

    # The operations that read a parameter of this kind, in place of those that read an array (`Scope.run`).
    operations: ClassVar[dict[str, str]] = {"linear": "quantized_linear", "embedding": "quantized_embedding"}
    ndim: ClassVar[int] = 2

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(int(one.nbytes) for one in (self.codes, self.scales, self.offsets) if one is not None)

    @property
    def groups(self) -> int:
        return int(self.scales.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def astype(self, dtype: Any) -> QuantizedArray:
        """The same codes, computed with in another precision."""
        changes = tuple((rows, a.astype(dtype), b.astype(dtype), s) for rows, a, b, s in self.changes)
        return replace(self, dtype=dtype, changes=changes)

    def with_changes(self, changes: list[tuple[slice, Array, Array, float]]) -> QuantizedArray:
        return replace(self, changes=tuple(changes))

    def rows(self, index: Any) -> QuantizedArray:
        """Some rows, by a slice."""
        codes, scales = self.codes[index], self.scales[index]
        offsets = None if self.offsets is None else self.offsets[index]
        return replace(self, codes=codes, scales=scales, offsets=offsets, shape=(codes.shape[0], self.shape[1]))

    def dequantized(self) -> Array:
        """Ŵ with its changes, [R, C]."""
        xp, full = namespace(self.codes), dequantize(self)
        for rows, a, b, scale in self.changes:
            full = xp.concatenate([full[: rows.start], full[rows] + scale * (b @ a), full[rows.stop :]])
        return full

    def __getitem__(self, index: Any) -> Array:
        return self.dequantized()[index]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.dequantized(), dtype)

    @functools.cached_property
    def row_sums(self) -> np.ndarray:
        """The sum of the codes of every row, [R]: what the z of rounded activations is multiplied by."""
        return self.codes.sum(1, dtype=np.int32)


def unpack(codes: Array, width: int) -> Array:
    """Codes of 4 bits from bytes: [..., ceil(C / 2)] -> [..., C]"""
    xp = namespace(codes)
    both = xp.stack([codes & 15, codes >> 4], -1)  # [..., C / 2, 2]
    return both.reshape(*codes.shape[:-1], 2 * codes.shape[-1])[..., :width]


def dequantize(weight: QuantizedArray) -> Array:
    """Ŵ [R, C] = scale · (code - zero) + offset, without changes."""
    rows, width = weight.shape
    codes = weight.codes if weight.bits == 8 else unpack(weight.codes, width)
    groups = weight.groups
    values = codes.astype(weight.dtype).reshape(rows, groups, width // groups) - weight.zero
    values = values * weight.scales.astype(weight.dtype)[:, :, None]
    if weight.offsets is not None:
        values = values + weight.offsets.astype(weight.dtype)[:, :, None]
    return values.reshape(rows, width)


def rounded(x: Array, rounding: Any) -> Array:
    """x̂: the activations as their 8-bit codes give them back."""
    if rounding is None:
        return x
    xp = namespace(x)
    if rounding == TOKEN:
        low = xp.minimum(x.min(-1, keepdims=True), 0.0)
        high = xp.maximum(x.max(-1, keepdims=True), 0.0)
    else:
        low, high = (xp.full((*x.shape[:-1], 1), value, dtype=x.dtype) for value in rounding)
    step = (high - low) * (1.0 / LEVELS)
    step = xp.where(step == 0.0, xp.ones_like(step), step)  # a row of zeros
    z = xp.round(-low / step)
    return (xp.clip(xp.round(x / step) + z, 0, LEVELS) - z) * step


@operation
def quantized_linear(x: Array, weight: QuantizedArray, bias: Array | None = None) -> tuple[Array, Any]:
    """Derivation: docs/derivations/02-linear.md (2.12)."""
    rows = x.reshape(-1, x.shape[-1])  # [N, I]
    y = rounded(rows, weight.rounding) @ dequantize(weight).T  # [N, O]
    if bias is not None:
        y += bias
    y = with_changes(y, rows, weight)
    return y.reshape(*x.shape[:-1], weight.shape[0]), (x.shape, weight, bias is not None)


@operation
def quantized_linear_backward(dy: Array, state: Any) -> tuple[Array, None, Array | None]:
    """The codes are constants and have no gradient. The input gets its gradient through the weights that were used:

        dx = dy Ŵ + s (dy[R] B) A        db = sum of dy over the rows

    Where x is rounded, the rounding counts as the identity. A and B get their gradients from dy and x, as in
    `low_rank_backward`.

    Derivation: docs/derivations/02-linear.md (2.13)
    """
    shape, weight, has_bias = state
    dy_rows = dy.reshape(-1, dy.shape[-1])  # [N, O]
    dx = dy_rows @ dequantize(weight)  # [N, I]
    dx = with_changes_backward(dx, dy_rows, weight)
    return dx.reshape(shape), None, dy_rows.sum(0) if has_bias else None


def with_changes(y: Array, x: Array, weight: QuantizedArray) -> Array:
    """y [N, O] with the low-rank changes: y[R] += s (x Aᵀ) Bᵀ"""
    for rows, a, b, scale in weight.changes:
        change = (scale * (x @ a.T)) @ b.T  # [N, R]
        y = namespace(y).concatenate([y[:, : rows.start], y[:, rows] + change, y[:, rows.stop :]], 1)
    return y


def with_changes_backward(dx: Array, dy: Array, weight: QuantizedArray) -> Array:
    for rows, a, b, scale in weight.changes:
        dx = dx + (scale * (dy[:, rows] @ b)) @ a  # [N, I]
    return dx


@operation
def quantized_embedding(table: QuantizedArray, ids: Array, padding_id: int | None = None) -> tuple[Array, Any]:
    """Only the rows that are looked up are computed: [..., H].

    Derivation: docs/derivations/02-linear.md (2.14)
    """
    flat = ids.reshape(-1)
    rows = dequantize(table.rows(flat))  # [N, H]
    return rows.reshape(*ids.shape, table.shape[1]), (ids, padding_id)


@operation
def quantized_embedding_backward(dy: Array, state: Any) -> tuple[Array, Array]:
    """The gradient of the rows of the table, as `embedding_backward` gives it: index [M] and rows [M, H].

    The codes are constants; who trains scales or offsets gets their gradients from these rows.

    Derivation: docs/derivations/02-linear.md (2.15)
    """
    index, rows = embedding_backward(dy, state)
    return index, rows
