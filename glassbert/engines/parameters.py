"""Where parameters and gradients live.

On NumPy all parameters of a model lie in one flat buffer, and so do all gradients; a named array is a view into it.
An optimizer can then walk the flat buffers in cache-sized pieces, and a product can be written straight into the place
of its gradient. On MLX arrays are values, not places: there a plain dictionary does.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from glassbert.engines.namespace import Array, namespace

ALIGNMENT = 16  # elements: every array begins on a cache line


class Layout:
    """The place of every named array in a flat buffer."""

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


class FlatArrays(Mapping[str, np.ndarray]):
    """Named views into one flat buffer. Assigning copies into the place; the shape must fit."""

    def __init__(self, layout: Layout, dtype: np.dtype):
        self.layout = layout
        self.flat = np.zeros(layout.size, dtype)
        self._views = {name: layout.view(self.flat, name) for name in layout.shapes}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._views[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._views[name][...] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


class Gradients(Mapping[str, Array]):
    """Gradients by the name of their parameter. A parameter used twice collects both contributions.

    The first contribution is stored, later ones are added, whoever comes first: a tied weight cannot be forgotten.
    Where some parameters stand still (`learn_only`), nobody needs to compute their gradients; what comes nevertheless
    is dropped.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]):
        self.shapes = shapes
        self.learning: frozenset[str] | None = None  # the parameters whose gradient is wanted; None: all of them
        self._arrays: dict[str, Array] = {}

    def learn_only(self, names: frozenset[str] | None) -> None:
        """From now on only these gradients are wanted; None: all of them."""
        self.learning = names

    def wants(self, name: str) -> bool:
        return self.learning is None or name in self.learning

    def add_product(self, name: str, dy: Array, x: Array, parameters: Mapping[str, Array]) -> bool:
        """Offered the gradient dyᵀ x of a matrix as its two factors, and what the pass was computed with.

        Taken (True) where the matrix is a function of others, which learn from the factors; else it has to be formed.
        """
        return False

    def clear(self) -> None:
        """Begin anew for the next step."""
        self._arrays.clear()

    def place(self, name: str) -> Array | None:
        """Memory that may receive the first contribution to `name`, or None."""
        return None

    def add(self, name: str, value: Array | None) -> None:
        if value is not None and self.wants(name):
            self._arrays[name] = self._arrays[name] + value if name in self._arrays else value

    def add_rows(self, name: str, index: Array, rows: Array) -> None:
        """Add `rows` at `index` of a table. An index may occur more than once only on MLX."""
        if not self.wants(name):
            return
        table = self._arrays.get(name)
        if table is None:
            table = namespace(rows).zeros(self.shapes[name], dtype=rows.dtype)
        self._arrays[name] = table.astype(rows.dtype).at[index].add(rows)  # in float32: 16 bits are 200 times slower

    def finish(self) -> None:
        """Give every parameter that learns and took no part a gradient of zeros."""
        some = next(iter(self._arrays.values()))
        for name, shape in self.shapes.items():
            if name not in self._arrays and self.wants(name):
                self._arrays[name] = namespace(some).zeros(shape, dtype=some.dtype)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


class State(enum.Enum):
    """What the place of a gradient holds."""

    ZERO = "zeros"
    ROWS = "zeros but for the touched rows"
    FULL = "a gradient"
    STALE = "what an earlier step left there"


class FlatGradients(Gradients):
    """Gradients in a flat buffer that serves again in the next step: `clear` it and fill it anew.

    A table of embeddings is touched in a few rows only. Those rows are remembered, so that clearing costs what was
    touched and not the whole table.
    """

    def __init__(self, layout: Layout, dtype: np.dtype):
        super().__init__(layout.shapes)
        self.buffer = FlatArrays(layout, dtype)
        self._state = dict.fromkeys(layout.shapes, State.ZERO)
        self._touched: dict[str, list[np.ndarray]] = {}

    @property
    def flat(self) -> np.ndarray:
        return self.buffer.flat

    def learn_only(self, names: frozenset[str] | None) -> None:
        if names == self.learning:
            return
        super().learn_only(names)
        for name, state in self._state.items():
            if state is not State.ZERO and not self.wants(name):  # whoever looks or sums finds zeros
                self.buffer[name].fill(0)
                self._state[name] = State.ZERO
                self._touched.pop(name, None)

    def clear(self) -> None:
        for name, state in self._state.items():
            if state is State.ROWS:
                for index in self._touched[name]:
                    self.buffer[name][index] = 0
                self._state[name] = State.ZERO
            elif state is State.FULL:
                self._state[name] = State.STALE
        self._touched.clear()

    def place(self, name: str) -> np.ndarray | None:
        free = self.wants(name) and self._state[name] in (State.ZERO, State.STALE)
        return self.buffer[name] if free else None

    def add(self, name: str, value: np.ndarray | None) -> None:
        if value is None or not self.wants(name):
            return
        place = self.buffer[name]
        if self._state[name] in (State.ROWS, State.FULL):
            place += value
        elif value is not place:
            place[...] = value
        self._state[name] = State.FULL

    def add_rows(self, name: str, index: np.ndarray, rows: np.ndarray) -> None:
        if not self.wants(name):
            return
        place = self.buffer[name]
        if self._state[name] is State.STALE:
            place.fill(0)
            self._state[name] = State.ZERO
        place[index] += rows
        if self._state[name] is not State.FULL:
            self._state[name] = State.ROWS
            self._touched.setdefault(name, []).append(index)

    def parts_that_count(self, learning: frozenset[str] | None = None) -> list[np.ndarray]:
        """Flat arrays that together hold every entry that may not be zero, of all parameters or of these."""
        parts = []
        for name, state in self._state.items():
            if learning is not None and name not in learning:
                continue
            if state is State.FULL:
                parts.append(self.buffer[name].reshape(-1))
            elif state is State.ROWS:
                rows = np.unique(np.concatenate(self._touched[name]))
                parts.append(self.buffer[name][rows].reshape(-1))
        return parts

    def everything_counts(self) -> None:
        """Somebody has written into the whole flat buffer: every gradient is full."""
        self._state = dict.fromkeys(self._state, State.FULL)
        self._touched.clear()

    def finish(self) -> None:
        for name, state in self._state.items():
            if state is State.STALE:
                self.buffer[name].fill(0)
                self._state[name] = State.ZERO

    def __getitem__(self, name: str) -> np.ndarray:
        return self.buffer[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.buffer)

    def __len__(self) -> int:
        return len(self.buffer)


class ShardGradients(FlatGradients):
    """What one thread contributes to a step. Rows of tables are only noted, and added when the shards are merged."""

    def __init__(self, layout: Layout, dtype: np.dtype):
        super().__init__(layout, dtype)
        self.rows: list[tuple[str, np.ndarray, np.ndarray]] = []

    def clear(self) -> None:
        super().clear()
        self.rows.clear()

    def add_rows(self, name: str, index: np.ndarray, rows: np.ndarray) -> None:
        if self.wants(name):
            self.rows.append((name, index, rows))

    def pour_into(self, target: FlatGradients, names: list[str]) -> None:
        for name in names:
            if self._state[name] is State.FULL:
                target.add(name, self.buffer[name])
