"""Checks of task data: what makes results wrong or too good, each finding with evidence and a remedy.

Leaking columns: a table may contain the target twice, under another name or as a consequence of it (only survivors of
a shipwreck have a "boat"). For every column in the text, a rule "value -> label" is learned on the even rows and tested
on the odd ones. A column whose rule is almost always right is reported.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from glassbert.reading.cells import as_number, is_missing, shown
from glassbert.tasks.data import TaskData
from glassbert.tasks.labels import flatten_labels, label_name
from glassbert.tasks.splits import normalised_texts

Severity = Literal["problem", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
LONG_TEXT = 20_000  # characters; about 4,000 tokens
RARE_LABEL = 10  # examples
IMBALANCE = 10  # most frequent over rarest label
CLASSES = ("binary", "multiclass", "ordinal")
MAX_ERRORS_REMOVED = 0.97  # of the errors of always predicting the most frequent label
MIN_ROWS = 20
BINS = 20


@dataclass(frozen=True)
class Finding:
    """What is wrong, the evidence, and the remedy. A problem invalidates the result, a warning may, a note does not."""

    severity: Severity
    problem: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.problem} {self.evidence} {self.remedy}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def by_severity(findings: list[Finding]) -> list[Finding]:
    """Problems first, then warnings, then notes."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def check_data(train: TaskData, dev: TaskData | None = None) -> list[Finding]:
    """All findings about the data, problems first; empty if there are none."""
    train_texts = normalised_texts(train)
    findings = [
        *_check_texts(train),
        *(_check_texts(dev) if dev else ()),
        *_check_labels(train),
        *_check_duplicates(train, train_texts),
        *leaking_columns(train),
    ]
    if dev:
        findings += [*_check_overlap(train, dev, train_texts), *_check_unseen_labels(train, dev)]
    return by_severity(findings)


# ---- texts and labels ------------------------------------------------------------------------------------------------


def _check_texts(data: TaskData) -> Iterator[Finding]:
    empty = [row for row, text in enumerate(data.texts) if not text.strip()]
    if empty:
        yield Finding(
            "problem" if 2 * len(empty) > len(data) else "warning",
            "There are empty texts.",
            f"{len(empty):,} of {len(data):,} texts; the first is {data.where(empty[0])}.",
            "Remove these rows, or check that the right column is used as the text.",
        )
    long = [row for row, text in enumerate(data.texts) if len(text) > LONG_TEXT]
    if long:
        row = max(long, key=lambda row: len(data.texts[row]))
        yield Finding(
            "warning",
            "There are very long texts.",
            f"{data.where(row)} has {len(data.texts[row]):,} characters, and {len(long):,} have over {LONG_TEXT:,}.",
            "They are split into windows, which takes time. Is a whole file in one cell, or a quote missing?",
        )


def _check_labels(data: TaskData) -> Iterator[Finding]:
    if data.targets is None or data.kind not in (*CLASSES, "multilabel"):
        return
    known = [value for value in data.targets if isinstance(value, list) or not is_missing(value)]
    counts = Counter(label_name(label) for label in flatten_labels(known))
    if len(counts) < 2:
        only = next(iter(counts), "none")
        yield Finding(
            "problem",
            "There is only one class.",
            f"All {len(data):,} examples of {data.source} have the label {shown(only)}.",
            "Add examples of another label, or choose another column as the target.",
        )
        return
    (common, most), (rare, least) = counts.most_common()[0], counts.most_common()[-1]
    if data.kind in CLASSES and most >= IMBALANCE * least:
        yield Finding(
            "warning",
            "The classes are imbalanced.",
            f"{shown(common)} has {most:,} examples and {shown(rare)} has {least:,}; always predicting "
            f"{shown(common)} gives an accuracy of {most / len(data):.0%}.",
            "Do not rely on accuracy alone: use macro F1 or AUC, and try class weights.",
        )
    few = [name for name, count in counts.items() if count < RARE_LABEL]
    if few:
        yield Finding(
            "warning",
            "Some labels have very few examples.",
            f"Fewer than {RARE_LABEL}: {', '.join(f'{shown(name)} ({counts[name]})' for name in few[:5])}"
            f"{' and others' if len(few) > 5 else ''}.",
            "Collect more of them, or merge labels.",
        )


def _check_duplicates(data: TaskData, texts: Sequence[str]) -> Iterator[Finding]:
    if data.targets is None or data.kind not in CLASSES:
        return
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(texts):
        rows[text].append(row)
    copies = sum(len(group) - 1 for group in rows.values())
    conflicts = [group for group in rows.values() if len({label_name(data.targets[row]) for row in group}) > 1]
    if conflicts:
        first = conflicts[0][0]
        other = next(row for row in conflicts[0] if label_name(data.targets[row]) != label_name(data.targets[first]))
        affected = sum(map(len, conflicts))
        yield Finding(
            "warning" if affected > 0.005 * len(data) else "note",
            "The same text has different labels.",
            f"{data.where(first)} has {shown(data.targets[first])} and {data.table.unit} {data.table.lines[other]:,} "
            f"has {shown(data.targets[other])} for {shown(data.texts[first])}; {affected:,} rows are in such groups.",
            "Decide which label is right. No model can be right on both.",
        )
    if copies > 0.05 * len(data):
        yield Finding(
            "note",
            "Many texts occur more than once.",
            f"{copies:,} of {len(data):,} rows repeat the text of another row.",
            "Remove copies unless they are intended; `train_dev_split` and `folds` keep them on one side.",
        )


