"""Labels of a probe task as arrays, the control task with random labels, and the majority baseline.

Words of dev whose label is not in the training set count as wrong. The control task of Hewitt and Liang gives every
word type (ignoring case) one random label, drawn with the frequencies of the true ones. It can only be memorised, so
the accuracy on it measures how much a probe memorises. Selectivity is the accuracy on the true task minus that on the
control task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.evaluation.probes.tasks import ProbeTask
from glassbert.tasks.labels import label_name
from glassbert.tasks.table import Table

UNSEEN = -1


@dataclass(frozen=True)
class Questions:
    """Labelled words. Row r is word `words[r]`, counted over all sentences. Train and dev share `names` and types."""

    words: np.ndarray
    heads: np.ndarray  # index of the head among all words; the word itself for the root; -1 if not annotated
    labels: np.ndarray  # index in `names`, or UNSEEN; for "heads" the position of the head in its sentence
    types: np.ndarray  # id of the lower-case word form
    sentences: np.ndarray
    names: tuple[str, ...]
    starts: np.ndarray  # first word of each sentence

    def __len__(self) -> int:
        return len(self.words)

    @property
    def unseen(self) -> int:
        return int((self.labels == UNSEEN).sum())

    def select(self, rows: np.ndarray) -> Questions:
        by_row = ("words", "heads", "labels", "types", "sentences")
        return replace(self, **{name: getattr(self, name)[rows] for name in by_row})

    def with_labels(self, labels: np.ndarray) -> Questions:
        return replace(self, labels=labels)


def make_questions(task: ProbeTask, train: Table, dev: Table) -> tuple[Questions, Questions]:
    """The labelled words of both sets. The label names come from the training set."""
    given = [task.labels(table) for table in (train, dev)]
    names: tuple[str, ...] = ()
    if task.of != "heads":
        names = tuple(sorted({label_name(label) for row in given[0] for label in row if label is not None}))
        if len(names) < 2:
            found = f"only {names[0]!r}" if names else "none"
            raise InputError(f"{train.source}: the probe {task.name!r} needs at least two labels and finds {found}")
    forms: dict[str, int] = {}
    both = [_questions(task, table, labels, names, forms) for table, labels in zip((train, dev), given, strict=True)]
    for table, questions in zip((train, dev), both, strict=True):
        if not len(questions):
            raise InputError(f"{table.source}: the probe {task.name!r} has a label for no word of it")
    return both[0], both[1]


def _questions(
    task: ProbeTask, table: Table, labels: list[list[Any]], names: Sequence[str], forms: dict[str, int]
) -> Questions:
    sentences = table.column("words")
    starts = np.concatenate([[0], np.cumsum([len(words) for words in sentences])])
    number = {name: index for index, name in enumerate(names)}
    given = table.column("head") if task.of != "words" else [[None] * len(words) for words in sentences]
    rows = []
    for sentence, (words, tags, heads) in enumerate(zip(sentences, labels, given, strict=True)):
        for position, (word, tag, head) in enumerate(zip(words, tags, heads, strict=True)):
            if tag is None:
                continue
            index = int(starts[sentence]) + position
            head_index = -1 if head is None else index if head == 0 else int(starts[sentence]) + head - 1
            if task.of == "heads":
                label = int(tag) - 1 if int(tag) else position  # the root is its own head
                head_index = int(starts[sentence]) + label
            else:
                label = number.get(label_name(tag), UNSEEN)
            rows.append((index, head_index, label, forms.setdefault(word.casefold(), len(forms)), sentence))
    columns = np.array(rows, np.int64).reshape(-1, 5).T  # words, heads, labels, types, sentences
    return Questions(columns[0], columns[1], columns[2], columns[3], columns[4], tuple(names), starts)


def control(train: Questions, dev: Questions, seed: int = 0) -> tuple[Questions, Questions]:
    """The control task: every word type gets one random label."""
    frequencies = np.bincount(train.labels[train.labels >= 0], minlength=len(train.names))
    types = 1 + max(int(train.types.max()), int(dev.types.max()))
    drawn = np.random.default_rng(seed).choice(len(train.names), types, p=frequencies / frequencies.sum())
    return train.with_labels(drawn[train.types]), dev.with_labels(drawn[dev.types])


def control_heads(train: Questions, dev: Questions, seed: int = 0) -> tuple[Questions, Questions]:
    """The control task for heads: for every word type the head is the word itself, the first or the last word."""
    types = 1 + max(int(train.types.max()), int(dev.types.max()))
    rules = np.random.default_rng(seed).integers(0, 3, types)
    return _with_rules(train, rules), _with_rules(dev, rules)


def _with_rules(questions: Questions, rules: np.ndarray) -> Questions:
    first, end = questions.starts[questions.sentences], questions.starts[questions.sentences + 1]
    choices = np.stack([questions.words - first, np.zeros_like(first), end - first - 1])
    return questions.with_labels(choices[rules[questions.types], np.arange(len(questions))])


def majority(train: Questions, dev: Questions) -> np.ndarray:
    """The most frequent training label of every word type of dev; for unknown words the most frequent of all."""
    known = train.labels >= 0
    best = _most_common(train.types[known], train.labels[known], 1 + int(max(train.types.max(), dev.types.max())))
    commonest = np.bincount(train.labels[known]).argmax()
    return np.where(best[dev.types] == UNSEEN, commonest, best[dev.types])


def majority_heads(train: Questions, dev: Questions) -> np.ndarray:
    """Heads of dev predicted by the most frequent head distance of the word type, as positions in the sentence."""

    def position(questions: Questions) -> np.ndarray:
        return questions.words - questions.starts[questions.sentences]

    distances = train.labels - position(train)
    shift = -int(distances.min())
    best = _most_common(train.types, distances + shift, 1 + int(max(train.types.max(), dev.types.max())))
    commonest = np.bincount(distances + shift).argmax()
    distance = np.where(best[dev.types] == UNSEEN, commonest, best[dev.types]) - shift
    sizes = np.diff(dev.starts)[dev.sentences]
    return np.clip(position(dev) + distance, 0, sizes - 1)


def _most_common(groups: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """[count] the most frequent value of each group, the lowest on ties; UNSEEN if the group is empty."""
    width = int(values.max()) + 1
    pairs, times = np.unique(groups * width + values, return_counts=True)
    order = np.lexsort((pairs, -times))
    owner, first = np.unique(pairs[order] // width, return_index=True)
    best = np.full(count, UNSEEN)
    best[owner] = pairs[order][first] % width
    return best
