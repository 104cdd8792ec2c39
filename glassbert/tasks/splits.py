"""Train and validation parts, and folds: seeded, stratified, and without the same text on both sides.

Examples with the same text (but for case and punctuation) stay together; otherwise the validation score would be partly
a score of memory. The groups are laid out stratum by stratum, shuffled inside each, and every so-manieth is drawn, so
that each label is represented by its share, to within one example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.tasks.data import TaskData
from glassbert.tasks.labels import label_name
from glassbert.tasks.normalised import normalised_texts
from glassbert.tasks.table import as_number

BINS = 10


def train_dev_split(data: TaskData, dev: float = 0.1, seed: int = 0) -> tuple[TaskData, TaskData]:
    """Two parts that together are the data; the order of the examples is kept."""
    if not 0 < dev < 1:
        raise InputError(f"dev is the share that is held out, between 0 and 1; got {dev}")
    groups, order = _layout(data, seed)
    # Of n groups in a row, those at which floor(i·dev) grows: evenly spread, the first one by chance.
    offset = np.random.default_rng(seed).random()
    drawn = np.floor((np.arange(len(order)) + offset + 1) * dev) > np.floor((np.arange(len(order)) + offset) * dev)
    if not drawn.any() or drawn.all():
        raise InputError(f"{data.source}: {len(order)} different texts are too few to hold out {dev:.0%} of them")
    chosen = np.zeros(len(order), bool)
    chosen[order[drawn]] = True
    held = chosen[groups]
    return data.select(np.flatnonzero(~held)), data.select(np.flatnonzero(held))


def folds(data: TaskData, count: int = 5, seed: int = 0) -> list[tuple[TaskData, TaskData]]:
    """`count` times (train, dev); every example is in exactly one dev part."""
    groups, order = _layout(data, seed)
    if not 2 <= count <= len(order):
        raise InputError(f"{data.source}: the number of folds must be between 2 and {len(order)}; got {count}")
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % count
    member = fold[groups]
    return [(data.select(np.flatnonzero(member != k)), data.select(np.flatnonzero(member == k))) for k in range(count)]


def _layout(data: TaskData, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The group of every example, and the groups in the order they are drawn from."""
    _, first, groups = np.unique(np.array(normalised_texts(data), object), return_index=True, return_inverse=True)
    strata = _strata(data)[first]
    order = np.random.default_rng(seed).permutation(len(first))
    return groups, order[np.argsort(strata[order], kind="stable")]


def _strata(data: TaskData) -> np.ndarray:
    """A number for each example: its label, the rarest of its labels, or the tenth of the range its number lies in."""
    values, kind = data.targets, data.kind
    if values is None or kind in (None, "tokens", "series"):
        return np.zeros(len(data), np.int64)
    if kind == "regression":
        numbers = np.array([as_number(value) or 0.0 for value in values])
        return np.searchsorted(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]), numbers)
    return np.unique(_rarest(values) if kind == "multilabel" else [label_name(v) for v in values], return_inverse=True)[
        1
    ]


def _rarest(values: Sequence[Sequence[Any]]) -> list[str]:
    names = [[label_name(label) for label in labels] for labels in values]
    counts: dict[str, int] = {}
    for name in (name for labels in names for name in labels):
        counts[name] = counts.get(name, 0) + 1
    return [min(labels, key=lambda name: (counts[name], name), default="") for labels in names]
