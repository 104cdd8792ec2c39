"""Name tables: which tensors of a file hold each of our parameters, and matching the tensors of a file by them.

A table maps our name, a template, to an `Entry` of names in the file. `{layer}` is 0, 1, 2, ..., `{part}` is "weight"
or "bias", and `{core}` is the prefix of the encoder inside a model with a head ("bert." or "model.").
The same table is used for reading and writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from glassbert.checkpoints.stored import StoredTensor
from glassbert.errors import CheckpointError

PARTS = ("weight", "bias")
LISTED_NAMES = 5


class Entry(NamedTuple):
    """The names of one of our parameters in a file.

    theirs  stacked along the first axis, these tensors are our parameter
    tied    other names of the same parameter: never written, and equal to `theirs` where a file has them
    copies  written in addition, and read only if `theirs` is missing
    transposed  whether the file stores matrices as [input, output]
    by_heads    whether the file stores the last axis as two, [heads, features of a head]
    """

    theirs: tuple[str, ...]
    tied: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    transposed: bool = False
    by_heads: bool = False

    def all_names(self) -> tuple[str, ...]:
        return self.theirs + self.tied + self.copies

    def fill(self, **values: str | int) -> Entry:
        theirs, tied, copies = (tuple(name.format(**values) for name in names) for names in self[:3])
        return Entry(theirs, tied, copies, self.transposed, self.by_heads)

    def laid_out(self, values: np.ndarray, heads: int) -> np.ndarray:
        """One of our matrices as the file stores it."""
        values = values.T if self.transposed else values
        return values.reshape(values.shape[0], heads, -1) if self.by_heads else values


Table = Mapping[str, Entry]


def one(name: str, tied: tuple[str, ...] = (), copies: tuple[str, ...] = ()) -> Entry:
    return Entry((name,), tied, copies)


def stacked(*names: str) -> Entry:
    return Entry(names)


def transposed(name: str) -> Entry:
    """One tensor that the file stores as [input, output]; our matrices are [output, input]."""
    return Entry((name,), transposed=True)


def by_heads(*names: str, transposed: bool = True) -> Entry:
    """Tensors [input, heads, features], stacked; with transposed=False [output, heads, features]."""
    return Entry(names, transposed=transposed, by_heads=True)


class LaidOut:
    """A stored tensor in our layout: heads joined, and the axes reversed where it is transposed."""

    def __init__(self, tensor: StoredTensor, entry: Entry):
        self.tensor, self.name, self.entry = tensor, tensor.name, entry
        shape = tensor.shape
        if entry.by_heads:
            shape = (shape[0], int(np.prod(shape[1:], dtype=np.int64))) if len(shape) == 3 else ()
        self.shape = shape[::-1] if entry.transposed else shape

    def read(self) -> np.ndarray:
        values = self.tensor.read()
        values = values.reshape(values.shape[0], -1) if self.entry.by_heads else values
        return np.ascontiguousarray(values.T if self.entry.transposed else values)

    def require_float(self) -> None:
        self.tensor.require_float()


def fill_names(names: Iterable[str]) -> set[str]:
    """Names outside the layers, with `{part}` filled in and without prefix."""
    return {name.format(core="", part=part) for name in names for part in PARTS}


def fill_table(table: Table, layers: int, core: str) -> dict[str, Entry]:
    """The table of a model with so many layers, with all templates filled in."""
    filled = {}
    for ours, entry in table.items():
        for layer in range(layers) if "{layer}" in ours else (0,):
            for part in PARTS if "{part}" in ours else PARTS[:1]:
                filled[ours.format(layer=layer, part=part)] = entry.fill(core=core, layer=layer, part=part)
    return filled


# ---- matching parameters with the tensors of a file ------------------------------------------------------------------


class Match(NamedTuple):
    """The tensors of each parameter in stacking order, the parameters without tensors, and the unused tensors."""

    sources: dict[str, list[StoredTensor | LaidOut]]
    missing: list[str]
    unused: list[str]


def match(
    entries: Mapping[str, Entry], shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, StoredTensor]
) -> Match:
    """Find the tensors of every parameter; a wrong shape or type raises `CheckpointError`."""
    sources: dict[str, list[StoredTensor | LaidOut]] = {}
    used: set[str] = set()
    for ours, entry in entries.items():
        used.update(entry.all_names())
        complete = all(name in tensors for name in entry.theirs)
        alternatives = [name for name in entry.copies + entry.tied if name in tensors]
        if complete or alternatives:
            names = entry.theirs if complete else tuple(alternatives[:1])
            found = [tensors[name] for name in names]
            changed = entry.transposed or entry.by_heads
            sources[ours] = [LaidOut(tensor, entry) for tensor in found] if changed else list(found)
            _check(sources[ours], shapes[ours])
            _check_tied(sources[ours][0], [tensors[name] for name in entry.tied if name in tensors])
    missing = [ours for ours in shapes if ours not in sources]
    return Match(sources, missing, [name for name in tensors if name not in used])


def _check(parts: Sequence[StoredTensor | LaidOut], shape: tuple[int, ...]) -> None:
    wanted = (shape[0] // len(parts), *shape[1:])
    for part in parts:
        if part.shape != wanted:
            raise CheckpointError(
                f"tensor {part.name!r} has the shape {list(part.shape)}, but config.json makes it {list(wanted)}"
            )
        part.require_float()


def _check_tied(first: StoredTensor | LaidOut, others: list[StoredTensor]) -> None:
    for other in others:
        if other.shape != first.shape or not np.array_equal(other.read(), first.read(), equal_nan=True):
            raise CheckpointError(
                f"config.json ties {other.name!r} to {first.name!r}, but the file has other values there; if they are "
                f"meant to differ, set tie_word_embeddings to false in config.json, otherwise remove {other.name!r}"
            )


def read_values(parts: Sequence[StoredTensor | LaidOut]) -> np.ndarray:
    """The values of a parameter: its tensors, stacked."""
    values = [part.read() for part in parts]
    return values[0] if len(values) == 1 else np.concatenate(values)


def list_names(names: list[str]) -> str:
    """The first few names, and the number of the others."""
    more = len(names) - LISTED_NAMES
    return ", ".join(names[:LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")
