"""Probe tasks: a task is a function that returns a label for every word of a table.

    from glassbert.evaluation.probes import probe

    @probe("plural", title="Number of the noun")
    def plural(table):
        return [["Number=Plur" in f if tag == "NOUN" else None for f, tag in zip(feats, tags)]
                for feats, tags in zip(table.column("feats"), table.column("upos"))]

A word with the label None is skipped. `of` is the input of the probe: the word ("words"), the word and its head
("edges"), or all words of the sentence, among which it finds the head ("heads"; the label is then the number of the
head, from 1, and 0 for the root). Any column of a CoNLL or CoNLL-U file is a task under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from glassbert.errors import ConfigError, InputError
from glassbert.tasks.table import Table

Of = Literal["words", "edges", "heads"]
Score = Literal["accuracy", "spans"]
Labels = Sequence[Sequence[Any]]  # one label per word of every sentence


@dataclass(frozen=True)
class ProbeTask:
    """`train` and `dev` are file patterns; `most_words` limits the training words (a fixed random sample)."""

    name: str
    title: str
    function: Callable[[Table], Labels]
    of: Of = "words"
    score: Score = "accuracy"
    train: str = "*train*.conllu*"
    dev: str = "*dev*.conllu*"
    most_words: int | None = None

    def labels(self, table: Table) -> list[list[Any]]:
        """One label per word, checked."""
        found = self.function(table)
        words = table.column("words")
        if len(found) != len(words):
            raise InputError(
                f"the probe {self.name!r} returns labels for {len(found)} sentences, and there are {len(words)}"
            )
        for row, (labels, sentence) in enumerate(zip(found, words, strict=True)):
            if len(labels) != len(sentence):
                raise InputError(
                    f"{table.where(row)}: the probe {self.name!r} gives {len(labels)} labels for {len(sentence)} words"
                )
        return [list(labels) for labels in found]


TASKS: dict[str, ProbeTask] = {}


def probe(name: str, *, title: str, **fields: Any) -> Callable[[Callable[[Table], Labels]], ProbeTask]:
    """Decorator that registers a function from a table to labels; `fields` are fields of `ProbeTask`."""
    if name in TASKS:
        raise ConfigError(f"there is already a probe {name!r}; choose another name")

    def register(function: Callable[[Table], Labels]) -> ProbeTask:
        TASKS[name] = ProbeTask(name, title, function, **fields)
        return TASKS[name]

    return register


def get_task(name: str, table: Table | None = None) -> ProbeTask:
    """The task with this name, or the column of the table with this name."""
    if name in TASKS:
        return TASKS[name]
    if table is not None and name in table.columns:
        return column_task(name)
    columns = f"; the file's columns are {', '.join(table.columns)}" if table is not None else ""
    raise ConfigError(f"there is no probe {name!r}; there are {', '.join(TASKS)}{columns}")


def column_task(name: str, **fields: Any) -> ProbeTask:
    """A task whose labels are a column of the table; "_" means no label."""

    def labels(table: Table) -> Labels:
        return [[None if cell == "_" else cell for cell in row] for row in table.column(name)]

    return ProbeTask(name, f"The column {name!r}", labels, **fields)


@probe("pos", title="Parts of speech")
def parts_of_speech(table: Table) -> Labels:
    return [[None if tag == "_" else tag for tag in row] for row in table.column("upos")]


@probe("ner", title="Named entities", score="spans", train="*train*.conll", dev="*dev*.conll")
def named_entities(table: Table) -> Labels:
    return table.column("tags")


@probe("relations", title="Dependency relations of a word to its head", of="edges", most_words=40_000)
def relations(table: Table) -> Labels:
    """Universal relations without their subtypes: "nsubj:pass" is "nsubj"."""
    return [
        [None if name == "_" or not head else name.partition(":")[0] for name, head in zip(names, heads, strict=True)]
        for names, heads in zip(table.column("deprel"), table.column("head"), strict=True)
    ]


@probe("heads", title="Syntactic head of every word", of="heads", most_words=60_000)
def heads(table: Table) -> Labels:
    return table.column("head")
