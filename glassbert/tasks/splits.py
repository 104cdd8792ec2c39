"""Train/validation splits and folds: seeded, stratified, and with equal texts on one side.

Examples with the same text (ignoring case and punctuation) form a group and stay together, and so do a text and its
parts: of the 58,599 different phrases of SST-2, 41,139 are part of a longer one. Otherwise the validation score would
partly measure memorisation. Groups are ordered by stratum, shuffled within each, and drawn at a fixed interval, so each
label keeps its share to within one group.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.reading.cells import as_number
from glassbert.tasks.data import TaskData
from glassbert.tasks.labels import label_name

BINS = 10
PART = 3  # words
CANDIDATES = 200  # longer texts that are searched for a part; texts that differ in a few words share most runs
NOT_WORDS = re.compile(r"(?:(?!-\d|(?<=\d)\.\d)[^\w])+")  # keeps -3 apart from 3, and 1.5 from 15


def normalised(text: str) -> str:
    """Without case, punctuation and repeated spaces: "Good  film!" becomes "good film". Punctuation alone stays."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return NOT_WORDS.sub(" ", folded).strip() or folded.strip()


def normalised_texts(data: TaskData) -> list[str]:
    """The normalised text of each example; for pairs both texts."""
    texts = [normalised(text) for text in data.texts]
    if data.pairs is None:
        return texts
    return [f"{first}\n{normalised(second)}" for first, second in zip(texts, data.pairs, strict=True)]


def train_dev_split(data: TaskData, dev: float = 0.1, seed: int = 0) -> tuple[TaskData, TaskData]:
    """(train, dev). Both keep the order of the examples."""
    if not 0 < dev < 1:
        raise InputError(f"dev, the share to hold out, must be between 0 and 1; got {dev}")
    groups, order = _text_groups(data, seed)
    # Group i is drawn where floor(i·dev) increases: evenly spaced, with a random offset.
    offset = np.random.default_rng(seed).random()
    drawn = np.floor((np.arange(len(order)) + offset + 1) * dev) > np.floor((np.arange(len(order)) + offset) * dev)
    if not drawn.any() or drawn.all():
        raise InputError(f"{data.source}: {len(order)} different texts are too few to hold out {dev:.0%} of them")
    chosen = np.zeros(len(order), bool)
    chosen[order[drawn]] = True
    held = chosen[groups]
    return data.select(np.flatnonzero(~held)), data.select(np.flatnonzero(held))


def folds(data: TaskData, count: int = 5, seed: int = 0) -> list[tuple[TaskData, TaskData]]:
    """`count` pairs (train, dev); every example is in exactly one dev part."""
    member = fold_numbers(data, count, seed)
    return [(data.select(np.flatnonzero(member != k)), data.select(np.flatnonzero(member == k))) for k in range(count)]


def fold_numbers(data: TaskData, count: int, seed: int = 0) -> np.ndarray:
    """The fold of each example, from 0 to `count` - 1."""
    groups, order = _text_groups(data, seed)
    if not 2 <= count <= len(order):
        raise InputError(f"{data.source}: the number of folds must be between 2 and {len(order)}; got {count}")
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % count
    return fold[groups]


def whole_texts(texts: Sequence[str]) -> dict[str, str]:
    """For each text the longest one that contains it, word by word; itself, if there is none.

    Texts of fewer than `PART` words are part of too many others to belong to one of them.
    """
    found: dict[str, str] = {}
    places: dict[tuple[str, ...], list[str]] = {}  # PART words in a row -> the whole texts that have them
    for text in sorted(set(texts), key=lambda text: (-len(text.split()), text)):
        words = text.split()
        runs = {tuple(words[start : start + PART]) for start in range(len(words) - PART + 1)}
        fewest = min((places.get(run, []) for run in runs), key=len, default=[])
        found[text] = next((longer for longer in fewest[:CANDIDATES] if f" {text} " in f" {longer} "), text)
        if found[text] == text:
            for run in runs:
                places.setdefault(run, []).append(text)
    return found


def _text_groups(data: TaskData, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The group index of every example, and the groups in the order of drawing."""
    texts = normalised_texts(data)
    if data.pairs is None and data.template is None:
        whole = whole_texts(texts)
        texts = [whole[text] for text in texts]
    _, first, groups = np.unique(np.array(texts, object), return_index=True, return_inverse=True)
    strata = _strata(data)[first]
    order = np.random.default_rng(seed).permutation(len(first))
    return groups, order[np.argsort(strata[order], kind="stable")]


def _strata(data: TaskData) -> np.ndarray:
    """The stratum of each example: its label, the rarest of its labels, or the decile of its number."""
    values, kind = data.targets, data.kind
    if values is None or kind in (None, "tokens", "series"):
        return np.zeros(len(data), np.int64)
    if kind == "regression":
        numbers = np.array([as_number(value) or 0.0 for value in values])
        return np.searchsorted(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]), numbers)
    names = _rarest_labels(values) if kind == "multilabel" else [label_name(value) for value in values]
    return np.unique(names, return_inverse=True)[1]


def _rarest_labels(values: Sequence[Sequence[Any]]) -> list[str]:
    names = [[label_name(label) for label in labels] for labels in values]
    counts: dict[str, int] = {}
    for name in (name for labels in names for name in labels):
        counts[name] = counts.get(name, 0) + 1
    return [min(labels, key=lambda name: (counts[name], name), default="") for labels in names]
