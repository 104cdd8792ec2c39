"""Name tables: where a file keeps each of our parameters.

A table maps our name, a template, to an `Entry` of names in the file. `{layer}` stands for 0, 1, 2, ..., `{part}` for
weight and bias, and `{core}` for the prefix that the encoder has inside a model with a head ("bert." or "model.").
The same table serves reading and writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

PARTS = ("weight", "bias")


class Entry(NamedTuple):
    """Where a file keeps one of our parameters.

    Several names in `theirs` are stacked along the first axis to give ours. A name in `tied` is the same parameter
    once more: never written, and equal to the first where a file has it. A name in `copies` is written beside the
    first, and read only where the first is missing.
    """

    theirs: tuple[str, ...]
    tied: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    def all_names(self) -> tuple[str, ...]:
        return self.theirs + self.tied + self.copies

    def fill(self, **values: str | int) -> Entry:
        return Entry(*(tuple(name.format(**values) for name in names) for names in self))


Table = Mapping[str, Entry]


def one(name: str, tied: tuple[str, ...] = (), copies: tuple[str, ...] = ()) -> Entry:
    return Entry((name,), tied, copies)


def stacked(*names: str) -> Entry:
    return Entry(names)


def fill_names(names: Iterable[str]) -> set[str]:
    """Names outside the layers, with `{part}` filled in and without prefix."""
    return {name.format(core="", part=part) for name in names for part in PARTS}


def fill_table(table: Table, layers: int, core: str) -> dict[str, Entry]:
    """The table of a model with so many layers: no template is left in it."""
    filled = {}
    for ours, entry in table.items():
        for layer in range(layers) if "{layer}" in ours else (0,):
            for part in PARTS if "{part}" in ours else PARTS[:1]:
                filled[ours.format(layer=layer, part=part)] = entry.fill(core=core, layer=layer, part=part)
    return filled
