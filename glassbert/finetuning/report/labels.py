"""The parts of a report about labels and tags: what was taken for what, and how good each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report import figures as draw
from glassbert.finetuning.report.honesty import honesty, three
from glassbert.finetuning.scoring import cross_fitted, marks_spans
from glassbert.metrics import LabelCounts, Undefined, confusion_matrix, count_labels, count_spans
from glassbert.reports import Section

MOST_LABELS = 40
OPEN_UP_TO = 12  # rows of a table that is shown at once


@contextmanager
def if_possible(page: Section, what: str) -> Iterator[None]:
    try:
        yield
    except Undefined as reason:
        page.message("note", f"{what}: {reason}.")


def confusion(page: Section, outcome: Outcome, caption: str) -> None:
    names = outcome.card.label_names
    if len(names) > MOST_LABELS:
        page.text(f"{len(names)} labels are too many for a picture of what was taken for what.")
        return
    matrix = confusion_matrix(np.asarray(outcome.truth), outcome.choices(), range(len(names)))
    page.figure(lambda: draw.confusion(matrix, names), caption)


def every_label(page: Section, outcome: Outcome, baseline: Baseline | None) -> None:
    names = outcome.card.label_names
    ours = count_labels(np.asarray(outcome.truth), outcome.choices(), range(len(names)))
    theirs = count_labels(np.asarray(outcome.truth), baseline.choices(), range(len(names))) if baseline else None
    _label_scores(page, "rank" if outcome.card.head == "ordinal" else "label", names, ours, theirs)


def _label_scores(
    page: Section, thing: str, names: Any, ours: LabelCounts, theirs: LabelCounts | None, thresholds: Any = None
) -> None:
    """A picture and a table of the labels; of ranks in their order, of others the most frequent first."""
    ranks = thing == "rank"
    order = np.arange(len(names)) if ranks else np.argsort(-ours.support, kind="stable")
    order = order[ours.occurring[order]]
    if not order.size:
        return
    page.heading(f"Every {thing}")
    f1 = ours.per_label("f1")
    other = None if theirs is None else theirs.per_label("f1")
    shown = order[:MOST_LABELS]
    page.figure(
        lambda: draw.label_scores([names[i] for i in shown], f1[shown], None if other is None else other[shown]),
        f"F1 of every {thing}{'' if ranks else ', the most frequent first'}."
        + ("" if other is None else " The line has the colour of whoever leads."),
    )
    columns = {"threshold": thresholds} if thresholds is not None else {}
    headers = [thing, "examples", *columns, "precision", "recall", "F1", *(["baseline's F1"] if theirs else [])]
    precision, recall = ours.per_label("precision"), ours.per_label("recall")
    rows = [
        [names[i], int(ours.support[i]), *(f"{values[i]:.2f}" for values in columns.values()), three(precision[i]),
         three(recall[i]), three(f1[i]), *([three(other[i])] if other is not None else [])]
        for i in order
    ]  # fmt: skip
    with page.details(f"Precision and recall of every {thing}", open=len(rows) <= OPEN_UP_TO) as inside:
        inside.table(headers, rows)


def several_labels(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    names, truth = outcome.card.label_names, np.asarray(outcome.truth).astype(np.int64)
    chosen = cross_fitted(truth, outcome.probabilities())
    theirs = None
    if baseline is not None:
        theirs = count_labels(truth, cross_fitted(truth, baseline.probabilities()), range(len(names)))
    _label_scores(page, "label", names, count_labels(truth, chosen, range(len(names))), theirs,
                outcome.card.thresholds)  # fmt: skip
    page.text(
        "Each label counts from a threshold of its own. Those in the table are tuned on all held-out examples and are "
        "the model's; to measure them, the thresholds of each half of the examples were tuned on the other half."
    )
    for note in calibration.notes if calibration else ():
        page.message("note", f"{note[0].upper()}{note[1:]}.")
    counts = [
        [str(many), int((truth.sum(1) == many).sum()), int((chosen.sum(1) == many).sum())]
        for many in range(int(max(truth.sum(1).max(), chosen.sum(1).max())) + 1)
    ]
    with page.details("How many labels an example has") as inside:
        inside.table(["labels", "in truth", "by the model"], counts)
    honesty(page, calibration)


def tags(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    names = outcome.card.label_names
    words, said = np.concatenate(list(outcome.truth)), np.concatenate(outcome.choices())
    if marks_spans(outcome.card):
        with if_possible(page, "There are no spans to count"):
            truth, chosen = (_named(sentences, outcome) for sentences in (outcome.truth, outcome.choices()))
            ours = count_spans(truth, chosen)
            theirs = count_spans(truth, _named(baseline.choices(), outcome)) if baseline else None
            _label_scores(page, "kind of name", ours.names, ours, _aligned(theirs, ours.names))
    else:
        counted = partial(count_labels, words, labels=range(len(names)))
        theirs = counted(np.concatenate(baseline.choices())) if baseline else None
        _label_scores(page, "tag", names, counted(said), theirs)
    if len(names) <= MOST_LABELS:
        matrix = confusion_matrix(words, said, range(len(names)))
        used = np.flatnonzero(matrix.sum(0) + matrix.sum(1))
        page.figure(
            lambda: draw.confusion(matrix[np.ix_(used, used)], [names[i] for i in used]),
            "Which tag was taken for which: rows are true, columns predicted; the colour is the share of the row.",
        )
    honesty(page, calibration)


def _named(sentences: Any, outcome: Outcome) -> list[list[str]]:
    return [[outcome.card.labels[int(tag)] for tag in tags] for tags in sentences]


def _aligned(counts: LabelCounts | None, names: Any) -> LabelCounts | None:
    """The counts in the order of these names; a name the others never have counts 0."""
    if counts is None:
        return None
    place = {name: i for i, name in enumerate(counts.names)}
    tp, fp, fn = (
        np.array([values[place[name]] if name in place else 0.0 for name in names])
        for values in (counts.tp, counts.fp, counts.fn)
    )
    return LabelCounts(tp, fp, fn, tuple(names))
