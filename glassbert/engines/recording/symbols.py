"""Symbols: arrays without values. What is computed with them is recorded in a graph.

A symbol has a type and a shape, in which sizes may be unknown (`sizes.py`). It has the operators and methods of an
array, and NumPy's own functions record as well where they are given a symbol.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import EngineError

if TYPE_CHECKING:
    from glassbert.engines.recording.functions import Functions
    from glassbert.engines.recording.graph import Graph


def _binary(name: str) -> tuple[Any, Any]:
    """An operator of two arrays, and the same with its arguments exchanged."""

    def forward(self: Symbol, other: Any) -> Symbol:
        return getattr(self.functions, name)(self, other)

    def reflected(self: Symbol, other: Any) -> Symbol:
        return getattr(self.functions, name)(other, self)

    return forward, reflected


class Symbol:
    """One value of a graph: its name, type and shape."""

    __slots__ = ("dtype", "graph", "name", "shape")

    def __init__(self, graph: Graph, name: str, dtype: np.dtype, shape: tuple[Any, ...]):
        self.graph, self.name, self.dtype, self.shape = graph, name, dtype, shape

    @property
    def functions(self) -> Functions:
        from glassbert.engines.recording.functions import Functions

        return Functions(self.graph)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    def __array_namespace__(self) -> Functions:
        return self.functions

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        known = getattr(self.functions, ufunc.__name__, None)
        return NotImplemented if known is None or method != "__call__" or options else known(*inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        known = getattr(self.functions, function.__name__, None)
        return NotImplemented if known is None else known(*arguments, **options)

    def __len__(self) -> int:
        return operator.index(self.shape[0])

    __iter__ = None  # its length may be unknown

    def __bool__(self) -> bool:
        raise EngineError(
            f"the value of {self.name} decides what is computed next, and a recorded graph has no values; "
            "choose with xp.where instead"
        )

    def __repr__(self) -> str:
        return f"Symbol({self.name}, {self.dtype}, {list(self.shape)})"

    # ---- operators -------------------------------------------------------------------------------------------------

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("subtract")
    __mul__, __rmul__ = _binary("multiply")
    __truediv__, __rtruediv__ = _binary("divide")
    __matmul__, __rmatmul__ = _binary("matmul")
    __pow__, _ = _binary("power")
    __and__, __rand__ = _binary("logical_and")
    __or__, __ror__ = _binary("logical_or")
    __lt__, _ = _binary("less")
    __le__, _ = _binary("less_equal")
    __gt__, _ = _binary("greater")
    __ge__, _ = _binary("greater_equal")
    __eq__, _ = _binary("equal")  # type: ignore[assignment]
    __ne__, _ = _binary("not_equal")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Symbol:
        return self.functions.negative(self)

    def __abs__(self) -> Symbol:
        return self.functions.abs(self)

    def __invert__(self) -> Symbol:
        return self.functions.logical_not(self)

    def __getitem__(self, key: Any) -> Symbol:
        return self.functions.item(self, key)

    @property
    def at(self) -> Places:
        """`x.at[index].add(rows)`, as on MLX."""
        return Places(self)

    # ---- shapes ----------------------------------------------------------------------------------------------------

    @property
    def T(self) -> Symbol:
        return self.transpose()

    def astype(self, dtype: Any) -> Symbol:
        return self.functions.astype(self, dtype)

    def reshape(self, *shape: Any) -> Symbol:
        return self.functions.reshape(self, shape[0] if isinstance(shape[0], tuple) else shape)

    def transpose(self, *axes: int) -> Symbol:
        return self.functions.transpose(self, axes or tuple(reversed(range(self.ndim))))

    def swapaxes(self, one: int, other: int) -> Symbol:
        axes = list(range(self.ndim))
        axes[one], axes[other] = axes[other], axes[one]
        return self.functions.transpose(self, tuple(axes))

    def squeeze(self, axis: int) -> Symbol:
        return self.functions.squeeze(self, axis)

    # ---- reductions ------------------------------------------------------------------------------------------------

    def sum(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.functions.sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.functions.mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.functions.max(self, axis, keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.functions.any(self, axis, keepdims)

    def argmax(self, axis: int) -> Symbol:
        return self.functions.argmax(self, axis)


class Places:
    """Some rows of a table, to which something is added."""

    def __init__(self, table: Symbol, index: Any = None):
        self.table, self.index = table, index

    def __getitem__(self, index: Any) -> Places:
        return Places(self.table, index)

    def add(self, rows: Symbol) -> Symbol:
        return self.table.functions.add_at(self.table, self.index, rows)
