"""Numbers of a look: windows of arrays, small pictures, and the sum behind one cell."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.learn.glass.described import Described
from glassbert.learn.glass.formulas import FACTOR, terms
from glassbert.learn.glass.recorder import Node, Recording
from glassbert.models.model import Model

MOST_TERMS = 512  # of a longer sum the largest terms are listed
MOST_CELLS = 4_096  # of one window
OVERVIEW = (96, 192)  # rows and columns of the small picture of a large matrix


class Cells(ABC):
    """Answers about single numbers. A subclass knows the operations of a pass and the names of their arrays."""

    model: Model
    recording: Recording
    nodes: dict[str, Node]

    @abstractmethod
    def described(self, name: str) -> Described:
        """The arrays and formulas of an operation."""

    @abstractmethod
    def full_name(self, name: str, role: str) -> str:
        """The dotted name of an array of an operation."""

    @abstractmethod
    def place(self, letter: str, index: int, size: int) -> str:
        """What stands at an index of an axis."""

    @abstractmethod
    def label(self, array: Any) -> str:
        """The dotted name of an array, or ""."""

    def array(self, name: str, role: str) -> np.ndarray:
        """An array of an operation, or `parameters` / `gradients` with the name of a parameter as the role."""
        if name == "parameters" and role in self.model.parameters:
            return np.asarray(self.model.parameters[role])
        if name == "gradients" and self.recording.gradients is not None and role in self.recording.gradients:
            return np.asarray(self.recording.gradients[role])
        if name in ("parameters", "gradients"):
            raise InputError(f"there is no {name[:-1]} {role!r} in this pass")
        arrays = self.described(name).arrays
        if role not in arrays:
            raise InputError(f"{name} has no array {role!r}")
        return arrays[role]

    def matrix(self, name: str, role: str, leading: list[int]) -> tuple[np.ndarray, tuple[str, ...]]:
        """The array as a matrix: what stands before the last two axes is chosen by `leading`."""
        array = self.array(name, role)
        axes = ("",) * array.ndim if name in ("parameters", "gradients") else self.described(name).axes(role)
        if array.ndim > 2:
            chosen = [*leading, *([0] * array.ndim)][: array.ndim - 2]
            for place, size in zip(chosen, array.shape, strict=False):
                if not 0 <= place < size:
                    raise InputError(f"index {place} is outside {name} {role}, whose axis has {size} entries")
            array, axes = array[tuple(chosen)], axes[array.ndim - 2 :]
        if array.ndim < 2:
            array, axes = array.reshape(1, -1), ("", *axes) if axes else ("", "")
        return array, axes

    def values(
        self, name: str, role: str, leading: list[int], row: int, column: int, height: int, width: int
    ) -> dict[str, Any]:
        """A window of readable numbers, with the labels of its rows and columns."""
        matrix, axes = self.matrix(name, role, leading)
        if height * width > MOST_CELLS or min(height, width) < 1:
            raise InputError(f"a window has 1 to {MOST_CELLS} cells, got {height} x {width}")
        row = max(0, min(row, matrix.shape[0] - 1))
        column = max(0, min(column, matrix.shape[1] - 1))
        part = matrix[row : row + height, column : column + width]
        return {
            "row": row,
            "column": column,
            "shape": list(matrix.shape),
            "size": list(part.shape),
            "data": encode(part),
            "rows": [self.place(axes[0], row + i, matrix.shape[0]) for i in range(part.shape[0])],
            "columns": [self.place(axes[1], column + i, matrix.shape[1]) for i in range(part.shape[1])],
            "largest": largest(matrix),
        }

    def overview(self, name: str, role: str, leading: list[int]) -> dict[str, Any]:
        """The whole matrix in a small picture: every pixel is the value of largest size in its block."""
        matrix, _ = self.matrix(name, role, leading)
        small = shrink(shrink(matrix, OVERVIEW[0], 0), OVERVIEW[1], 1)
        return {
            "shape": list(matrix.shape),
            "size": list(small.shape),
            "data": encode(small),
            "largest": largest(matrix),
        }

    # ---- the sum behind a cell ---------------------------------------------------------------------------------------

    def terms(self, name: str, role: str, index: list[int]) -> dict[str, Any]:
        """The sum that made one number, with the cells that went into it."""
        if name == "gradients":
            return self._gradient_terms(role, index)
        array, described = self.array(name, role), self.described(name)
        place = tuple(index)
        if len(place) != array.ndim or any(not 0 <= i < n for i, n in zip(place, array.shape, strict=True)):
            raise InputError(f"{index} is no cell of {role}, whose shape is {list(array.shape)}")
        answer = {"name": self.full_name(name, role), "role": role, "index": list(place), "value": float(array[place])}
        answer["where"] = self._where(described.axes(role), place, array.shape)
        if role in described.functions:
            return {**answer, **self._function(described, role, place)}
        formula = described.sums.get(role)
        if formula is None:
            return {**answer, "kind": "given"}
        found = terms(formula, described.arrays, place)
        groups = []
        for one in found:
            order = np.arange(len(one.values))
            if len(order) > MOST_TERMS:
                order = np.sort(np.argsort(-np.abs(one.values), kind="stable")[:MOST_TERMS])
            rest = np.delete(one.values, order)
            groups.append(
                {
                    "text": str(one.product),
                    "sign": one.product.sign,
                    "over": {
                        letter: [self._letter(letter, int(i), described, one.product) for i in places[order]]
                        for letter, places in one.positions.items()
                    },
                    "factors": [
                        {
                            "role": factor.name,
                            "name": self.full_name(name, factor.name),
                            "values": cells[order].tolist(),
                            "cells": where[order].tolist(),
                        }
                        for factor, cells, where in one.factors
                    ],
                    "values": one.values[order].tolist(),
                    "count": len(one.values),
                    "rest": float(rest.sum()),
                    "sum": float(one.values.sum()),
                }
            )
        return {
            **answer,
            "kind": "sum",
            "formula": str(formula),
            "groups": groups,
            "sum": sum(g["sum"] for g in groups),
        }

    def _function(self, described: Described, role: str, place: tuple[int, ...]) -> dict[str, Any]:
        expression = described.functions[role]
        bound = dict(zip(described.axes(role), place, strict=True))
        cells = []
        for factor in FACTOR.finditer(expression):
            axes = [axis for axis in factor[2].split(",") if axis]
            where = tuple(bound[axis] for axis in axes)
            cells.append({"text": factor[0], "role": factor[1], "cell": list(where),
                          "value": float(described.arrays[factor[1]][where])})  # fmt: skip
        return {"kind": "function", "formula": expression, "cells": cells}

    def _gradient_terms(self, parameter: str, index: list[int]) -> dict[str, Any]:
        """A parameter's gradient is the sum of what each operation that used it gave; each can be opened in turn."""
        array = self.array("gradients", parameter)
        place = tuple(index)
        if len(place) != array.ndim or any(not 0 <= i < n for i, n in zip(place, array.shape, strict=True)):
            raise InputError(f"{index} is no cell of {parameter}, whose shape is {list(array.shape)}")
        parts = []
        for name, role in self.uses(parameter):
            part = self.array(name, role)
            parts.append({"node": name, "role": role, "value": float(part[place])})
        return {
            "name": gradient_name(parameter), "role": parameter, "index": list(place), "value": float(array[place]),
            "where": self._where(("o", "i") if array.ndim == 2 else ("o",), place, array.shape), "kind": "parts",
            "parts": parts, "sum": sum(part["value"] for part in parts),
        }  # fmt: skip

    def uses(self, parameter: str) -> list[tuple[str, str]]:
        """(operation, name of the gradient there) for every use of a parameter."""
        found = []
        for name, node in self.nodes.items():
            if node.dy is None:
                continue
            described = self.described(name)
            for role, place in described.operand.items():
                if place < len(node.arguments) and self.label(node.arguments[place]) == parameter:
                    wanted = f"d{role}"
                    if wanted in described.arrays:
                        found.append((name, wanted))
        return found

    def _where(self, axes: tuple[str, ...], place: tuple[int, ...], shape: tuple[int, ...]) -> list[str]:
        return [self.place(axis, i, n) for axis, i, n in zip(axes, place, shape, strict=True)]

    def _letter(self, letter: str, index: int, described: Described, product: Any) -> str:
        for factor in product.factors:
            for axis, size in zip(factor.axes, np.shape(described.arrays[factor.name]), strict=True):
                if axis == letter:
                    return self.place(letter, index, int(size))
                if not isinstance(axis, str) and axis[1] == letter:
                    return self.place(letter, index, len(described.arrays[axis[0]]))
        return str(index)


def gradient_name(name: str) -> str:
    """`layers.0.ffn.hidden` -> `layers.0.ffn.d_hidden`"""
    prefix, dot, last = name.rpartition(".")
    return f"{prefix}{dot}d_{last}"


def rms(array: Any) -> float:
    """√(mean of the squares)."""
    values = np.asarray(array).reshape(-1)
    return float(np.sqrt(float(np.dot(values, values)) / values.size)) if values.size else 0.0


def largest(array: np.ndarray) -> float:
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    return float(np.abs(finite).max()) if finite.size else 0.0


def encode(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, np.float32).tobytes()).decode("ascii")


def shrink(matrix: np.ndarray, limit: int, axis: int) -> np.ndarray:
    """At most `limit` entries along an axis: of each block the value of largest size."""
    size = matrix.shape[axis]
    if size <= limit:
        return matrix
    starts = np.arange(limit) * size // limit
    low, high = np.minimum.reduceat(matrix, starts, axis), np.maximum.reduceat(matrix, starts, axis)
    return np.where(np.abs(low) > np.abs(high), low, high)