# ---- validation data -------------------------------------------------------------------------------------------------


def _check_overlap(train: TaskData, dev: TaskData, train_texts: Sequence[str]) -> Iterator[Finding]:
    similar = _shared_rows(train_texts, normalised_texts(dev))
    exact_texts = set(_full_texts(train))
    exact = sum(text in exact_texts for text in _full_texts(dev.select(similar)))
    if similar:
        share = len(similar) / len(dev)
        yield Finding(
            "problem" if share > 0.1 else "warning" if share > 0.01 else "note",
            "Texts of the validation data are also in the training data.",
            f"{len(similar):,} of {len(dev):,} ({share:.1%}), {exact:,} of them exactly equal; the first is "
            f"{dev.where(similar[0])}: {shown(dev.texts[similar[0]])}.",
            "Remove them from the training data: on these texts the score measures memorisation.",
        )


def _check_unseen_labels(train: TaskData, dev: TaskData) -> Iterator[Finding]:
    if train.targets is None or dev.targets is None or train.kind not in (*CLASSES, "multilabel", "tokens"):
        return
    known = {label_name(label) for label in flatten_labels(train.targets)}
    for row, value in enumerate(dev.targets):
        unseen = [name for name in map(label_name, flatten_labels([value])) if name not in known]
        if unseen:
            yield Finding(
                "problem",
                "The validation data has a label that is not in the training data.",
                f"{dev.where(row)} has {shown(unseen[0])}.",
                "Correct the label, or add examples of it to the training data.",
            )
            return


def _full_texts(data: TaskData) -> list[str]:
    """The texts; for pairs both texts."""
    return data.texts if data.pairs is None else [f"{a}\n{b}" for a, b in zip(data.texts, data.pairs, strict=True)]


def _shared_rows(train: Sequence[str], dev: Sequence[str]) -> list[int]:
    """Rows of dev whose text is in train. Texts of one or two words are ignored: they repeat by chance."""
    known = set(train)
    return [row for row, text in enumerate(dev) if text in known and len(text.split()) > 2]


# ---- leaking columns -------------------------------------------------------------------------------------------------


def leaking_columns(data: TaskData) -> Iterator[Finding]:
    """A finding for each column of the text that determines the target."""
    target = data.names.get("target")
    if target is None or data.targets is None or len(data) < MIN_ROWS or data.kind in ("tokens", "multilabel"):
        return
    hidden = {name for role, name in data.names.items() if role != "text"}
    used = {part.column for part in data.template.parts} if data.template else {data.names.get("text", "")}
    for name in data.table.columns:
        if name in hidden or name not in used:
            continue
        values = data.table.columns[name]
        if all(label_name(a) == label_name(b) for a, b in zip(values, data.targets, strict=True)):
            yield _leak(name, target, "Every row has the same value in both.", "problem")
        elif data.template is None:  # a single text column may determine its label: that is the task
            continue
        elif data.kind == "regression":
            correlation = _correlation(values, data.targets)
            if correlation > 0.999:
                yield _leak(name, target, f"Their correlation is {correlation:.5f}.", "problem")
        else:
            removed = _errors_removed(values, [label_name(value) for value in data.targets])
            if removed > MAX_ERRORS_REMOVED:
                evidence = f"It alone removes {removed:.0%} of the errors of predicting the most frequent label."
                yield _leak(name, target, evidence, "warning")


def _leak(name: str, target: str, evidence: str, severity: Severity) -> Finding:
    return Finding(
        severity,
        f"The column {shown(name)} leaks the target.",
        f"It almost determines {shown(target)}. {evidence}",
        f"Is it known when the model is used? If not, leave it out: --drop {shlex.quote(name)}.",
    )


def _errors_removed(values: Sequence[Any], labels: Sequence[str]) -> float:
    """1 for a rule without errors, 0 for one no better than the most frequent label.

    The rule is tested on other rows, so values that occur once do not help it.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    keys = _rule_keys(values)
    for key, label in list(zip(keys, labels, strict=True))[::2]:
        votes[key][label] += 1
    common = Counter(labels[::2]).most_common(1)[0][0]
    rule = {key: counts.most_common(1)[0][0] for key, counts in votes.items()}
    tested = list(zip(keys, labels, strict=True))[1::2]
    wrong = sum(rule.get(key, common) != label for key, label in tested)
    baseline = sum(common != label for _, label in tested)
    return 1.0 - wrong / baseline if baseline else 0.0


def _rule_keys(values: Sequence[Any]) -> list[str]:
    """The values as strings; numbers with more than 20 distinct values as the index of their 20-quantile bin."""
    numbers = [None if is_missing(value) else as_number(value) for value in values]
    known = np.array([number for number in numbers if number is not None])
    words = ["" if is_missing(value) else label_name(value) for value in values]
    if len(set(words)) <= BINS or len(known) < sum(word != "" for word in words):
        return words
    edges = np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1])
    return ["" if number is None else str(np.searchsorted(edges, number)) for number in numbers]


def _correlation(values: Sequence[Any], targets: Sequence[Any]) -> float:
    """The absolute correlation; 0 if too few rows have both numbers."""
    pairs = [(as_number(a), as_number(b)) for a, b in zip(values, targets, strict=True)]
    known = np.array([pair for pair in pairs if None not in pair], np.float64)
    if len(known) < max(MIN_ROWS, len(pairs) // 2) or not np.ptp(known, axis=0).all():
        return 0.0
    return abs(float(np.asarray(np.corrcoef(known.T))[0, 1]))
