"""Figures of attention: maps by layer and head, head statistics, syntactic relations, and head importance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.insight.attention import HeadStatistics
from glassbert.insight.pruning import HeadImportance, Removal
from glassbert.insight.syntax import Syntax
from glassbert.reports import figures
from glassbert.reports.drawing import LIGHT, escape_math
from glassbert.reports.figures import Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_LAYERS, MAX_HEADS = 4, 4
GAP = 0.55  # between two models, in widths of a map
MAX_NUMBERED = 6  # layers and heads: larger tables show colours only


def maps_figure(maps: Mapping[str, np.ndarray], tokens: Mapping[str, Sequence[str]]) -> Figure:
    """Maps [layers, heads, T, T] of one sentence: a grid of layers x heads for each model, side by side.

    For larger models four evenly spaced layers and heads are shown.
    """
    shown = {
        name: (evenly_spaced(len(one), MAX_LAYERS), evenly_spaced(one.shape[1], MAX_HEADS))
        for name, one in maps.items()
    }
    rows = max(len(layers) for layers, _ in shown.values())
    ratios = [ratio for _, heads in shown.values() for ratio in (*[1.0] * len(heads), GAP)][:-1]
    figure, axes = figures.grid(
        rows, len(ratios), 1.25 * sum(ratios) + 0.6, 1.35 * rows + 0.75, gridspec_kw={"width_ratios": ratios}
    )
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.25 / figure.get_figheight()))  # type: ignore[call-arg, union-attr]
    for here in axes.flat:
        here.set_visible(False)
    left = 0
    for name, (layers, heads) in shown.items():
        for row, layer in enumerate(layers):
            for column, head in enumerate(heads):
                _map(axes[row][left + column], maps[name][layer, head], f"{layer}.{head}")
        words, corner = [escape_math(word) for word in tokens[name]], axes[len(layers) - 1][left]
        if len(words) <= 16:
            corner.set_xticks(range(len(words)), words, rotation=90, fontsize=6)
            corner.set_yticks(range(len(words)), words, fontsize=6)
        title = axes[0][left].annotate(escape_math(name), (0, 1), xytext=(0, 18), xycoords="axes fraction", fontsize=11,
                                       textcoords="offset points", fontweight="bold", color=LIGHT["ink"])  # fmt: skip
        title.set_in_layout(False)  # a long name must not push the maps apart
        left += len(heads) + 1
    return figure


def _map(axes: Any, weights: np.ndarray, title: str) -> None:
    axes.set_visible(True)
    figures.heatmap(weights, low=0, high=1, scale=False, axes=axes)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=8.5, fontweight="normal", pad=3)


COLUMNS = {
    "entropy": "entropy (1: even)",
    "distance": "distance (tokens)",
    "previous": "previous token",
    "next": "next token",
    "separators": "separators",
}


def statistics_figure(statistics: Mapping[str, HeadStatistics]) -> Figure:
    """One row per model, one column per statistic; in each, layers x heads."""
    figure, axes = figures.grid(len(statistics), len(COLUMNS), 10, 0.5 + 2.0 * len(statistics))
    longest = max(float(one.distance.max()) for one in statistics.values())
    for row, (name, one) in enumerate(statistics.items()):
        for column, (field, title) in enumerate(COLUMNS.items()):
            values, here = getattr(one, field), axes[row][column]
            figures.heatmap(values, low=0, high=longest if field == "distance" else 1, scale=False, axes=here)
            here.set_title(title if row == 0 else "", fontsize=9)
            _numbers(here, values, "{:.1f}" if field == "distance" else "{:.2f}")
            here.set_xticks(range(0, values.shape[1], 1 + values.shape[1] // 9))
            here.set_yticks(range(0, len(values), 1 + len(values) // 9))
            if column == 0:
                here.set_ylabel(f"{name}\nlayer", color=LIGHT["ink"])
            if row == len(statistics) - 1:
                here.set_xlabel("head")
    return figure


def _numbers(axes: Any, values: np.ndarray, form: str) -> None:
    if max(values.shape) <= MAX_NUMBERED:
        for index in np.ndindex(*values.shape):
            text = form.format(values[index]).replace("-", "−")
            axes.annotate(text, index[::-1], ha="center", va="center", fontsize=7.5, color=LIGHT["ink"])


def syntax_figure(found: Mapping[str, Syntax], limit: int = 12) -> Figure:
    """Accuracy of the best head for the most frequent relations; the best fixed offset as a line."""
    figure, axes = figures.grid(1, len(found), 4.9 * len(found) + 0.3, 0.9 + 0.3 * limit)
    for column, (name, syntax) in enumerate(found.items()):
        here, relations = axes[0][column], syntax.relations[:limit]
        labels = [f"{one.name}  {one.layer}.{one.head}" for one in relations]
        inks = [0 if one.is_significant else 4 for one in relations]
        figures.bars(
            labels, [one.accuracy for one in relations], series=inks, write=lambda x: "", title=name, axes=here
        )
        for bar, one in enumerate(relations):
            here.vlines(one.baseline, bar - 0.42, bar + 0.42, color=LIGHT["ink"], linewidth=2)
            here.annotate(f"{one.accuracy:.0%}", (max(one.accuracy, one.baseline), bar), xytext=(5, 0),
                          textcoords="offset points", va="center", fontsize=8.5, color=LIGHT["ink"])  # fmt: skip
        here.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        here.set_xlim(0, 1.1)
    return figure


def pruning_figure(importance: Mapping[str, HeadImportance], removal: Mapping[str, Removal]) -> Figure:
    """Per model: above the rise of the loss without each head, below the loss against the number of removed heads."""
    figure, axes = figures.grid(2, len(importance), 4.6 * len(importance) + 0.4, 5.4)
    top = max(float(np.abs(one.rise).max()) for one in importance.values())
    every = np.concatenate([one.losses for one in removal.values()])
    margin = 0.05 * (every.max() - every.min())
    for column, (name, one) in enumerate(importance.items()):
        here = axes[0][column]
        figures.heatmap(one.rise, title=f"{name}: loss {one.loss:.2f}, rise without a head", scale=False, axes=here,
                        xlabel="head", ylabel="layer", low=-top, high=top)  # fmt: skip
        here.set_xticks(range(0, one.rise.shape[1], 1 + one.rise.shape[1] // 20))
        here.set_yticks(range(0, len(one.rise), 1 + len(one.rise) // 20))
        _numbers(here, one.rise, "{:+.2f}")
        losses = removal[name].losses
        figures.lines(
            {"loss": Series(np.arange(len(losses)), losses)}, xlabel="heads removed, the cheapest first", ylabel="loss",
            axes=axes[1][column],
        )  # fmt: skip
        axes[1][column].set_ylim(every.min() - margin, every.max() + margin)
    return figure


def evenly_spaced(count: int, limit: int) -> list[int]:
    """At most `limit` evenly spaced indices below `count`, the first and the last included."""
    return sorted({round(index) for index in np.linspace(0, count - 1, min(count, limit))})
