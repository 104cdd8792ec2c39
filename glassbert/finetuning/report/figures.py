"""The figures of a fine-tuning report. Each function takes arrays and returns a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glassbert.metrics import CalibrationCurve, PrecisionRecallCurve, RocCurve
from glassbert.reports import figures
from glassbert.reports.drawing import (
    LIGHT,
    colour,
    escape_math,
    label,
    legend_above,
    plot_style,
    rotate_ticks,
    set_labels,
    shorten,
)
from glassbert.reports.figures import Series
from glassbert.training.history import moving_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HALF = 4.6  # inches: the width of two figures side by side
MAX_NUMBERED_CELLS = 12  # cells per row of a confusion matrix with a legible number
CELL, SMALL_CELL, LETTER = 0.62, 0.24, 0.085  # inches: a cell with and without a number, a letter of a name
MAX_POINTS = 4000
COLOUR_MAX = 1.35  # value of the strongest colour, above 1 so that numbers stay legible on every cell


class ScoreWithInterval(NamedTuple):
    """A value with its interval, for `comparison`; `colour` is a series index."""

    name: str
    value: float
    low: float | None
    high: float | None
    colour: int = 0


def comparison(rows: Sequence[ScoreWithInterval], xlabel: str, write: Callable[[float], str]) -> Figure:
    """A dot and an interval per row, the first row on top."""
    figure, axes = figures.new(7, 0.75 + 0.34 * len(rows))
    with plot_style():
        for index, row in enumerate(rows):
            line_colour = colour(row.colour)
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [index, index], color=line_colour, linewidth=3, alpha=0.35)
            axes.plot([row.value], [index], "o", color=line_colour, markersize=6.5)
            tip = row.value if row.high is None else row.high
            axes.annotate(escape_math(write(row.value)), (tip, index), xytext=(9, 0), textcoords="offset points",
                          va="center", fontsize=9)  # fmt: skip
        axes.xaxis.set_major_formatter(lambda value, _: write(value))
        axes.set_yticks(range(len(rows)), [label(row.name) for row in rows])
        axes.tick_params(axis="y", labelcolor=LIGHT["ink"], labelsize=9)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.margins(x=0.14)
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(escape_math(xlabel))
    return figure


def learning(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], ylabel: str) -> Figure:
    """One curve per seed. Long curves are smoothed over a thirtieth of their length."""
    smooth = {name: Series(x, moving_mean(y, len(y) // 60, len(y) // 60)) for name, (x, y) in curves.items()}
    return figures.lines(smooth, xlabel="epoch", ylabel=ylabel, width=HALF, height=3)


def confusion(matrix: np.ndarray, names: Sequence[str]) -> Figure:
    """Confusion matrix of counts. The colour is the share of the row, so that rare labels are visible."""
    totals = matrix.sum(1, keepdims=True)
    shares = matrix / np.maximum(totals, 1)
    numbered = len(names) <= MAX_NUMBERED_CELLS
    shown = [shorten(name, figures.MAX_CELL_LABEL) for name in names]
    longest = max(map(len, shown))
    slanted = longest * len(names) > 40 or not numbered
    cells = len(names) * (CELL if numbered else SMALL_CELL)
    figure = figures.heatmap(
        shares, rows=shown, columns=shown, xlabel="predicted", ylabel="true", low=0.0, high=COLOUR_MAX, scale=False,
        width=cells + LETTER * longest + 0.5, height=0.8 * cells + (0.8 * LETTER * longest if slanted else 0) + 0.9,
    )  # fmt: skip
    axes = figure.axes[0]
    with plot_style():
        axes.tick_params(labelcolor=LIGHT["ink"])
        for text in axes.get_xticklabels():
            text.set(rotation=0, horizontalalignment="center")
        if slanted:
            rotate_ticks(axes, 45)
        if numbered:
            for row, column in np.ndindex(*matrix.shape):
                axes.text(column, row, f"{int(matrix[row, column]):,}", ha="center", va="center", color=LIGHT["ink"],
                          fontsize=9 if len(names) <= 8 else 7.5)  # fmt: skip
    return figure


def roc(curves: Mapping[str, RocCurve]) -> Figure:
    lines: dict[str, Series] = {
        name: Series(*_thinned(curve.false_positive_rate, curve.true_positive_rate), colour=index)
        for index, (name, curve) in enumerate(curves.items())
    }
    lines["_guessing"] = Series([0, 1], [0, 1], dashed=True, faint=True, colour=0)
    return _unit_square(lines, "false positive rate", "true positive rate")


def precision_recall(curves: Mapping[str, PrecisionRecallCurve], share_positive: float) -> Figure:
    lines: dict[str, Series] = {
        name: Series(*_thinned(curve.recall, curve.precision), colour=index)
        for index, (name, curve) in enumerate(curves.items())
    }
    lines["_guessing"] = Series([0, 1], [share_positive] * 2, dashed=True, faint=True, colour=0)
    return _unit_square(lines, "recall", "precision")


def calibration(curves: Mapping[str, CalibrationCurve]) -> Figure:
    """Observed frequency against predicted probability. Dot size is the number of predictions in a bin."""
    figure, axes = figures.new(HALF, 3.9)
    with plot_style():
        axes.plot([0, 1], [0, 1], color=LIGHT["muted"], linewidth=1, linestyle=(0, (4, 2)))
        largest = max((int(curve.counts.max()) for curve in curves.values() if len(curve.counts)), default=1)
        for index, (name, curve) in enumerate(curves.items()):
            line_colour = colour(1 - index if len(curves) == 2 else index)
            sizes = 12 + 90 * curve.counts / largest
            axes.plot(curve.confidence, curve.observed, color=line_colour, linewidth=1.4, label=label(name))
            axes.scatter(curve.confidence, curve.observed, s=sizes, color=line_colour, alpha=0.75, linewidths=0)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        set_labels(axes, "", "predicted probability", "observed frequency")
        legend_above(axes)
    return figure


def probabilities_by_class(
    positive: np.ndarray, negative: np.ndarray, names: Sequence[str], threshold: float
) -> Figure:
    """Histogram of the probabilities of both classes, with the threshold."""
    from matplotlib.ticker import MaxNLocator

    edges = np.linspace(0, 1, 26)
    figure, axes = figures.new(HALF, 3.9)
    with plot_style():
        for values, name, index in ((negative, names[0], 1), (positive, names[1], 0)):
            counts, _ = np.histogram(values, edges)
            axes.stairs(counts, edges, fill=True, color=colour(index), alpha=0.3, linewidth=0)
            axes.stairs(counts, edges, color=colour(index), linewidth=1.4, label=label(f"true: {name}", 22))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.axvline(threshold, color=LIGHT["ink"], linewidth=1, linestyle=(0, (2, 2)))
        axes.grid(False, axis="x")
        set_labels(axes, "", f"probability of {names[1]}", "examples")
        legend_above(axes)
    return figure


def true_and_predicted(truth: np.ndarray, predicted: np.ndarray, line: bool = True) -> Figure:
    figure, axes = figures.new(HALF, 3.9)
    truth, predicted = _sampled(truth, predicted)
    low, high = float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))
    with plot_style():
        if line:
            axes.plot([low, high], [low, high], color=LIGHT["muted"], linewidth=1, linestyle=(0, (4, 2)))
        alpha = float(np.clip(200 / len(truth), 0.15, 0.7))
        axes.scatter(truth, predicted, s=14, color=colour(0), alpha=alpha, linewidths=0)
        set_labels(axes, "", "true", "predicted")
    return figure


def residuals(truth: np.ndarray, predicted: np.ndarray) -> Figure:
    errors = predicted - truth
    counts, edges = np.histogram(errors, min(40, max(8, int(len(errors) ** 0.5))))
    return figures.histogram(
        counts, edges, xlabel="predicted minus true", ylabel="examples", marks={"no error": 0.0}, width=HALF, height=3.9
    )


def ranks_off(distance: np.ndarray) -> Figure:
    """Bars with the share of predictions by rank error."""
    steps = np.arange(distance.min(), distance.max() + 1)
    names = [f"{abs(step)} too {'low' if step < 0 else 'high'}" if step else "correct" for step in steps.tolist()]
    shares = [float((distance == step).mean()) for step in steps]
    return figures.bars(
        names, shares, write=lambda share: f"{share:.1%}", width=HALF, series=[0 if step == 0 else 1 for step in steps]
    )


def label_scores(names: Sequence[str], ours: np.ndarray, theirs: np.ndarray | None, xlabel: str = "F1") -> Figure:
    """Our score and the baseline's for each label, joined by a line in the colour of the better one."""
    figure, axes = figures.new(7, 0.8 + 0.25 * len(names))
    with plot_style():
        indices = np.arange(len(names))
        if theirs is not None:
            for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
                axes.plot([mine, other], [index, index], color=colour(int(mine < other)), linewidth=2, alpha=0.4)
            axes.plot(theirs, indices, "s", color=colour(1), markersize=5, label="baseline")
        axes.plot(ours, indices, "o", color=colour(0), markersize=6.5, label="this model")
        axes.set_yticks(indices, [label(name) for name in names])
        axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xlabel(xlabel)
        if theirs is not None:
            legend_above(axes)
    return figure


