"""The figure of a study: points, the law with its band, the prediction, and the trained result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.evaluation.scaling.law import Law
from glassbert.evaluation.scaling.outcome import Outcome
from glassbert.reports import short
from glassbert.reports.drawing import LIGHT, colour, label_ends, new, plot_style, set_labels, set_scales

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = ("law", "trained", "predicted", "then")  # order of the legend, by the first word of the label
COUNTED = {"encoder": "parameters of the blocks", "all": "parameters, embeddings and head included"}


def law_figure(outcome: Outcome, width: float = 7, height: float = 4.4) -> Figure:
    """Loss against size, both logarithmic; one curve per token count."""
    figure, axes = new(width, height)
    law, count = outcome.law, outcome.plan.count
    with plot_style():
        set_scales(axes, log_x=True, log_y=True)
        series = _series(outcome)
        ends: list[tuple[float, float, str, str]] = []
        for index, (label, cells) in enumerate(series.items()):
            ink = colour(index)
            if law is not None:
                ends.append((*_curve(axes, outcome, law, cells, ink), label, ink))
            sizes = [cell.shape.count(count) for cell in cells]
            _points(axes, sizes, [cell.loss for cell in cells], law, ink)
            if index == 0:  # the loss falls, so there is space above the highest curve
                for cell, x in zip(cells, sizes, strict=True):
                    _note(axes, f"{cell.shape.size:g}", x, cell.loss)
        if law is not None:
            _predictions(axes, outcome)
        set_labels(axes, "", COUNTED[count], "held-out loss (nats a word)")
        _ticks(axes)
        if len(series) > 1:
            label_ends(figure, axes, ends)
        _legend(axes)
    return figure


def _series(outcome: Outcome) -> dict[str, list[Any]]:
    """Cells by the planned token count, which names the curve."""
    found: dict[str, list[Any]] = {}
    for level, given in enumerate(outcome.plan.tokens):
        by_size: dict[float, list[Any]] = {}
        for cell in outcome.cells:
            by_size.setdefault(cell.shape.size, []).append(cell)
        name = f"{short(given)} tokens" if outcome.plan.match == "tokens" else f"{short(given)} at the largest"
        found[name] = [sorted(cells, key=lambda cell: cell.tokens)[level] for cells in by_size.values()]
    return found


def _curve(axes: Axes, outcome: Outcome, law: Law, cells: list[Any], ink: str) -> tuple[float, float]:
    """Draw the law with its band, slightly beyond the points and the prediction; returns its right end."""
    shapes = [*(cell.shape for cell in cells), outcome.target]
    counts = np.array([shape.count(outcome.plan.count) for shape in shapes], np.float64)
    flops = np.array([shape.flops for shape in shapes])
    n = np.geomspace(0.8 * counts.min(), 1.25 * counts.max(), 120)
    tokens = np.full(len(n), float(cells[0].tokens))
    if outcome.plan.match == "compute":  # tokens are interpolated by cost, and not beyond the sizes
        n, order = np.geomspace(counts.min(), counts.max(), 120), np.argsort(counts)
        tokens = cells[0].tokens * cells[0].shape.flops / np.interp(n, counts[order], flops[order])
    middle, low, high = law.band(np.stack([n, tokens], 1), noisy=False)
    axes.fill_between(n, low, high, color=ink, alpha=0.16, linewidth=0)
    axes.plot(n, middle, color=ink, linewidth=1.4, label=f"law, {law.level:.0%} band")
    return float(n[-1]), float(middle[-1])


def _points(axes: Axes, sizes: list[int], losses: list[float], law: Law | None, ink: str) -> None:
    """Trained sizes; the bars are the expected distance of a run from the law."""
    bars = None if law is None else 1.645 * law.expected
    axes.errorbar(sizes, losses, yerr=bars, fmt="o", color=ink, markersize=5.5, capsize=2.5, linewidth=1.1,
                  label="trained", zorder=3)  # fmt: skip


def _predictions(axes: Axes, outcome: Outcome) -> None:
    """The interval of the next size and its trained loss; without a run, the interval at the most tokens."""
    size, ink = outcome.target.count(outcome.plan.count), LIGHT["ink"]
    for index, tokens in enumerate([cell.tokens for cell in outcome.checks] or [outcome.target_tokens()]):
        found = outcome.prediction(tokens=tokens)
        assert found is not None
        axes.errorbar([size], [found.middle], yerr=[[found.middle - found.low], [found.high - found.middle]], fmt="D",
                      color=ink, markerfacecolor=LIGHT["paper"], markersize=8, capsize=5, linewidth=1.4, zorder=4,
                      label=f"predicted, {outcome.level:.0%} interval")  # fmt: skip
        if index == 0:
            _note(axes, f"{outcome.target.size:g}", size, found.high)
    for cell in outcome.checks:
        axes.plot([size], [cell.loss], "X", color=colour(3), markeredgewidth=0, markersize=7, zorder=5,
                  label=f"then trained: {outcome.verdict}")  # fmt: skip


def _note(axes: Axes, text: str, x: float, y: float) -> None:
    axes.annotate(text, (x, y), xytext=(6, 7), textcoords="offset points", fontsize=8.5, color=LIGHT["muted"])


def _legend(axes: Axes) -> None:
    """Each kind of mark once, for any number of curves."""
    found = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    order = sorted(found, key=lambda label: MARKS.index(re.split(r"\W", label)[0]))
    axes.legend([found[label] for label in order], order, loc="upper right")


def _ticks(axes: Axes) -> None:
    """Ticks at 1, 2 and 5: powers of ten alone may leave a short axis without a label."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
