"""Formulas that can be computed cell by cell: the sum that made a number, with its terms.

    y[t,o] = x[t,i] weight[o,i] + bias[o]

The left side names an array and its axes. The right side is a sum of products of cells of other arrays. A letter that
does not stand on the left is summed over: here i. A factor without axes is a number: `scale[]`.

    y[t,h] = table[ids(t),h]            an index that is looked up: row ids[t] of the table
    dtable[ids(t),h] = dy[t,h]          on the left: the sum of all t whose ids[t] is the row

One formula is displayed, opened cell by cell, and evaluated as a whole by the tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FACTOR = re.compile(r"(\w+)\[([^\]]*)\]")
LOOKUP = re.compile(r"(\w+)\((\w)\)")


@dataclass(frozen=True)
class Factor:
    """A cell of an array: its axes are letters, or (table of integers, letter)."""

    name: str
    axes: tuple[str | tuple[str, str], ...]

    @property
    def letters(self) -> tuple[str, ...]:
        return tuple(axis if isinstance(axis, str) else axis[1] for axis in self.axes)

    def __str__(self) -> str:
        inside = ",".join(axis if isinstance(axis, str) else f"{axis[0]}({axis[1]})" for axis in self.axes)
        return f"{self.name}[{inside}]" if inside else self.name


@dataclass(frozen=True)
class Product:
    """One summand: a sign, its factors, and the letters that are summed over."""

    sign: int
    factors: tuple[Factor, ...]
    over: tuple[str, ...]

    def __str__(self) -> str:
        sums = "".join(f"Σ{letter} " for letter in self.over)
        return sums + " · ".join(str(factor) for factor in self.factors)


@dataclass(frozen=True)
class Formula:
    """The left side and the summands."""

    left: Factor
    products: tuple[Product, ...]

    def __str__(self) -> str:
        text = f"{self.left} ="
        for number, product in enumerate(self.products):
            sign = "−" if product.sign < 0 else "+" if number else ""
            text += f" {sign} {product}" if sign else f" {product}"
        return text

    def without(self, missing: set[str]) -> Formula:
        """The formula without the summands that need an array which is not there, such as a bias."""
        kept = tuple(p for p in self.products if not any(f.name in missing for f in p.factors))
        return Formula(self.left, kept)

    def as_dict(self) -> dict[str, Any]:
        """For the page: names and axes, as the export evaluates them."""

        def factor(one: Factor) -> list[Any]:
            return [one.name, [axis if isinstance(axis, str) else list(axis) for axis in one.axes]]

        products = [[p.sign, [factor(f) for f in p.factors], list(p.over)] for p in self.products]
        return {"text": str(self), "left": factor(self.left), "products": products}


def _factor(text: str) -> Factor:
    found = FACTOR.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a cell such as x[t,i]")
    axes: list[str | tuple[str, str]] = []
    for axis in filter(None, (part.strip() for part in found[2].split(","))):
        lookup = LOOKUP.fullmatch(axis)
        axes.append((lookup[1], lookup[2]) if lookup else axis)
    return Factor(found[1], tuple(axes))


def parse(text: str) -> Formula:
    """Read a formula such as "y[t,o] = x[t,i] weight[o,i] + bias[o]"."""
    left_text, _, right = text.partition("=")
    left = _factor(left_text)
    products = []
    for sign, body in re.findall(r"([+-]?)((?:\s*\w+\[[^\]]*\])+)", right):
        factors = tuple(_factor(match[0]) for match in FACTOR.finditer(body))
        letters = dict.fromkeys(letter for factor in factors for letter in factor.letters)
        bound = {axis for axis in left.axes if isinstance(axis, str)}
        products.append(Product(-1 if sign == "-" else 1, factors, tuple(x for x in letters if x not in bound)))
    return Formula(left, tuple(products))


@dataclass(frozen=True)
class Terms:
    """The terms of one summand for one cell.

    values [n]          the products, in float64
    factors             for every factor its values [n] and the index of its cell for every term [n, axes]
    positions           the value of every letter that was summed over, [n] each
    """

    product: Product
    values: np.ndarray
    factors: list[tuple[Factor, np.ndarray, np.ndarray]]
    positions: dict[str, np.ndarray]


def terms(formula: Formula, arrays: Mapping[str, Any], index: tuple[int, ...]) -> list[Terms]:
    """The terms of the cell `index` of the left side, summand by summand."""
    found = []
    for product in formula.products:
        bound: dict[str, Any] = {}
        restricted: dict[str, np.ndarray] = {}
        for axis, place in zip(formula.left.axes, index, strict=True):
            if isinstance(axis, str):
                bound[axis] = place
            else:  # only the places whose looked-up index is the row
                restricted[axis[1]] = np.flatnonzero(np.asarray(arrays[axis[0]]) == place)
        ranges = [restricted[x] if x in restricted else np.arange(_size(x, product, arrays)) for x in product.over]
        grid = np.meshgrid(*ranges, indexing="ij") if ranges else []
        positions = {letter: places.ravel() for letter, places in zip(product.over, grid, strict=True)}
        count = next(iter(positions.values())).size if positions else 1
        values = np.full(count, float(product.sign))
        factors = []
        for factor in product.factors:
            where = []
            for axis in factor.axes:
                letter = axis if isinstance(axis, str) else axis[1]
                places = np.broadcast_to(positions[letter] if letter in positions else bound[letter], (count,))
                where.append(places if isinstance(axis, str) else np.asarray(arrays[axis[0]])[places])
            cells = np.asarray(arrays[factor.name])[tuple(where)].astype(np.float64)
            cells = np.broadcast_to(cells, (count,))
            values = values * cells
            factors.append((factor, cells, np.stack(where, 1) if where else np.zeros((count, 0), int)))
        found.append(Terms(product, values, factors, positions))
    return found


def _size(letter: str, product: Product, arrays: Mapping[str, Any]) -> int:
    for factor in product.factors:
        for axis, size in zip(factor.axes, np.shape(arrays[factor.name]), strict=True):
            if axis == letter:
                return int(size)
            if not isinstance(axis, str) and axis[1] == letter:
                return len(arrays[axis[0]])
    raise ValueError(f"no axis of {product} has the letter {letter}")
