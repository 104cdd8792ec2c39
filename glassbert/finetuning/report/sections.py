"""The sections of a report that depend on the head: confusion matrix, thresholds, scores per label, calibration.

A curve or table that is undefined for the held-out examples (only one class, for example) is replaced by the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report import figures
from glassbert.finetuning.scoring import MetricInputs, cross_fitted_labels
from glassbert.finetuning.tags import marks_spans
from glassbert.metrics import (
    LabelCounts,
    Undefined,
    confusion_matrix,
    count_labels,
    count_spans,
    precision_recall_curve,
    roc_auc,
    roc_curve,
)
from glassbert.reports import Section, number

MAX_LABELS = 40
OPEN_UP_TO = 12  # rows; longer tables are collapsed
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BY_ROW = "Rows: true label; columns: predicted label; colour: share of the row."


def head_sections(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    show = SECTIONS.get(outcome.card.head)
    if show is not None and outcome.truth is not None:
        show(page, outcome, baseline, calibration)


# ---- binary --------------------------------------------------------------------------------------------------------


def _binary(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    truth, probs, names = np.asarray(outcome.truth), outcome.probabilities(), outcome.card.label_names
    threshold = (outcome.card.thresholds or (0.5,))[0]
    page.heading("Confusion matrix")
    with page.columns() as (left, right):
        _confusion(left, outcome, BY_ROW)
        right.figure(
            lambda: figures.probabilities_by_class(probs[truth == 1], probs[truth == 0], names, threshold),
            f"Predicted probability of “{names[1]}”. Examples on the wrong side of {threshold:.2g} are errors.",
        )
    with page.columns() as (left, right):
        with _note_if_undefined(left, "There is no ROC curve"):
            curves = {"this model": roc_curve(truth, probs)}
            auc = roc_auc(truth, probs)
            if baseline is not None:
                curves["baseline"] = roc_curve(truth, baseline.probabilities())
            left.figure(
                lambda: figures.roc(curves),
                f"ROC curve. The area under it, {auc:.3f}, is the probability that an example of “{names[1]}” gets a "
                f"higher score than one of “{names[0]}”.",
            )
        with _note_if_undefined(right, "There is no precision-recall curve"):
            found = {"this model": precision_recall_curve(truth, probs)}
            if baseline is not None:
                found["baseline"] = precision_recall_curve(truth, baseline.probabilities())
            right.figure(
                lambda: figures.precision_recall(found, float(truth.mean())),
                f"Precision and recall of “{names[1]}”. The dashed line is random guessing.",
            )
    page.heading("Thresholds")
    page.text(
        f"An example is predicted as “{names[1]}” from a probability of {threshold:.2g}. Raise the threshold if a "
        f"false “{names[1]}” is costly, lower it if a missed one is."
    )
    with _note_if_undefined(page, "There is no threshold table"):
        curve = precision_recall_curve(truth, probs)
        page.figure(lambda: figures.thresholds(curve, threshold), "Scores by threshold on the held-out examples.")
        headers = ["threshold", "precision", "recall", "F1", "accuracy", "predicted"]
        page.table(headers, threshold_rows(truth, probs))
    _calibration(page, calibration)


def threshold_rows(truth: np.ndarray, probs: np.ndarray) -> list[list[str]]:
    """Scores at each threshold; no precision if nothing is predicted positive."""
    rows = []
    for threshold in THRESHOLDS:
        predicted_positive = probs >= threshold
        hits = int((predicted_positive & (truth == 1)).sum())
        precision = f"{hits / predicted_positive.sum():.1%}" if predicted_positive.any() else "–"
        f1 = 2 * hits / max(1, int(predicted_positive.sum() + truth.sum()))
        rows.append([f"{threshold:.1f}", precision, f"{hits / max(1, int(truth.sum())):.1%}", f"{f1:.3f}",
                     f"{(predicted_positive == truth).mean():.1%}", f"{predicted_positive.mean():.1%}"])  # fmt: skip
    return rows


# ---- multiclass and ordinal ---------------------------------------------------------------------------------------


def _multiclass(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    page.heading("Confusion matrix")
    _confusion(page, outcome, BY_ROW)
    _per_label(page, outcome, baseline)
    _calibration(page, calibration)


def _ordinal(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    page.heading("Confusion matrix")
    rank_error = _chosen(outcome) - np.asarray(outcome.truth)
    within_one = float((np.abs(rank_error) <= 1).mean())
    with page.columns() as (left, right):
        _confusion(left, outcome, "Rows: true rank; columns: predicted rank; cells near the diagonal are small errors.")
        right.figure(
            lambda: figures.ranks_off(rank_error), f"{within_one:.1%} of the predictions are at most one rank off."
        )
    if outcome.card.cuts is not None:
        page.text(
            "The answer is the mean rank of the probabilities, cut at borders that give the answers the mean and the "
            "spread of the true ranks, as quadratic kappa asks for. With --metric mae it is the median rank."
        )
    _per_label(page, outcome, baseline)
    _calibration(page, calibration)


# ---- regression and embedding -------------------------------------------------------------------------------------


def _regression(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    page.heading("True and predicted values")
    truth, predicted = np.asarray(outcome.truth, np.float64), np.asarray(outcome.choices(), np.float64)
    if outcome.card.head == "embedding":
        page.figure(
            lambda: figures.true_and_predicted(truth, predicted, line=False),
            "Cosine of the two texts against their score.",
        )
        return
    with page.columns() as (left, right):
        left.figure(
            lambda: figures.true_and_predicted(truth, predicted),
            "One dot per example; correct predictions lie on the line.",
        )
        right.figure(
            lambda: figures.residuals(truth, predicted),
            f"Distribution of the errors. Their mean is {number(round(float((predicted - truth).mean()), 4))}.",
        )
    headers = ["targets", "from", "to", "examples", "mean error", "mean absolute error"]
    page.table(
        [*headers, *(["baseline's"] if baseline else [])],
        fifths(truth, predicted, np.asarray(baseline.choices()) if baseline else None),
        caption="Errors by the size of the target.",
    )


def fifths(truth: np.ndarray, predicted: np.ndarray, theirs: np.ndarray | None) -> list[list[Any]]:
    """Errors in five parts of equal size, from the lowest targets to the highest."""
    names = ("lowest fifth", "second", "middle", "fourth", "highest fifth")
    rows = []
    for name, part in zip(names, np.array_split(np.argsort(truth, kind="stable"), 5), strict=True):
        if part.size:
            errors = predicted[part] - truth[part]
            other = [] if theirs is None else [short_number(float(np.abs(theirs[part] - truth[part]).mean()))]
            rows.append([name, short_number(truth[part].min()), short_number(truth[part].max()), int(part.size),
                         short_number(errors.mean()), short_number(np.abs(errors).mean()), *other])  # fmt: skip
    return rows


def short_number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


@contextmanager
def _note_if_undefined(page: Section, title: str) -> Iterator[None]:
    try:
        yield
    except Undefined as reason:
        page.message("note", f"{title}: {reason}.")


def _confusion(page: Section, outcome: Outcome, caption: str) -> None:
    names = outcome.card.label_names
    if len(names) > MAX_LABELS:
        page.text(f"The confusion matrix is left out: {len(names)} labels are too many.")
        return
    matrix = confusion_matrix(np.asarray(outcome.truth), _chosen(outcome), range(len(names)))
    page.figure(lambda: figures.confusion(matrix, names), caption)


def _chosen(outcome: Outcome) -> np.ndarray:
    """The choices that are scored: cuts that were fitted on these same examples give way to those of the other half."""
    card = outcome.card if outcome.card.chosen_apart else outcome.card.replace(cuts=None)
    return np.asarray(MetricInputs(outcome.outputs, outcome.truth, card).chosen)


def _per_label(page: Section, outcome: Outcome, baseline: Baseline | None) -> None:
    names = outcome.card.label_names
    ours = count_labels(np.asarray(outcome.truth), _chosen(outcome), range(len(names)))
    theirs = count_labels(np.asarray(outcome.truth), _chosen(baseline), range(len(names))) if baseline else None
    _label_scores(page, "rank" if outcome.card.head == "ordinal" else "label", names, ours, theirs)


def _label_scores(
    page: Section, label_kind: str, names: Any, ours: LabelCounts, theirs: LabelCounts | None, thresholds: Any = None
) -> None:
    """A figure and a table of all labels; ranks in their order, other labels by frequency."""
    ranks = label_kind == "rank"
    order = np.arange(len(names)) if ranks else np.argsort(-ours.support, kind="stable")
    order = order[ours.occurring[order]]
    if not order.size:
        return
    page.heading(f"Scores by {label_kind}")
    f1 = ours.per_label("f1")
    other = None if theirs is None else theirs.per_label("f1")
    shown = order[:MAX_LABELS]
    page.figure(
        lambda: figures.label_scores([names[i] for i in shown], f1[shown], None if other is None else other[shown]),
        f"F1 by {label_kind}{'' if ranks else ', the most frequent first'}."
        + ("" if other is None else " The line has the colour of the better model."),
    )
    columns = {"threshold": thresholds} if thresholds is not None else {}
    headers = [label_kind, "examples", *columns, "precision", "recall", "F1", *(["baseline's F1"] if theirs else [])]
    precision, recall = ours.per_label("precision"), ours.per_label("recall")
    rows = [
        [names[i], int(ours.support[i]), *(f"{values[i]:.2f}" for values in columns.values()),
         *(_three_decimals(values[i]) for values in (precision, recall, f1, other) if values is not None)]
        for i in order
    ]  # fmt: skip
    with page.details(f"Precision and recall by {label_kind}", open=len(rows) <= OPEN_UP_TO) as inside:
        inside.table(headers, rows)


def _multilabel(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    names, truth = outcome.card.label_names, np.asarray(outcome.truth).astype(np.int64)
    apart = outcome.card.chosen_apart and outcome.card.thresholds is not None
    chosen = outcome.choices() if apart else cross_fitted_labels(truth, outcome.probabilities())
    theirs = None
    if baseline is not None:
        theirs = count_labels(truth, cross_fitted_labels(truth, baseline.probabilities()), range(len(names)))
    _label_scores(page, "label", names, count_labels(truth, chosen, range(len(names))), theirs,
                outcome.card.thresholds)  # fmt: skip
    tuned_apart = "They were tuned on the examples that chose the epoch."
    tuned_here = (
        "Those in the table are tuned on all held-out examples and are used by the model. For the scores, the "
        "thresholds of each half of the examples were tuned on the other half."
    )
    page.text(f"Each label has its own threshold. {tuned_apart if apart else tuned_here}")
    for note in calibration.notes if calibration else ():
        page.message("note", f"{note[0].upper()}{note[1:]}.")
    counts = [
        [str(count), int((truth.sum(1) == count).sum()), int((chosen.sum(1) == count).sum())]
        for count in range(int(max(truth.sum(1).max(), chosen.sum(1).max())) + 1)
    ]
    with page.details("Number of labels per example") as inside:
        inside.table(["labels", "true", "predicted"], counts)
    _calibration(page, calibration)


def _tags(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    names = outcome.card.label_names
    words, predicted = np.concatenate(list(outcome.truth)), np.concatenate(outcome.choices())
    if marks_spans(outcome.card):
        with _note_if_undefined(page, "There are no span scores"):
            truth, chosen = (_named(sentences, outcome) for sentences in (outcome.truth, outcome.choices()))
            ours = count_spans(truth, chosen)
            theirs = count_spans(truth, _named(baseline.choices(), outcome)) if baseline else None
            _label_scores(page, "entity type", ours.names, ours, _aligned(theirs, ours.names))
    else:
        counts_with = partial(count_labels, words, labels=range(len(names)))
        theirs = counts_with(np.concatenate(baseline.choices())) if baseline else None
        _label_scores(page, "tag", names, counts_with(predicted), theirs)
    if len(names) <= MAX_LABELS:
        matrix = confusion_matrix(words, predicted, range(len(names)))
        used = np.flatnonzero(matrix.sum(0) + matrix.sum(1))
        page.figure(
            lambda: figures.confusion(matrix[np.ix_(used, used)], [names[i] for i in used]),
            "Confusion matrix. Rows: true tag; columns: predicted tag; colour: share of the row.",
        )
    _calibration(page, calibration)


def _named(sentences: Any, outcome: Outcome) -> list[list[str]]:
    return [[outcome.card.labels[int(tag)] for tag in tags] for tags in sentences]


def _aligned(counts: LabelCounts | None, names: Any) -> LabelCounts | None:
    """The counts in the order of `names`; 0 for a name that is missing."""
    if counts is None:
        return None
    index = {name: i for i, name in enumerate(counts.names)}
    tp, fp, fn = (
        np.array([values[index[name]] if name in index else 0.0 for name in names])
        for values in (counts.tp, counts.fp, counts.fn)
    )
    return LabelCounts(tp, fp, fn, tuple(names))


def _calibration(page: Section, calibration: Calibration | None) -> None:
    if calibration is None or calibration.before is None:
        return
    page.heading("Calibration")
    before, after = calibration.before, calibration.after
    if after is None or calibration.temperature is None:
        page.message("note", f"The probabilities are not calibrated: {calibration.reason}.")
        page.figure(
            lambda: figures.calibration({"uncalibrated": before.curve}),
            "Perfect calibration is the dashed line: 70 % probability is correct in 70 of 100 cases.",
        )
        return
    effect = "less confident" if calibration.temperature > 1 else "more confident"
    with page.columns() as (left, right):
        left.figure(
            lambda: figures.calibration({"before": before.curve, "after": after.curve}),
            "Perfect calibration is the dashed line: 70 % probability is correct in 70 of 100 cases. Below it the "
            "model is overconfident. The size of a dot is the number of predictions.",
        )
        bias = " Then a bias is added to the score of each label." if calibration.bias is not None else ""
        right.text(
            f"The logits are divided by a temperature of {calibration.temperature:.2f}, which makes the model {effect}."
            f"{bias}"
        )
        if not calibration.calibrated:
            right.message("note", "This did not lower the log loss here: do not take the probabilities as calibrated.")
        right.table(
            ["", "before", "after"],
            [
                ["calibration error", _three_decimals(before.ece.value), _three_decimals(after.ece.value)],
                ["log loss", _three_decimals(before.log_loss.value), _three_decimals(after.log_loss.value)],
            ],
        )
        right.text(
            "The calibration error is the mean gap between predicted probability and observed frequency. "
            + (
                "Temperature and bias were fitted on other examples."
                if calibration.apart
                else "The values after calibration are cross-fitted: each half of the examples uses the temperature of "
                "the other half."
            )
        )


def _three_decimals(value: float | None) -> str:
    """Three decimals; a dash for a missing value."""
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"


SECTIONS: dict[str, Callable[[Section, Outcome, Baseline | None, Calibration | None], None]] = {
    "binary": _binary,
    "multiclass": _multiclass,
    "ordinal": _ordinal,
    "multilabel": _multilabel,
    "regression": _regression,
    "embedding": _regression,
    "token": _tags,
}
