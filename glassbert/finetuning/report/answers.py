"""The part of a report that depends on the head: what was taken for what, at which threshold, and how honestly.

A curve or table that the held-out examples cannot give (one class only, say) is replaced by the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report import figures as draw
from glassbert.finetuning.report.honesty import honesty
from glassbert.finetuning.report.labels import confusion, every_label, if_possible, several_labels, tags
from glassbert.metrics import precision_recall_curve, roc_auc, roc_curve
from glassbert.reports import Section, number

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BY_ROW = "Rows are true, columns predicted; the colour is the share of the row."


def answers_in_detail(
    page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None
) -> None:
    show = SECTIONS.get(outcome.card.head)
    if show is not None and outcome.truth is not None:
        show(page, outcome, baseline, calibration)


# ---- two labels -------------------------------------------------------------------------------------------------


def _binary(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    truth, chances, names = np.asarray(outcome.truth), outcome.probabilities(), outcome.card.label_names
    cut = (outcome.card.thresholds or (0.5,))[0]
    page.heading("Right and wrong")
    with page.columns() as (left, right):
        confusion(left, outcome, BY_ROW)
        right.figure(
            lambda: draw.probabilities_by_class(chances[truth == 1], chances[truth == 0], names, cut),
            f"How sure the model was of “{names[1]}”. What lies on the wrong side of {cut:.2g} is an error.",
        )
    with page.columns() as (left, right):
        with if_possible(left, "There is no ROC curve"):
            curves = {"this model": roc_curve(truth, chances)}
            auc = roc_auc(truth, chances)
            if baseline is not None:
                curves["baseline"] = roc_curve(truth, baseline.probabilities())
            left.figure(
                lambda: draw.roc(curves),
                f"ROC curve: the area under it, {auc:.3f}, is the chance that an example of “{names[1]}” gets a higher "
                f"score than one of “{names[0]}”.",
            )
        with if_possible(right, "There is no precision-recall curve"):
            found = {"this model": precision_recall_curve(truth, chances)}
            if baseline is not None:
                found["baseline"] = precision_recall_curve(truth, baseline.probabilities())
            right.figure(
                lambda: draw.precision_recall(found, float(truth.mean())),
                f"Precision against recall of “{names[1]}”. The dashed line is guessing.",
            )
    page.heading("Thresholds")
    page.text(
        f"An example counts as “{names[1]}” from a probability of {cut:.2g} on. Raise the threshold where a false "
        f"“{names[1]}” is dear, lower it where a missed one is."
    )
    with if_possible(page, "There are no thresholds to choose from"):
        curve = precision_recall_curve(truth, chances)
        with page.columns() as (left, right):
            headers = ["from", "precision", "recall", "F1", "accuracy", "claimed"]
            left.table(headers, threshold_rows(truth, chances))
            right.figure(lambda: draw.thresholds(curve, cut), "What every threshold gives on the held-out examples.")
    honesty(page, calibration)


def threshold_rows(truth: np.ndarray, chances: np.ndarray) -> list[list[str]]:
    """What each threshold gives; where nothing is claimed there is no precision."""
    rows = []
    for cut in THRESHOLDS:
        claimed = chances >= cut
        hits = int((claimed & (truth == 1)).sum())
        precision = f"{hits / claimed.sum():.1%}" if claimed.any() else "–"
        f1 = 2 * hits / max(1, int(claimed.sum() + truth.sum()))
        rows.append([f"{cut:.1f}", precision, f"{hits / max(1, int(truth.sum())):.1%}", f"{f1:.3f}",
                     f"{(claimed == truth).mean():.1%}", f"{claimed.mean():.1%}"])  # fmt: skip
    return rows


# ---- several labels ---------------------------------------------------------------------------------------------


def _multiclass(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    page.heading("Right and wrong")
    confusion(page, outcome, BY_ROW)
    every_label(page, outcome, baseline)
    honesty(page, calibration)


def _ordinal(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    page.heading("Right and wrong")
    off = np.asarray(outcome.choices()) - np.asarray(outcome.truth)
    near = float((np.abs(off) <= 1).mean())
    with page.columns() as (left, right):
        confusion(left, outcome, "Rows are true, columns predicted; near the diagonal is nearly right.")
        right.figure(lambda: draw.ranks_off(off), f"{near:.1%} of the answers are at most one rank off.")
    every_label(page, outcome, baseline)
    honesty(page, calibration)


# ---- numbers, words, texts --------------------------------------------------------------------------------------


def _regression(page: Section, outcome: Outcome, baseline: Baseline | None, calibration: Calibration | None) -> None:
    page.heading("True and predicted")
    truth, predicted = np.asarray(outcome.truth, np.float64), np.asarray(outcome.choices(), np.float64)
    if outcome.card.head == "embedding":
        page.figure(
            lambda: draw.true_and_predicted(truth, predicted, line=False), "The cosine of two texts and their score."
        )
        return
    with page.columns() as (left, right):
        left.figure(lambda: draw.true_and_predicted(truth, predicted), "Every dot an example; on the line it is right.")
        right.figure(
            lambda: draw.residuals(truth, predicted),
            f"The errors. Their mean is {number(round(float((predicted - truth).mean()), 4))}.",
        )
    headers = ["targets", "from", "to", "examples", "mean error", "mean absolute error"]
    page.table(
        [*headers, *(["baseline's"] if baseline else [])],
        fifths(truth, predicted, np.asarray(baseline.choices()) if baseline else None),
        caption="Is it as good for low targets as for high ones?",
    )


def fifths(truth: np.ndarray, predicted: np.ndarray, theirs: np.ndarray | None) -> list[list[Any]]:
    """The errors in five parts of equal size, from the lowest targets to the highest."""
    names = ("lowest fifth", "second", "middle", "fourth", "highest fifth")
    rows = []
    for name, part in zip(names, np.array_split(np.argsort(truth, kind="stable"), 5), strict=True):
        if part.size:
            errors = predicted[part] - truth[part]
            other = [] if theirs is None else [_short(float(np.abs(theirs[part] - truth[part]).mean()))]
            rows.append([name, _short(truth[part].min()), _short(truth[part].max()), int(part.size),
                         _short(errors.mean()), _short(np.abs(errors).mean()), *other])  # fmt: skip
    return rows


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


SECTIONS: dict[str, Callable[[Section, Outcome, Baseline | None, Calibration | None], None]] = {
    "binary": _binary,
    "multiclass": _multiclass,
    "ordinal": _ordinal,
    "multilabel": several_labels,
    "regression": _regression,
    "embedding": _regression,
    "token": tags,
}
