"""What the glass knows of one operation: its arrays by name, and the formula of every array that is computed.

A function marked `@describes("linear")` takes a recorded node and returns a `Described`. The functions stand in
`operations`, `attention_views` and `loss_views`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.learn.glass.formulas import FACTOR, Formula, parse
from glassbert.learn.glass.recorder import Node
from glassbert.ops.registry import OPERATIONS, SUFFIX

Arrays = Mapping[str, Any]


class LazyArrays(Mapping[str, Any]):
    """Arrays by name; a function is called when its array is first read, with this mapping as its argument."""

    def __init__(self, given: Mapping[str, Any]):
        self._given = {name: value for name, value in given.items() if value is not None}
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            value = self._given[name]
            self._made[name] = np.asarray(value(self) if callable(value) else value)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


@dataclass(frozen=True)
class Described:
    """One operation with its arrays.

    formula, backward_formula   as a person writes them
    sums                        formulas whose terms can be opened, by the name of the array they make
    functions                   arrays that are a function of a few cells, by name: the expression as text
    forward, backward           the arrays that are shown, in this order
    operand                     names of arrays that are arguments of the operation, with their place
    gradient                    names of arrays that the backward returned, with their place
    """

    formula: str
    backward_formula: str
    arrays: LazyArrays
    sums: dict[str, Formula] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    forward: tuple[str, ...] = ()
    backward: tuple[str, ...] = ()
    operand: dict[str, int] = field(default_factory=dict)
    gradient: dict[str, int] = field(default_factory=dict)
    result: str = "y"

    def axes(self, name: str) -> tuple[str, ...]:
        """The letters of the axes of an array, as the formulas use them; "" for an axis that is looked up."""
        found: list[tuple[str, ...]] = []
        for formula in self.sums.values():
            for factor in (formula.left, *(f for product in formula.products for f in product.factors)):
                if factor.name == name:
                    found.append(tuple(axis if isinstance(axis, str) else "" for axis in factor.axes))
        for left, expression in self.functions.items():
            cells = [(cell[1], tuple(filter(None, cell[2].split(",")))) for cell in FACTOR.finditer(expression)]
            found += [axes for cell, axes in cells if cell == name]
            if left == name:
                found.append(max((axes for _, axes in cells), key=len))
        if found:
            return min(found, key=lambda axes: axes.count(""))
        return ("",) * self.arrays[name].ndim


Describe = Callable[[Node], Described]
TABLE: dict[str, Describe] = {}


def describes(*operations: str) -> Callable[[Describe], Describe]:
    def register(function: Describe) -> Describe:
        TABLE.update(dict.fromkeys(operations, function))
        return function

    return register


def formulas(*texts: str, arrays: LazyArrays) -> dict[str, Formula]:
    """Parsed formulas by the array that they make; what needs an array that is not there is left out."""
    found = {}
    for text in texts:
        formula = parse(text)
        names = {factor.name for product in formula.products for factor in product.factors}
        formula = formula.without({name for name in names if name not in arrays})
        if formula.left.name in arrays and formula.products:
            found[formula.left.name] = formula
    return found


def rows(x: Any) -> Any:
    """[..., H] -> [N, H]: one row for every token."""
    return None if x is None else np.asarray(x).reshape(-1, np.shape(x)[-1])


def heads(x: Any) -> Any:
    """[1, heads, T, d] -> [heads, T, d]"""
    return None if x is None else np.asarray(x)[0]


def back(node: Node, place: int, shape: Callable[[Any], Any] = rows) -> Any:
    """Gradient number `place` of the backward, or None."""
    if node.dy is None or place >= len(node.gradients) or node.gradients[place] is None:
        return None
    return shape(node.gradients[place])


def without_batch(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x[0] if x.ndim > 2 and x.shape[0] == 1 else x


def without_formulas(node: Node) -> Described:
    """Inputs, output and gradients of any operation."""
    function = OPERATIONS.get(node.operation)
    arrays = [(i, x) for i, x in enumerate(node.arguments) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    names = list(inspect.signature(function).parameters) if function else []
    label = {i: names[i] if i < len(names) else f"x{i}" for i, _ in arrays}
    given = {label[i]: without_batch(x) for i, x in arrays}
    given["y"] = without_batch(node.output)
    gradients = {}
    if node.dy is not None:
        given["dy"] = without_batch(node.dy)
        for place, value in enumerate(node.gradients):
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                gradients[f"gradient_{place}"] = place
                given[f"gradient_{place}"] = without_batch(value)
    return Described(
        f"y = {node.operation}({', '.join(label.values())})", node.operation + SUFFIX if gradients else "",
        LazyArrays(given), forward=(*label.values(), "y"), backward=("dy", *gradients),
        operand={name: i for i, name in label.items()}, gradient=gradients,
    )  # fmt: skip
