"""Words and labels as numbers, in training and in the set that decides; and the same questions with random answers.

A label that training never saw cannot be answered: such words stay in the denominator, and are counted. The control
task of Hewitt and Liang gives every type of word (whatever its case) one random label, drawn with the frequencies of
the true ones. It can be learned only by remembering words, so what a probe gets right in it tells how much it could
remember: the difference to the true task is its selectivity.
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
    """Row r asks about word `words[r]`, counted over all sentences. Two sets share `names` and the numbers of types."""

    words: np.ndarray
    heads: np.ndarray  # the head's number among all words; the word itself for the root; -1 where nobody said
    labels: np.ndarray  # a place in `names`, or UNSEEN; for "heads" that of the head within its sentence
    types: np.ndarray  # the number of the word's form, whatever its case
    sentences: np.ndarray
    names: tuple[str, ...]
    starts: np.ndarray  # where the words of each sentence begin

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


def ask(task: ProbeTask, train: Table, dev: Table) -> tuple[Questions, Questions]:
    """The questions of both sets. The labels are those of training."""
    given = [task.labels(table) for table in (train, dev)]
    names: tuple[str, ...] = ()
    if task.of != "heads":
        names = tuple(sorted({label_name(label) for row in given[0] for label in row if label is not None}))
        if len(names) < 2:
            found = f"only {names[0]!r}" if names else "none at all"
            raise InputError(f"{train.source}: the probe {task.name!r} needs two labels or more, and there is {found}")
    forms: dict[str, int] = {}
    both = [_number(task, table, labels, names, forms) for table, labels in zip((train, dev), given, strict=True)]
    for table, questions in zip((train, dev), both, strict=True):
        if not len(questions):
            raise InputError(f"{table.source}: the probe {task.name!r} asks about no word of it")
    return both[0], both[1]


def _number(
    task: ProbeTask, table: Table, labels: list[list[Any]], names: Sequence[str], forms: dict[str, int]
) -> Questions:
    sentences = table.column("words")
    starts = np.concatenate([[0], np.cumsum([len(words) for words in sentences])])
    number = {name: place for place, name in enumerate(names)}
    given = table.column("head") if task.of != "words" else [[None] * len(words) for words in sentences]
    rows = []
    for sentence, (words, tags, heads) in enumerate(zip(sentences, labels, given, strict=True)):
        for place, (word, tag, head) in enumerate(zip(words, tags, heads, strict=True)):
            if tag is None:
                continue
            at = int(starts[sentence]) + place
            over = -1 if head is None else at if head == 0 else int(starts[sentence]) + head - 1
            if task.of == "heads":
                label = int(tag) - 1 if int(tag) else place  # the root is its own head
                over = int(starts[sentence]) + label
            else:
                label = number.get(label_name(tag), UNSEEN)
            rows.append((at, over, label, forms.setdefault(word.casefold(), len(forms)), sentence))
    place_, over_, label_, type_, sentence_ = np.array(rows, np.int64).reshape(-1, 5).T
    return Questions(place_, over_, label_, type_, sentence_, tuple(names), starts)


def control(train: Questions, dev: Questions, seed: int = 0) -> tuple[Questions, Questions]:
    """The same questions, each type of word with a label drawn at random."""
    frequencies = np.bincount(train.labels[train.labels >= 0], minlength=len(train.names))
    types = 1 + max(int(train.types.max()), int(dev.types.max()))
    drawn = np.random.default_rng(seed).choice(len(train.names), types, p=frequencies / frequencies.sum())
    return train.with_labels(drawn[train.types]), dev.with_labels(drawn[dev.types])


def control_heads(train: Questions, dev: Questions, seed: int = 0) -> tuple[Questions, Questions]:
    """Each type of word has one habit: its head is itself, the first word of the sentence, or the last."""
    types = 1 + max(int(train.types.max()), int(dev.types.max()))
    habits = np.random.default_rng(seed).integers(0, 3, types)
    return _with_habits(train, habits), _with_habits(dev, habits)


def _with_habits(questions: Questions, habits: np.ndarray) -> Questions:
    first, end = questions.starts[questions.sentences], questions.starts[questions.sentences + 1]
    choices = np.stack([questions.words - first, np.zeros_like(first), end - first - 1])
    return questions.with_labels(choices[habits[questions.types], np.arange(len(questions))])


def majority(train: Questions, dev: Questions) -> np.ndarray:
    """For every question of dev the label its type of word had most often; unknown words get the commonest of all."""
    known = train.labels >= 0
    best = _most_common(train.types[known], train.labels[known], 1 + int(max(train.types.max(), dev.types.max())))
    commonest = np.bincount(train.labels[known]).argmax()
    return np.where(best[dev.types] == UNSEEN, commonest, best[dev.types])


def majority_heads(train: Questions, dev: Questions) -> np.ndarray:
    """For every question of dev the distance at which its type of word had its head most often, as a place."""

    def place(questions: Questions) -> np.ndarray:
        return questions.words - questions.starts[questions.sentences]

    distances = train.labels - place(train)
    shift = -int(distances.min())
    best = _most_common(train.types, distances + shift, 1 + int(max(train.types.max(), dev.types.max())))
    commonest = np.bincount(distances + shift).argmax()
    distance = np.where(best[dev.types] == UNSEEN, commonest, best[dev.types]) - shift
    sizes = np.diff(dev.starts)[dev.sentences]
    return np.clip(place(dev) + distance, 0, sizes - 1)


def _most_common(groups: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """[count] the commonest value of each group, UNSEEN where a group is empty; the lowest of equally common ones."""
    width = int(values.max()) + 1
    pairs, times = np.unique(groups * width + values, return_counts=True)
    order = np.lexsort((pairs, -times))
    owner, first = np.unique(pairs[order] // width, return_index=True)
    best = np.full(count, UNSEEN)
    best[owner] = pairs[order][first] % width
    return best
