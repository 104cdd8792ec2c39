"""Indexing of symbols: slices, whole numbers, new axes, and one array of indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glassbert.engines.recording.sizes import Size
from glassbert.engines.recording.symbols import Symbol
from glassbert.errors import EngineError

END, START = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def item(functions: Any, x: Symbol, key: Any) -> Symbol:
    """x[key]: first the slices, then the axes of single indices and of an array, then new axes."""
    keys = _complete(key if isinstance(key, tuple) else (key,), x.ndim)
    axis, slices, picks, new = 0, {}, [], []
    for place, one in enumerate(keys):
        if one is None:
            new.append(place - sum(isinstance(k, (int, np.integer)) for k in keys[:place]))
            continue
        if isinstance(one, slice):
            slices[axis] = one
        else:
            picks.append((axis, one))
        axis += 1
    arrays = [one for _, one in picks if not isinstance(one, (int, np.integer))]
    if len(arrays) > 1 or (arrays and new):
        raise EngineError("a recorded graph indexes by one array at a time, and without new axes")
    x = _sliced(functions, x, slices)
    for axis, one in reversed(picks):
        index = functions.symbol(one)
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        x = functions.graph.add("Gather", [x, index], x.dtype, shape, axis=axis)
    for axis in new:
        x = functions.expand_dims(x, axis)
    return x


def _complete(key: tuple[Any, ...], axes: int) -> list[Any]:
    """The key with full slices in place of `...` and at the end."""
    given = sum(one is not None and one is not Ellipsis for one in key)
    rest = [slice(None)] * (axes - given)
    place = next((i for i, one in enumerate(key) if one is Ellipsis), None)
    return [*key, *rest] if place is None else [*key[:place], *rest, *key[place + 1 :]]


def _sliced(functions: Any, x: Symbol, slices: dict[int, slice]) -> Symbol:
    shape, starts, stops, axes, steps = list(x.shape), [], [], [], []
    for axis, one in slices.items():
        size, step = x.shape[axis], one.step or 1
        length = slice_length(size, one)
        if step == 1 and length == size:
            continue
        shape[axis] = length
        first, last = (END, START) if step < 0 else (0, END)
        starts.append(first if one.start is None else one.start)
        stops.append(last if one.stop is None else one.stop)
        axes.append(axis)
        steps.append(step)
    if not axes:
        return x
    graph = functions.graph
    inputs = [x, graph.sizes(starts), graph.sizes(stops), graph.sizes(axes), graph.sizes(steps)]
    return graph.add("Slice", inputs, x.dtype, shape)


def slice_length(size: Any, part: slice) -> Any:
    """The size of a slice of an axis. A number of an unknown axis is taken to be inside it."""
    step = part.step or 1
    ends = [one for one in (size, part.start, part.stop) if isinstance(one, Size)]
    if not ends:
        return len(range(*part.indices(size)))
    if step < 0:
        if part.start is not None or part.stop is not None:
            raise EngineError("a recorded slice backwards takes the whole axis")
        return size
    start, stop = (_from_the_left(one, size) for one in (part.start or 0, size if part.stop is None else part.stop))
    length = stop - start
    if step == 1:
        return length
    return length // step if isinstance(length, Size) and len(length.terms) == 1 else _stepped(length, step)


def _stepped(length: Any, step: int) -> Any:
    """Rows 1, 3, 5, ... of an even number of rows are half of them."""
    if isinstance(length, Size):
        return (length + length.terms.get((), 0).numerator * -1) // step
    return math.ceil(length / step)


def _from_the_left(place: Any, size: Any) -> Any:
    return size + place if isinstance(place, int) and place < 0 else place
