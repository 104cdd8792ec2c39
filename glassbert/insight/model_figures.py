"""Figures of representations, gradients and training: point clouds, layer similarity, gradient flow, evolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.insight.attention_figures import evenly_spaced
from glassbert.insight.dynamics import Evolution, Flow, LoggedFlow
from glassbert.insight.geometry import Components
from glassbert.reports import figures, short
from glassbert.reports.drawing import LIGHT, escape_math, plot_style
from glassbert.reports.figures import Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def saliency_figure(
    tokens: Mapping[str, Sequence[str]], values: Mapping[str, np.ndarray], titles: Mapping[str, str]
) -> Figure:
    """Attributions of the tokens of one sentence, by model, on one scale."""
    longest = max(map(len, tokens.values()))
    figure, axes = figures.grid(1, len(tokens), 4.6 * len(tokens) + 0.3, 0.9 + 0.28 * longest)
    low, high = (float(end) for end in (min(map(np.min, values.values())), max(map(np.max, values.values()))))
    low, high = min(low, 0.0) if low < -0.02 * high else 0.0, max(high, 0.0)
    margin = 0.18 * (high - low or 1.0)
    for here, (name, words) in zip(axes[0], tokens.items(), strict=True):
        inks = [0 if value >= 0 else 1 for value in values[name]]
        figures.bars(list(words), values[name], series=inks, title=titles[name], xlabel="nats", axes=here,
                     write=lambda x: f"{x:+.2f}".replace("-", "−"))  # fmt: skip
        here.set_xlim(low - margin * (low < 0), high + margin)
        here.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
    return figure


def clouds_figure(
    clouds: Mapping[str, Mapping[str, Components]], groups: Mapping[str, np.ndarray], limit: int = 700
) -> Figure:
    """Words in the plane of the first two principal components: one row per model, one column per layer.

    For deep models five evenly spaced layers are shown.
    """
    clouds = {
        name: {list(one)[i]: list(one.values())[i] for i in evenly_spaced(len(one), 5)} for name, one in clouds.items()
    }
    columns = max(map(len, clouds.values()))
    figure, axes = figures.grid(len(clouds), columns, 2.4 * columns + 0.3, 2.5 * len(clouds) + 0.5)
    for row, (name, layers) in enumerate(clouds.items()):
        for column in range(columns):
            axes[row][column].set_visible(column < len(layers))
        for column, (layer, cloud) in enumerate(layers.items()):
            here = axes[row][column]
            _cloud(here, cloud.points, groups, limit)
            here.set_title(f"{name}, {layer}" if column == 0 else layer, fontsize=9)
            here.set_xlabel(f"{cloud.shares[:2].sum():.0%} of the variance", fontsize=8)
    _legend(figure, axes, groups)
    return figure


def neighbourhoods_figure(
    points: Mapping[str, np.ndarray], groups: Mapping[str, np.ndarray], limit: int = 1_000
) -> Figure:
    """Words in a plane, one plot per model."""
    figure, axes = figures.grid(1, len(points), 4.4 * len(points) + 0.2, 4.2)
    for here, (name, cloud) in zip(axes[0], points.items(), strict=True):
        _cloud(here, cloud, groups, limit)
        here.set_title(escape_math(name))
    _legend(figure, axes, groups)
    return figure


def _cloud(axes: Any, points: np.ndarray, groups: Mapping[str, np.ndarray], limit: int) -> None:
    kept = np.zeros(len(points), bool)
    kept[np.linspace(0, len(points) - 1, min(len(points), limit)).astype(int)] = True
    for index, (group, members) in enumerate(groups.items()):
        some = points[kept & members[: len(kept)]]
        axes.scatter(some[:, 0], some[:, 1], s=5, color=figures.colour(index), alpha=0.6, linewidths=0, label=group)
    axes.set_xticks([])
    axes.set_yticks([])


def _legend(figure: Figure, axes: Any, groups: Mapping[str, np.ndarray]) -> None:
    if len(groups) > 1:
        handles, labels = axes[0][0].get_legend_handles_labels()
        with plot_style():
            figure.legend(handles, labels, loc="outside lower center", ncols=len(groups), markerscale=2)


def shape_figure(shapes: Mapping[str, Mapping[str, Sequence[float]]], layers: Sequence[str]) -> Figure:
    """Anisotropy, isotropy and intrinsic dimension by layer: one plot each, one line per model."""
    measures = list(next(iter(shapes.values())))
    figure, axes = figures.grid(1, len(measures), 3.3 * len(measures) + 0.2, 2.7)
    for column, measure in enumerate(measures):
        lines = {name: Series(np.arange(len(one[measure])), np.asarray(one[measure])) for name, one in shapes.items()}
        here = axes[0][column]
        figures.lines(lines, title=measure, axes=here)
        here.set_xticks(range(len(layers)), layers)
    return figure


def likeness_figure(tables: Mapping[str, np.ndarray], layers: Sequence[str]) -> Figure:
    """Linear CKA between layers, one table per pair of models."""
    figure, axes = figures.grid(1, len(tables), 3.3 * len(tables) + 0.2, 3.1)
    for column, (name, table) in enumerate(tables.items()):
        here = axes[0][column]
        figures.heatmap(table, rows=layers if column == 0 else [""] * len(table), columns=layers, low=0, high=1,
                        scale=False, title=name, axes=here)  # fmt: skip
        here.tick_params(axis="x", labelrotation=0)
        if max(table.shape) <= 8:
            for index in np.ndindex(*table.shape):
                here.annotate(f"{table[index]:.2f}", index[::-1], ha="center", va="center", fontsize=8,
                              color=LIGHT["ink"])  # fmt: skip
    return figure


def flow_figure(flows: Mapping[str, Flow]) -> Figure:
    """Gradient norm by depth, at the residual stream and in the weights."""
    figure, axes = figures.grid(1, 2, 9.4, 3.2)
    for here, field, title in zip(
        axes[0], ("stream", "parameters"), ("at the residual stream", "in the weights"), strict=True
    ):
        tables: dict[str, dict[str, float]] = {name: getattr(flow, field) for name, flow in flows.items()}
        parts = list(next(iter(tables.values())))
        lines = {name: Series(np.arange(len(one)), np.array(list(one.values()))) for name, one in tables.items()}
        figures.lines(lines, title=f"Norm of the gradient {title}", log_y=True, axes=here)
        here.set_xticks(range(len(parts)), short_names(parts), rotation=0 if len(parts) < 7 else 60)
    return figure


def logged_figure(flow: LoggedFlow) -> Figure:
    """Gradient norms, update ratios and attention entropies of a run against the step."""
    figure, axes = figures.grid(1, 3, 11.4, 3.2)
    _over_steps(axes[0][0], flow.steps, flow.gradient_norms, flow.places, "Gradient norm", True)
    _over_steps(axes[0][1], flow.steps, flow.update_ratios, flow.places, "Update over weight", True)
    _over_steps(axes[0][2], flow.steps, flow.attention_entropies, flow.layers, "Attention entropy", False)
    return figure


def evolution_figure(found: Evolution) -> Figure:
    """Relative weight change and CKA with the final layers, against the step."""
    figure, axes = figures.grid(1, 2, 9.4, 3.2)
    _over_steps(axes[0][0], found.steps, found.change, found.places, "Distance from the start, over its size", False)
    # All lines end at 1, so labels at their ends would overlap: use a legend.
    unnamed = [f"_{layer}" for layer in found.layers]
    _over_steps(axes[0][1], found.steps, found.likeness, unnamed, "Likeness to the end (CKA)", False)
    with plot_style():
        names = short_names(found.layers)
        axes[0][1].legend(axes[0][1].get_lines(), names, loc="center left", bbox_to_anchor=(1, 0.5))
        for here in axes[0]:
            here.set_xscale("symlog", linthresh=max(1, int(found.steps[found.steps > 0].min())))
            here.set_xlim(0, 1.1 * found.steps.max())
            here.xaxis.set_major_formatter(lambda value, _: short(value))
    return figure


def _over_steps(axes: Any, steps: np.ndarray, table: np.ndarray, parts: Sequence[str], title: str, log_y: bool) -> None:
    names = short_names(parts)
    figures.lines({name: Series(steps, table[:, i]) for i, name in enumerate(names)}, xlabel="step", title=title,
                  log_y=log_y, axes=axes)  # fmt: skip


def short_names(parts: Sequence[str]) -> list[str]:
    """Short axis labels: "emb." for embeddings, "0" for layers.0, "norm" for final_norm."""
    short = {"embeddings": "emb.", "final_norm": "norm"}
    return [short.get(part, part.replace("layers.", "")) for part in parts]
