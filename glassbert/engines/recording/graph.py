"""The recorded graph: nodes with the operators of ONNX, constants, inputs and outputs.

A node is recorded once: the same operator over the same values gives the value that is there already, so a mask that
every layer computes again is one value of the graph. Nodes that no output depends on are left out at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassbert.engines.recording.sizes import Size
from glassbert.engines.recording.symbols import Symbol
from glassbert.errors import EngineError


class Node(NamedTuple):
    """One operator: names of inputs ("" for one that is left out) and outputs, and its attributes."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """A graph to be written: nodes in their order, constants by name, inputs, outputs, and all values between."""

    nodes: list[Node]
    constants: dict[str, np.ndarray]
    inputs: dict[str, Symbol]
    outputs: dict[str, Symbol]
    values: dict[str, Symbol]


class Graph:
    """Records nodes. `float_type` is the precision of the arithmetic."""

    def __init__(self, float_type: str = "float32"):
        self.float_type = np.dtype(float_type)
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, Symbol] = {}
        self.values: dict[str, Symbol] = {}
        self._known: dict[Any, str] = {}
        self._unknowns: dict[str, tuple[str, int]] = {}  # unknown size -> a value and the axis on which it is read
        self._count = 0

    # ---- what a graph begins with ----------------------------------------------------------------------------------

    def input(self, name: str, dtype: Any, shape: Sequence[Any]) -> Symbol:
        """An input. A string in its shape is an unknown size of that name."""
        sizes = tuple(Size.of(size) if isinstance(size, str) else size for size in shape)
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                self._unknowns.setdefault(size, (name, axis))
        self.inputs[name] = self._value(name, dtype, sizes)
        return self.inputs[name]

    def parameter(self, name: str, values: np.ndarray) -> Symbol:
        """A constant with a name of its own."""
        self.constants[name] = values
        return self._value(name, values.dtype, values.shape)

    def constant(self, values: Any, dtype: Any = None) -> Symbol:
        """A constant; equal ones are one value. What float16 cannot hold becomes its largest number."""
        array = np.asarray(values, dtype=None if dtype == np.float16 else dtype)
        if dtype == np.float16:
            largest = float(np.finfo(np.float16).max)
            array = np.clip(array, -largest, largest).astype(np.float16)
        key = (array.dtype.str, array.shape, hashlib.sha256(np.ascontiguousarray(array).data).digest())
        if key not in self._known:
            self._known[key] = self._new_name("constant")
            self.constants[self._known[key]] = array
            self._value(self._known[key], array.dtype, array.shape)
        return self.values[self._known[key]]

    # ---- nodes -----------------------------------------------------------------------------------------------------

    def add(
        self, operator: str, inputs: Iterable[Symbol | None], dtype: Any, shape: Sequence[Any], **attributes: Any
    ) -> Symbol:
        """The first output of an operator over these inputs."""
        names = tuple("" if one is None else one.name for one in inputs)
        key = (operator, names, tuple(sorted((k, str(v)) for k, v in attributes.items())))
        if key not in self._known:
            name = self._new_name(operator.lower())
            self.nodes.append(Node(operator, names, (name,), attributes))
            self._known[key] = name
            self._value(name, dtype, tuple(shape))
        return self.values[self._known[key]]

    def unknown(self, name: str, value: Symbol, axis: int) -> Size:
        """A new unknown size: that of an axis of this value, which depends on data."""
        self._unknowns.setdefault(name, (value.name, axis))
        return Size.of(name)

    def size(self, size: Any) -> Symbol:
        """A size as a value of the graph, [1] of int64."""
        if not isinstance(size, Size):
            return self.constant(np.array([size], np.int64))
        total = None
        for product, factor in sorted(size.terms.items()):
            term = self.constant(np.array([factor.numerator], np.int64))
            for place, name in enumerate(product):
                value, axis = self._unknowns[name]
                one = self.add("Shape", [self.values[value]], np.int64, (1,), start=axis, end=axis + 1)
                term = one if place == 0 and factor.numerator == 1 else self.add("Mul", [term, one], np.int64, (1,))
            if factor.denominator != 1:
                term = self.add("Div", [term, self.constant(np.array([factor.denominator], np.int64))], np.int64, (1,))
            total = term if total is None else self.add("Add", [total, term], np.int64, (1,))
        assert total is not None
        return total

    def sizes(self, shape: Sequence[Any]) -> Symbol:
        """A shape as a value of the graph, [axes] of int64."""
        if not any(isinstance(size, Size) for size in shape):
            return self.constant(np.array(shape, np.int64))
        parts = [self.size(size) for size in shape]
        return parts[0] if len(parts) == 1 else self.add("Concat", parts, np.int64, (len(parts),), axis=0)

    def scalar(self, value: Any) -> Symbol:
        """A number, a size or a symbol without axes as a value without axes."""
        if isinstance(value, Symbol):
            return value
        if isinstance(value, Size):
            return self.add("Squeeze", [self.size(value), self.constant(np.array([0], np.int64))], np.int64, ())
        return self.constant(np.array(value, np.int64 if isinstance(value, (int, np.integer)) else self.float_type))

    # ---- the end ---------------------------------------------------------------------------------------------------

    def finished(self, outputs: Mapping[str, Symbol], names: Mapping[str, Symbol] | None = None) -> Finished:
        """The graph of these outputs. `names` gives other values of the graph the names that the model has for them."""
        taken = {**self.inputs, **self.constants}
        renamed: dict[str, str] = {}
        nodes = list(self.nodes)
        for wanted, symbol in outputs.items():
            if symbol.name in taken or symbol.name in renamed:  # an input, or a value that is an output already
                nodes.append(Node("Identity", (symbol.name,), (wanted,), {}))
            else:
                renamed[symbol.name] = wanted
        used = {*taken, *outputs}
        for wanted, symbol in (names or {}).items():
            if symbol.name not in renamed and symbol.name not in taken and wanted not in used:
                renamed[symbol.name] = wanted
                used.add(wanted)

        def new(name: str) -> str:
            return renamed.get(name, name)

        nodes = [Node(n.operator, tuple(map(new, n.inputs)), tuple(map(new, n.outputs)), n.attributes) for n in nodes]
        nodes = _needed(nodes, outputs)
        read = {name for node in nodes for name in node.inputs}
        values = {new(name): symbol for name, symbol in self.values.items()} | dict(outputs)
        made = {name for node in nodes for name in node.outputs}
        constants = {name: array for name, array in self.constants.items() if name in read}
        between = {name: symbol for name, symbol in values.items() if name in made}
        return Finished(nodes, constants, dict(self.inputs), dict(outputs), between)

    def _value(self, name: str, dtype: Any, shape: tuple[Any, ...]) -> Symbol:
        if name in self.values:
            raise EngineError(f"the graph has a value {name!r} already; names of parameters and inputs must differ")
        self.values[name] = Symbol(self, name, np.dtype(dtype), shape)
        return self.values[name]

    def _new_name(self, word: str) -> str:
        self._count += 1
        return f"{word}_{self._count}"


def _needed(nodes: list[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that an output depends on."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.outputs):
            kept.append(node)
            wanted |= set(node.inputs)
    return kept[::-1]
