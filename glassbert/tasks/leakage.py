"""Columns that give the answer away.

A table sometimes holds the target twice, under another name or as its consequence: "boat" tells who was saved from a
ship because only the saved have one. For every column that goes into the text we ask how well a rule "this value, that
label" would do: learnt on the even rows, tested on the odd ones. A column that is right nearly always is a suspect.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from glassbert.tasks.data import TaskData
from glassbert.tasks.findings import Finding
from glassbert.tasks.labels import label_name
from glassbert.tasks.table import as_number, is_missing

SUSPICIOUS = 0.97  # of the errors that guessing the commonest label makes, this share would be gone
FEWEST_ROWS = 20
BINS = 20


def leaking_columns(data: TaskData) -> Iterator[Finding]:
    target = data.names.get("target")
    if target is None or data.targets is None or len(data) < FEWEST_ROWS or data.kind in ("tokens", "multilabel"):
        return
    hidden = {name for role, name in data.names.items() if role != "text"}
    used = {part.column for part in data.template.parts} if data.template else {data.names.get("text", "")}
    for name in data.table.columns:
        if name in hidden or name not in used:
            continue
        values = data.table.columns[name]
        if all(label_name(a) == label_name(b) for a, b in zip(values, data.targets, strict=True)):
            yield _suspect(name, target, "Every row has the same value in both.", "problem")
        elif data.template is None:  # a text may well decide its label: that is the task
            continue
        elif data.kind == "regression":
            closeness = _correlation(values, data.targets)
            if closeness > 0.999:
                yield _suspect(name, target, f"Their correlation is {closeness:.5f}.", "problem")
        else:
            removed = _errors_removed(values, [label_name(value) for value in data.targets])
            if removed > SUSPICIOUS:
                evidence = f"Knowing it alone removes {removed:.0%} of the errors that guessing makes."
                yield _suspect(name, target, evidence, "warning")


def _suspect(name: str, target: str, evidence: str, severity: Any) -> Finding:
    return Finding(
        severity,
        f"The column {name!r} gives the answer away.",
        f"It all but decides {target!r}. {evidence}",
        f"Will it be known when the model is used? If not, leave it out: drop=[{name!r}].",
    )


def _errors_removed(values: Sequence[Any], labels: Sequence[str]) -> float:
    """1 for a rule without errors, 0 for one as bad as guessing; values that come once can teach no rule."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    keys = _keys(values)
    for key, label in list(zip(keys, labels, strict=True))[::2]:
        votes[key][label] += 1
    common = Counter(labels[::2]).most_common(1)[0][0]
    rule = {key: counts.most_common(1)[0][0] for key, counts in votes.items()}
    tested = list(zip(keys, labels, strict=True))[1::2]
    wrong = sum(rule.get(key, common) != label for key, label in tested)
    guessing = sum(common != label for _, label in tested)
    return 1.0 - wrong / guessing if guessing else 0.0


def _keys(values: Sequence[Any]) -> list[str]:
    """The values as words; numbers of many values as which twentieth of the rows they belong to."""
    numbers = [None if is_missing(value) else as_number(value) for value in values]
    known = np.array([number for number in numbers if number is not None])
    words = ["" if is_missing(value) else label_name(value) for value in values]
    if len(set(words)) <= BINS or len(known) < sum(word != "" for word in words):
        return words
    edges = np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1])
    return ["" if number is None else str(np.searchsorted(edges, number)) for number in numbers]


def _correlation(values: Sequence[Any], targets: Sequence[Any]) -> float:
    pairs = [(as_number(a), as_number(b)) for a, b in zip(values, targets, strict=True)]
    known = np.array([pair for pair in pairs if None not in pair], np.float64)
    if len(known) < max(FEWEST_ROWS, len(pairs) // 2) or not np.ptp(known, axis=0).all():
        return 0.0
    return abs(float(np.asarray(np.corrcoef(known.T))[0, 1]))
