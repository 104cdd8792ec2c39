"""Arrays: which library an array belongs to, and where named parameters and gradients are stored.

The mathematics is written once, over the array's own namespace: `xp = namespace(x)` is `numpy` for a NumPy array and
`mlx.core` for an MLX array. Both spell the functions used here the same way. `y += x` works in place on NumPy and
makes a new array on MLX, so readable code is also the fast code.

On NumPy all parameters of a model are stored in one flat buffer, and so are all gradients; a named array is a view into
it. An optimizer walks the flat buffers in cache-sized chunks, and a product is written straight into its gradient. MLX
arrays are immutable values, so a plain dictionary serves there.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from glassbert.errors import ConfigError, InputError

Array = Any  # numpy.ndarray or mlx.core.array, or the array of another engine; operations are written over all of them
ALIGNMENT = 16  # elements: every array begins on a cache line


def namespace(x: Array) -> ModuleType:
    """The module with the functions for this array."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np
    mlx = sys.modules.get("mlx.core")
    if mlx is not None and isinstance(x, mlx.array):
        return mlx
    own = getattr(x, "__array_namespace__", None)  # arrays of a further engine name their own functions
    if own is not None:
        return own()
    raise TypeError(f"expected a NumPy or MLX array, got {type(x).__name__}")


def is_numpy(x: Array) -> bool:
    return isinstance(x, (np.ndarray, np.generic))


