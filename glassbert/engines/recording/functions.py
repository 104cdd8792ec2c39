"""The functions of the namespace of symbols: NumPy's names, ONNX's operators.

Types follow MLX and PyTorch and not NumPy: a float array keeps its precision beside integers, and numbers adapt to
arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.engines.recording.indexing import item
from glassbert.engines.recording.sizes import Size
from glassbert.engines.recording.symbols import Symbol
from glassbert.errors import EngineError

INT, BOOL, FLOAT32 = np.dtype(np.int64), np.dtype(np.bool_), np.dtype(np.float32)


def _arithmetic(operator: str) -> Any:
    def run(self: Functions, a: Any, b: Any) -> Symbol:
        a, b = self.together(a, b)
        if a.dtype == BOOL:
            a, b = self.astype(a, INT), self.astype(b, INT)
        return self.graph.add(operator, [a, b], a.dtype, broadcast(a.shape, b.shape))

    return run


def _comparison(operator: str) -> Any:
    def run(self: Functions, a: Any, b: Any) -> Symbol:
        a, b = self.together(a, b)
        if a.dtype == BOOL and operator != "Equal":
            a, b = self.astype(a, INT), self.astype(b, INT)
        return self.graph.add(operator, [a, b], BOOL, broadcast(a.shape, b.shape))

    return run


def _logic(operator: str) -> Any:
    def run(self: Functions, a: Any, b: Any) -> Symbol:
        a, b = self.astype(self.symbol(a), BOOL), self.astype(self.symbol(b), BOOL)
        return self.graph.add(operator, [a, b], BOOL, broadcast(a.shape, b.shape))

    return run


def _elementwise(operator: str) -> Any:
    def run(self: Functions, x: Symbol) -> Symbol:
        return self.graph.add(operator, [x], x.dtype, x.shape)

    return run


def _reduction(operator: str) -> Any:
    def run(self: Functions, x: Symbol, axis: Any = None, keepdims: bool = False) -> Symbol:
        x = self.astype(x, INT) if x.dtype == BOOL else x
        axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        axes = tuple(sorted(one % x.ndim for one in axes))
        shape = [1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes]
        wanted = self.graph.constant(np.array(axes, np.int64))
        return self.graph.add(operator, [x, wanted], x.dtype, shape, keepdims=int(keepdims))

    return run


class Functions:
    """The namespace of the symbols of one graph."""

    float16, float32, float64 = np.float16, np.float32, np.float64
    int32, int64, bool_ = np.int32, np.int64, np.bool_

    add, subtract, multiply = _arithmetic("Add"), _arithmetic("Sub"), _arithmetic("Mul")
    maximum, minimum = _arithmetic("Max"), _arithmetic("Min")
    equal, less, less_equal = _comparison("Equal"), _comparison("Less"), _comparison("LessOrEqual")
    greater, greater_equal = _comparison("Greater"), _comparison("GreaterOrEqual")
    logical_and, logical_or = _logic("And"), _logic("Or")
    bitwise_and, bitwise_or = logical_and, logical_or
    exp, log, sqrt, tanh, erf = (_elementwise(name) for name in ("Exp", "Log", "Sqrt", "Tanh", "Erf"))
    sin, cos, sign, abs, negative = (_elementwise(name) for name in ("Sin", "Cos", "Sign", "Abs", "Neg"))
    absolute = abs
    sum, mean, max = _reduction("ReduceSum"), _reduction("ReduceMean"), _reduction("ReduceMax")
    item = item

    def __init__(self, graph: Any):
        self.graph = graph

    # ---- types -----------------------------------------------------------------------------------------------------

    def symbol(self, value: Any, dtype: Any = None) -> Symbol:
        """A symbol, a size, a number or a NumPy array as a symbol."""
        if isinstance(value, Symbol):
            return value if dtype is None else self.astype(value, dtype)
        if isinstance(value, Size):
            return self.symbol(self.graph.scalar(value), dtype)
        if dtype is None:
            kind = np.asarray(value).dtype.kind
            dtype = BOOL if kind == "b" else INT if kind in "iu" else self.graph.float_type
        return self.graph.constant(value, dtype)

    def together(self, a: Any, b: Any) -> tuple[Symbol, Symbol]:
        """Both as symbols of one type."""
        dtype = self.common_type(a, b)
        return self.symbol(a, dtype), self.symbol(b, dtype)

    def common_type(self, *given: Any) -> np.dtype:
        """The type of a result: that of the arrays, or of the numbers where there are no arrays."""
        arrays = [one.dtype for one in given if isinstance(one, Symbol)]
        others = [
            INT if isinstance(one, Size) else np.asarray(one).dtype for one in given if not isinstance(one, Symbol)
        ]
        floats = [dtype for dtype in arrays if dtype.kind == "f"]
        if floats:
            return max(floats, key=lambda dtype: dtype.itemsize)
        if any(dtype.kind == "f" for dtype in others):
            return self.graph.float_type
        kinds = {dtype.kind for dtype in [*arrays, *others]}
        return BOOL if kinds == {"b"} else INT

    def astype(self, x: Symbol, dtype: Any) -> Symbol:
        dtype = np.dtype(dtype)
        return x if x.dtype == dtype else self.graph.add("Cast", [x], dtype, x.shape, to=dtype)

    # ---- arithmetic ------------------------------------------------------------------------------------------------

    def divide(self, a: Any, b: Any) -> Symbol:
        """Whole numbers divide to floats."""
        dtype = self.common_type(a, b)
        dtype = dtype if dtype.kind == "f" else self.graph.float_type
        a, b = self.symbol(a, dtype), self.symbol(b, dtype)
        return self.graph.add("Div", [a, b], dtype, broadcast(a.shape, b.shape))

    true_divide = divide

    def not_equal(self, a: Any, b: Any) -> Symbol:
        if isinstance(a, Symbol) and a.dtype == BOOL and isinstance(b, int) and not b:
            return a  # of a mask: mask != 0
        return self.logical_not(self.equal(a, b))

    def logical_not(self, x: Symbol) -> Symbol:
        return self.graph.add("Not", [self.astype(x, BOOL)], BOOL, x.shape)

    def power(self, x: Symbol, exponent: Any) -> Symbol:
        if isinstance(exponent, float) and exponent == -0.5:
            return self.graph.add("Reciprocal", [self.sqrt(x)], x.dtype, x.shape)
        x, exponent = self.together(x, exponent)
        return self.graph.add("Pow", [x, exponent], x.dtype, broadcast(x.shape, exponent.shape))

    def square(self, x: Symbol) -> Symbol:
        return self.multiply(x, x)

    def log1p(self, x: Symbol) -> Symbol:
        return self.log(1.0 + x)

    def expm1(self, x: Symbol) -> Symbol:
        """2 t / (1 - t) with t = tanh(x / 2), which keeps its digits near 0."""
        t = self.tanh(0.5 * x)
        return 2.0 * t / (1.0 - t)

    def clip(self, x: Symbol, low: Any, high: Any) -> Symbol:
        return self.minimum(self.maximum(x, low), high)

    def where(self, condition: Symbol, a: Any, b: Any) -> Symbol:
        condition = self.astype(condition, BOOL)
        a, b = self.together(a, b)
        shape = broadcast(condition.shape, broadcast(a.shape, b.shape))
        return self.graph.add("Where", [condition, a, b], a.dtype, shape)

    def isnan(self, x: Symbol) -> Symbol:
        return self.graph.add("IsNaN", [x], BOOL, x.shape)

    def isfinite(self, x: Symbol) -> Symbol:
        return self.logical_not(self.logical_or(self.isnan(x), self.graph.add("IsInf", [x], BOOL, x.shape)))

    def matmul(self, a: Symbol, b: Symbol) -> Symbol:
        a, b = self.together(a, b)
        rows, columns = a.shape[:-1][-1:], b.shape[-1:] if b.ndim > 1 else ()
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), *rows, *columns)
        return self.graph.add("MatMul", [a, b], a.dtype, shape)

    def softmax(self, x: Symbol) -> Symbol:
        return self.graph.add("Softmax", [x], x.dtype, x.shape, axis=-1)

    def depends(self, values: list[Any], on: list[Any]) -> list[Any]:
        return values

    # ---- reductions ------------------------------------------------------------------------------------------------

    def any(self, x: Symbol, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.astype(self.max(self.astype(x, INT), axis, keepdims), BOOL)

    def argmax(self, x: Symbol, axis: int) -> Symbol:
        x = self.astype(x, INT) if x.dtype == BOOL else x
        shape = [size for i, size in enumerate(x.shape) if i != axis % x.ndim]
        return self.graph.add("ArgMax", [x], INT, shape, axis=axis, keepdims=0)

    def cumsum(self, x: Symbol, axis: int) -> Symbol:
        x = self.astype(x, INT) if x.dtype == BOOL else x
        return self.graph.add("CumSum", [x, self.graph.constant(np.array(axis, np.int64))], x.dtype, x.shape)

    # ---- new arrays ------------------------------------------------------------------------------------------------

    def array(self, values: Any, dtype: Any = None) -> Symbol:
        return self.symbol(values, dtype)

    asarray = array

    def full(self, shape: Any, value: Any, dtype: Any = None) -> Symbol:
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        return self.broadcast_to(self.symbol(value, dtype), shape)

    def zeros(self, shape: Any, dtype: Any = None) -> Symbol:
        return self.full(shape, 0, dtype or self.graph.float_type)

    def ones(self, shape: Any, dtype: Any = None) -> Symbol:
        return self.full(shape, 1, dtype or self.graph.float_type)

    def zeros_like(self, x: Symbol) -> Symbol:
        return self.zeros(x.shape, x.dtype)

    def ones_like(self, x: Symbol) -> Symbol:
        return self.ones(x.shape, x.dtype)

    def arange(self, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Symbol:
        start, stop = (0, start) if stop is None else (start, stop)
        values = self.graph.add(
            "Range", [self.graph.scalar(one) for one in (start, stop, step)], INT, (self._length(start, stop, step),)
        )
        return values if dtype is None else self.astype(values, dtype)

    def arange_until(self, stop: Symbol, name: str) -> Symbol:
        """0, 1, ... to a number that is known when the graph runs; the size of the result has this name."""
        values = self.graph.add("Range", [self.graph.scalar(one) for one in (0, stop, 1)], INT, (Size.of(name),))
        self.graph.unknown(name, values, 0)
        return values

    def _length(self, start: Any, stop: Any, step: Any) -> Any:
        if step != 1:
            raise EngineError(f"a recorded range has the step 1, not {step!r}")
        return stop - start

    # ---- shapes ----------------------------------------------------------------------------------------------------

    def shape(self, x: Symbol) -> tuple[Any, ...]:
        return x.shape

    def reshape(self, x: Symbol, shape: Sequence[Any]) -> Symbol:
        shape = list(shape)
        if -1 in shape:
            known = 1
            for size in shape:
                known = known if isinstance(size, int) and size == -1 else known * size
            shape[shape.index(-1)] = x.size // known
        if tuple(shape) == x.shape:
            return x
        return self.graph.add("Reshape", [x, self._target(x, shape)], x.dtype, shape)

    def _target(self, x: Symbol, shape: list[Any]) -> Symbol:
        """The shape as a constant where possible: 0 copies a size of x, and one size may be -1."""
        target: list[Any] = [
            0 if isinstance(size, Size) and i < x.ndim and size == x.shape[i] else size for i, size in enumerate(shape)
        ]
        unknown = [i for i, size in enumerate(target) if isinstance(size, Size)]
        if len(unknown) > 1:
            return self.graph.sizes(shape)
        for i in unknown:
            target[i] = -1
        return self.graph.sizes(target)

    def broadcast_to(self, x: Symbol, shape: Sequence[Any]) -> Symbol:
        shape = tuple(shape)
        return x if shape == x.shape else self.graph.add("Expand", [x, self.graph.sizes(shape)], x.dtype, shape)

    def transpose(self, x: Symbol, axes: tuple[int, ...]) -> Symbol:
        axes = tuple(axis % x.ndim for axis in axes)
        if axes == tuple(range(x.ndim)):
            return x
        return self.graph.add("Transpose", [x], x.dtype, [x.shape[axis] for axis in axes], perm=list(axes))

    def squeeze(self, x: Symbol, axis: int) -> Symbol:
        shape = [size for i, size in enumerate(x.shape) if i != axis % x.ndim]
        return self.graph.add("Squeeze", [x, self.graph.constant(np.array([axis], np.int64))], x.dtype, shape)

    def expand_dims(self, x: Symbol, axis: int) -> Symbol:
        axis = axis % (x.ndim + 1)
        shape = [*x.shape[:axis], 1, *x.shape[axis:]]
        return self.graph.add("Unsqueeze", [x, self.graph.constant(np.array([axis], np.int64))], x.dtype, shape)

    def concatenate(self, parts: Sequence[Any], axis: int = 0) -> Symbol:
        dtype = self.common_type(*parts)
        symbols = [self.symbol(part, dtype) for part in parts]
        first, axis = symbols[0], axis % symbols[0].ndim
        total: Any = 0
        for one in symbols:
            total = one.shape[axis] + total
        return self.graph.add(
            "Concat", symbols, dtype, [*first.shape[:axis], total, *first.shape[axis + 1 :]], axis=axis
        )

    def stack(self, parts: Sequence[Symbol], axis: int = 0) -> Symbol:
        axis = axis % (parts[0].ndim + 1)
        return self.concatenate([self.expand_dims(part, axis) for part in parts], axis)

    def pad(self, x: Symbol, widths: Sequence[tuple[Any, Any]]) -> Symbol:
        shape = [size + before + after for size, (before, after) in zip(x.shape, widths, strict=True)]
        wanted = [before for before, _ in widths] + [after for _, after in widths]
        return self.graph.add("Pad", [x, self.graph.sizes(wanted)], x.dtype, shape)

    # ---- indices ---------------------------------------------------------------------------------------------------

    def take_along_axis(self, x: Symbol, index: Symbol, axis: int) -> Symbol:
        return self.graph.add("GatherElements", [x, index], x.dtype, index.shape, axis=axis)

    def put_along_axis(self, x: Symbol, index: Symbol, values: Symbol, axis: int) -> Symbol:
        return self.graph.add("ScatterElements", [x, index, values], x.dtype, x.shape, axis=axis)

    def add_at(self, table: Symbol, index: Any, rows: Symbol) -> Symbol:
        """The table with rows added at an index along its first axis, which may occur more than once."""
        index = self.symbol(index)
        places = index.reshape(*index.shape, *[1] * (rows.ndim - 1))
        inputs = [table, self.broadcast_to(places, rows.shape), rows]
        return self.graph.add("ScatterElements", inputs, table.dtype, table.shape, axis=0, reduction="add")

    def nonzero(self, x: Symbol, name: str) -> Symbol:
        """The places [N] of a flat array that are not zero; N is an unknown size of this name."""
        found = self.graph.add("NonZero", [x], INT, (1, Size.of(name)))
        self.graph.unknown(name, found, 1)
        return found[0]


def broadcast(one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
    """The shape of a result of arrays of these two shapes."""
    count = max(len(one), len(other))
    pairs = zip([1] * (count - len(one)) + [*one], [1] * (count - len(other)) + [*other], strict=True)
    return tuple(_broadcast_size(a, b, one, other) for a, b in pairs)


def _broadcast_size(a: Any, b: Any, one: Any, other: Any) -> Any:
    if a == b or (isinstance(b, int) and b == 1):
        return a
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(a, int) != isinstance(b, int):  # an unknown size that must be this number
        return a if isinstance(a, int) else b
    raise EngineError(f"arrays of the shapes {list(one)} and {list(other)} do not fit each other")