def thresholds(curve: PrecisionRecallCurve, chosen: float) -> Figure:
    """Precision, recall and F1 by threshold."""
    at, precision, recall = (np.asarray(a)[::-1] for a in (curve.thresholds, curve.precision, curve.recall))
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    shown = np.unique(np.linspace(0, len(at) - 1, min(len(at), 300)).astype(int))
    return figures.lines(
        {"precision": (at[shown], precision[shown]),
         "recall": (at[shown], recall[shown]), "F1": (at[shown], f1[shown])},
        xlabel="threshold", marks={f"chosen: {chosen:.2f}": chosen}, width=HALF, height=3.4,
    )  # fmt: skip


def _unit_square(lines: Mapping[str, Series], xlabel: str, ylabel: str) -> Figure:
    figure, axes = figures.new(HALF, 3.9)
    with plot_style():
        for name, line in lines.items():
            style = {"alpha": 0.6, "linewidth": 1.0} if line.faint else {}
            line_colour = LIGHT["muted"] if line.faint else colour(line.colour or 0)
            dashes = (0, (4, 2)) if line.dashed else "-"
            shown = None if name.startswith("_") else label(name)
            axes.plot(line.x, line.y, color=line_colour, linestyle=dashes, label=shown, **style)  # type: ignore[arg-type]
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        set_labels(axes, "", xlabel, ylabel)
        if len(lines) > 2:
            legend_above(axes)
    return figure


def _thinned(x: np.ndarray, y: np.ndarray, max_points: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Reduce a curve to at most `max_points` points, to keep the page small; the end points stay."""
    shown = np.unique(np.linspace(0, len(x) - 1, min(len(x), max_points)).astype(int))
    return x[shown], y[shown]


def _sampled(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(x) <= MAX_POINTS:
        return x, y
    chosen = np.random.default_rng(0).choice(len(x), MAX_POINTS, replace=False)
    return x[chosen], y[chosen]