class Layout:
    """The position of every named array in a flat buffer."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]):
        self.shapes = dict(shapes)
        self.offsets: dict[str, int] = {}
        end = 0
        for name, shape in self.shapes.items():
            self.offsets[name] = end
            size = math.prod(shape)
            end += -(-size // ALIGNMENT) * ALIGNMENT
        self.size = end

    def span(self, name: str) -> slice:
        start = self.offsets[name]
        return slice(start, start + math.prod(self.shapes[name]))

    def view(self, flat: np.ndarray, name: str) -> np.ndarray:
        return flat[self.span(name)].reshape(self.shapes[name])


READ_ONLY = "the model is read-only, as that of a predictor is; change a copy of it, copy.deepcopy(model)"


class FlatArrays(Mapping[str, np.ndarray]):
    """Named views into one flat buffer. Assigning copies into the view; the shape must fit."""

    def __init__(self, layout: Layout, dtype: np.dtype):
        self.layout = layout
        try:
            self.flat = np.zeros(layout.size, dtype)
        except (MemoryError, ValueError) as error:
            raise ConfigError(f"{layout.size:,} parameters do not fit into the memory of this machine") from error
        self._make_views()

    def _make_views(self) -> None:
        self._views = {name: self.layout.view(self.flat, name) for name in self.layout.shapes}

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: the views are made again, since a copied view would no longer share the buffer."""
        return {"layout": self.layout, "flat": self.flat, "read_only": self.is_read_only}

    def __setstate__(self, state: dict[str, Any]) -> None:
        flat = state["flat"]
        self.layout, self.flat = state["layout"], flat if flat.base is None else flat.copy()  # a buffer of its own
        self._make_views()
        if state["read_only"]:
            self.read_only()

    def __deepcopy__(self, memo: dict[int, Any]) -> FlatArrays:
        """A copy can be changed, whether or not this one can."""
        new = object.__new__(type(self))
        memo[id(self)] = new
        new.__setstate__({"layout": self.layout, "flat": self.flat.copy(), "read_only": False})
        return new

    @property
    def is_read_only(self) -> bool:
        return not self.flat.flags.writeable

    def read_only(self) -> None:
        """Refuse changes from now on. A copy can be changed again."""
        for array in (self.flat, *self._views.values()):
            array.flags.writeable = False

    def __getitem__(self, name: str) -> np.ndarray:
        return self._views[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if self.is_read_only:
            raise InputError(f"{name} cannot be changed: {READ_ONLY}")
        self._views[name][...] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


def scatter_rows(table: Array, index: Array | None, rows: Array) -> Array:
    """The table with `rows` added at `index`: in place on NumPy, where an index occurs at most once.

    Without an index the rows are those of the whole table, as a kernel returns them that has added them up itself.
    """
    if index is None:
        return table + rows
    if is_numpy(table):
        table[index] += rows
        return table
    return table.at[index].add(rows)


class Gradients(Mapping[str, Array]):
    """Gradients by the name of their parameter. A parameter that is used twice collects both contributions.

    The first contribution is stored, later ones are added, in any order: a tied weight cannot be forgotten. Where only
    some parameters are trained (`train_only`), the others need no gradient; a contribution to them is dropped.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]):
        self.shapes = shapes
        self.trainable: frozenset[str] | None = None  # names of the parameters that are trained; None: all of them
        self._arrays: dict[str, Array] = {}

    def train_only(self, names: frozenset[str] | None) -> None:
        """Collect only these gradients from now on; None: all of them."""
        self.trainable = names

    def needs(self, name: str) -> bool:
        """Whether the gradient of this parameter is collected."""
        return self.trainable is None or name in self.trainable

    def add_factors(self, name: str, dy: Array, x: Array, parameters: Mapping[str, Array]) -> bool:
        """Take the gradient dyᵀ x of a matrix as its two factors; False: the caller has to form the product.

        A subclass returns True where the matrix is computed from other parameters, as LoRA does: these get their
        gradients from the factors, and the product is never formed.
        """
        return False

    def clear(self) -> None:
        """Begin again for the next step."""
        self._arrays.clear()

    def buffer_for(self, name: str) -> Array | None:
        """Memory that may receive the first contribution to `name`, or None."""
        return None

    def add(self, name: str, value: Array | None) -> None:
        if value is not None and self.needs(name):
            self._arrays[name] = self._arrays[name] + value if name in self._arrays else value

    def add_rows(self, name: str, index: Any, rows: Array) -> None:
        """Add `rows` at `index` of a table, or those of the whole table. An index may be repeated only on MLX."""
        if not self.needs(name):
            return
        if index is None:
            self.add(name, rows)
            return
        table = self._arrays.get(name)
        if table is None:
            table = namespace(rows).zeros(self.shapes[name], dtype=rows.dtype)
        # float32: adding rows in 16 bits is 200 times slower on CUDA
        self._arrays[name] = scatter_rows(table.astype(rows.dtype), index, rows)

    def fill_missing(self) -> None:
        """Give every trained parameter without a contribution a gradient of zeros."""
        some = next(iter(self._arrays.values()))
        for name, shape in self.shapes.items():
            if name not in self._arrays and self.needs(name):
                self._arrays[name] = namespace(some).zeros(shape, dtype=some.dtype)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


class Content(enum.Enum):
    """What the buffer of a gradient holds."""

    ZERO = "zeros"
    ROWS = "zeros except in the rows that were added"
    FULL = "a gradient"
    STALE = "the gradient of an earlier step"


class FlatGradients(Gradients):
    """Gradients in a flat buffer that is used again in the next step: `clear` it and fill it again.

    Only a few rows of an embedding table get a gradient. These rows are remembered, so clearing costs as much as what
    was added and not the whole table.
    """

    def __init__(self, layout: Layout, dtype: np.dtype):
        super().__init__(layout.shapes)
        self.buffer = FlatArrays(layout, dtype)
        self._content = dict.fromkeys(layout.shapes, Content.ZERO)
        self._added_rows: dict[str, list[np.ndarray]] = {}

    @property
    def flat(self) -> np.ndarray:
        return self.buffer.flat

    def train_only(self, names: frozenset[str] | None) -> None:
        if names == self.trainable:
            return
        super().train_only(names)
        for name, content in self._content.items():
            if content is not Content.ZERO and not self.needs(name):  # sums over the buffer must find zeros
                self.buffer[name].fill(0)
                self._content[name] = Content.ZERO
                self._added_rows.pop(name, None)

    def clear(self) -> None:
        for name, content in self._content.items():
            if content is Content.ROWS:
                for index in self._added_rows[name]:
                    self.buffer[name][index] = 0
                self._content[name] = Content.ZERO
            elif content is Content.FULL:
                self._content[name] = Content.STALE
        self._added_rows.clear()

    def buffer_for(self, name: str) -> np.ndarray | None:
        free = self.needs(name) and self._content[name] in (Content.ZERO, Content.STALE)
        return self.buffer[name] if free else None

    def add(self, name: str, value: np.ndarray | None) -> None:
        if value is None or not self.needs(name):
            return
        buffer = self.buffer[name]
        if self._content[name] in (Content.ROWS, Content.FULL):
            buffer += value
        elif value is not buffer:
            buffer[...] = value
        self._content[name] = Content.FULL

    def add_rows(self, name: str, index: np.ndarray, rows: np.ndarray) -> None:
        if not self.needs(name):
            return
        buffer = self.buffer[name]
        if self._content[name] is Content.STALE:
            buffer.fill(0)
            self._content[name] = Content.ZERO
        buffer[index] += rows
        if self._content[name] is not Content.FULL:
            self._content[name] = Content.ROWS
            self._added_rows.setdefault(name, []).append(index)

    def nonzero_parts(self, trainable: frozenset[str] | None = None) -> list[np.ndarray]:
        """Flat arrays that together hold every entry that may not be zero, of all parameters or of `trainable`."""
        parts = []
        for name, content in self._content.items():
            if trainable is not None and name not in trainable:
                continue
            if content is Content.FULL:
                parts.append(self.buffer[name].reshape(-1))
            elif content is Content.ROWS:
                rows = np.unique(np.concatenate(self._added_rows[name]))
                parts.append(self.buffer[name][rows].reshape(-1))
        return parts

    def mark_all_full(self) -> None:
        """The caller has written into the whole flat buffer."""
        self._content = dict.fromkeys(self._content, Content.FULL)
        self._added_rows.clear()

    def fill_missing(self) -> None:
        for name, content in self._content.items():
            if content is Content.STALE:
                self.buffer[name].fill(0)
                self._content[name] = Content.ZERO

    def __getitem__(self, name: str) -> np.ndarray:
        return self.buffer[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.buffer)

    def __len__(self) -> int:
        return len(self.buffer)


class ThreadGradients(FlatGradients):
    """The contribution of one thread. Rows of tables are only collected, and added when the threads are reduced."""

    def __init__(self, layout: Layout, dtype: np.dtype):
        super().__init__(layout, dtype)
        self.rows: list[tuple[str, np.ndarray, np.ndarray]] = []

    def clear(self) -> None:
        super().clear()
        self.rows.clear()

    def add_rows(self, name: str, index: np.ndarray, rows: np.ndarray) -> None:
        if self.needs(name):
            self.rows.append((name, index, rows))

    def add_to(self, target: FlatGradients, names: list[str]) -> None:
        """Add the gradients of these parameters to `target`."""
        for name in names:
            if self._content[name] is Content.FULL:
                target.add(name, self.buffer[name])
