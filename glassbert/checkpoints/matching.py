"""Every parameter of a model finds its tensors in a file, or we say which one does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from glassbert.checkpoints.names import Entry
from glassbert.checkpoints.stored import StoredTensor
from glassbert.errors import CheckpointError

NAMED_AT_MOST = 5


class Match(NamedTuple):
    """The tensors of each parameter, in the order in which they are stacked, and the parameters that have none."""

    sources: dict[str, list[StoredTensor]]
    missing: list[str]
    unused: list[str]


def match(
    entries: Mapping[str, Entry], shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, StoredTensor]
) -> Match:
    sources: dict[str, list[StoredTensor]] = {}
    used: set[str] = set()
    for ours, entry in entries.items():
        used.update(entry.all_names())
        complete = all(name in tensors for name in entry.theirs)
        instead = [name for name in entry.copies + entry.tied if name in tensors]
        if complete or instead:
            names = entry.theirs if complete else tuple(instead[:1])
            sources[ours] = [tensors[name] for name in names]
            _check(sources[ours], shapes[ours])
            _check_tied(sources[ours][0], [tensors[name] for name in entry.tied if name in tensors])
    missing = [ours for ours in shapes if ours not in sources]
    return Match(sources, missing, [name for name in tensors if name not in used])


def _check(parts: list[StoredTensor], shape: tuple[int, ...]) -> None:
    wanted = (shape[0] // len(parts), *shape[1:])
    for part in parts:
        if part.shape != wanted:
            raise CheckpointError(
                f"tensor {part.name!r} has the shape {list(part.shape)}, but config.json makes it {list(wanted)}"
            )
        part.require_float()


def _check_tied(first: StoredTensor, others: list[StoredTensor]) -> None:
    for other in others:
        if other.shape != first.shape or not np.array_equal(other.read(), first.read(), equal_nan=True):
            raise CheckpointError(
                f"config.json ties {other.name!r} to {first.name!r}, but the file has other values there; if they are "
                f"meant to differ, set tie_word_embeddings to false in config.json, otherwise remove {other.name!r}"
            )


def read_values(parts: list[StoredTensor]) -> np.ndarray:
    """The parameter itself: its tensors, stacked."""
    values = [part.read() for part in parts]
    return values[0] if len(values) == 1 else np.concatenate(values)


def some(names: list[str]) -> str:
    """The names, or the first few of them and how many more there are."""
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
