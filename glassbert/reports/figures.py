"""Figures for reports: lines, histogram, bars, heat map and scatter plot, in one style.

Every function returns a matplotlib figure. With `axes` (see `grid`) it draws into these. matplotlib is imported only
when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import InputError
from glassbert.reports.drawing import (
    LIGHT,
    MISSING,
    available,
    axis_numbers,
    colour,
    draw_marks,
    escape_math,
    figure_and_axes,
    fill_log_ticks,
    grid,
    is_dates,
    label,
    label_ends,
    legend_above,
    new,
    plot_style,
    rotate_ticks,
    set_date_axis,
    set_labels,
    set_scales,
    to_png,
    to_svg,
)
from glassbert.reports.numbers import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MISSING", "Series", "available", "bars", "colour", "grid", "heatmap", "histogram", "lines"]
__all__ += ["new", "scatter", "to_png", "to_svg"]
MAX_CELL_LABEL = 22  # characters of a name beside a matrix
# Colours of heat maps: from orange over transparent to blue, visible on white and on black.
SIGNED = [(0.85, 0.40, 0.10, 1.0), (0.85, 0.40, 0.10, 0.0), (0.14, 0.47, 0.77, 0.0), (0.14, 0.47, 0.77, 1.0)]


@dataclass(frozen=True)
class Series:
    """One line: points (x may be dates), optionally a band from `low` to `high`, dashed, or `faint` for raw values."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    low: Sequence[float] | np.ndarray | None = None
    high: Sequence[float] | np.ndarray | None = None
    dashed: bool = False
    faint: bool = False
    colour: int | None = None


def _has_logarithm(values: Any) -> bool:
    array = np.asarray(values, float)
    return bool((np.isfinite(array) & (array > 0)).any())


def lines(
    series: Mapping[str, Series | tuple[Any, Any]],
    *,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    marks: Mapping[str, Any] | None = None,
    axes: Axes | None = None,
    width: float = 7,
    height: float = 3.2,
) -> Figure:
    """Lines, each labelled at its right end. A name beginning with "_" gets no label. `marks` are vertical lines.

    Positions may be dates (`datetime64`), also those of marks.
    """
    figure, axes = figure_and_axes(axes, width, height)
    ends: list[tuple[float, float, str, str]] = []
    with plot_style():
        drawn = [one.y if isinstance(one, Series) else one[1] for one in series.values()]
        log_y = log_y and any(_has_logarithm(y) for y in drawn)  # a curve of NaN has none
        set_scales(axes, log_x, log_y)
        if any(is_dates(line.x if isinstance(line, Series) else line[0]) for line in series.values()):
            set_date_axis(axes)
        for index, (name, given) in enumerate(series.items()):
            line = given if isinstance(given, Series) else Series(*given)
            x, y = axis_numbers(line.x), np.asarray(line.y, float)
            if x.shape != y.shape or x.ndim != 1:
                raise InputError(
                    f"the line {name!r} has {x.size} positions and {y.size} values; they must be equal in number"
                )
            ink = colour(index if line.colour is None else line.colour)
            if line.low is not None and line.high is not None:
                axes.fill_between(x, np.asarray(line.low), np.asarray(line.high), color=ink, alpha=0.18, linewidth=0)
            style: dict[str, Any] = {"alpha": 0.35, "linewidth": 0.9} if line.faint else {}
            axes.plot(x, y, color=ink, linestyle=(0, (4, 2)) if line.dashed else "-", **style)
            visible = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not log_y)))
            if visible.size and not name.startswith("_"):
                ends.append((x[visible[-1]], y[visible[-1]], name, ink))
        fill_log_ticks(axes)
        set_labels(axes, title, xlabel, ylabel)
        draw_marks(axes, {name: float(axis_numbers(x)) for name, x in (marks or {}).items()})
        if len(series) > 1:
            label_ends(figure, axes, ends)
    return figure


def histogram(
    counts: Sequence[float] | np.ndarray,
    edges: Sequence[float] | np.ndarray,
    *,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    marks: Mapping[str, float] | None = None,
    series: int = 0,
    axes: Axes | None = None,
    width: float = 7,
    height: float = 2.8,
) -> Figure:
    """Counts and edges as from `numpy.histogram`; `marks` are vertical lines, such as the median."""
    counts, edges = np.asarray(counts, float), np.asarray(edges, float)
    if edges.size != counts.size + 1:
        raise InputError(f"{counts.size} counts need {counts.size + 1} edges, not {edges.size}")
    figure, axes = figure_and_axes(axes, width, height)
    with plot_style():
        set_scales(axes, log_x, log_y)
        ink = colour(series)
        axes.stairs(counts, edges, fill=True, color=ink, alpha=0.28, linewidth=0)
        axes.stairs(counts, edges, color=ink, linewidth=1.4)
        axes.grid(False, axis="x")
        fill_log_ticks(axes)
        set_labels(axes, title, xlabel, ylabel)
        draw_marks(axes, marks)
    return figure


def bars(
    names: Sequence[str],
    values: Sequence[float] | np.ndarray,
    *,
    low: Sequence[float] | np.ndarray | None = None,
    high: Sequence[float] | np.ndarray | None = None,
    xlabel: str = "",
    title: str = "",
    write: Callable[[float], str] = number,
    series: int | Sequence[int] = 0,
    axes: Axes | None = None,
    width: float = 7,
    height: float | None = None,
) -> Figure:
    """Horizontal bars, the first at the top, each with its value at its end; `low` and `high` are intervals."""
    lengths = np.asarray(values, float)
    if len(names) != lengths.size:
        raise InputError(f"there are {len(names)} names for {lengths.size} bars")
    figure, axes = figure_and_axes(axes, width, height or 0.7 + 0.27 * max(len(names), 1))
    with plot_style():
        axes.xaxis.set_major_formatter(lambda value, _: write(value))
        inks = [colour(series if isinstance(series, int) else series[i]) for i in range(len(names))]
        positions = np.arange(len(names))
        axes.barh(positions, lengths, height=0.62, color=inks, linewidth=0, alpha=1 if low is None else 0.6)
        tips = lengths
        if low is not None and high is not None:
            axes.hlines(positions, low, high, color=LIGHT["ink"], linewidth=1.2)
            tips = np.maximum(lengths, np.asarray(high, float))
        for position, tip, value in zip(positions, tips, lengths, strict=True):
            axes.annotate(escape_math(write(value)), (max(tip, 0), position), xytext=(5, 0), textcoords="offset points",
                          va="center", fontsize=8.5)  # fmt: skip
        axes.set_yticks(positions, [label(name) for name in names])
        axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(bool((lengths < 0).any()))
        set_labels(axes, title, xlabel, "")
    return figure


def heatmap(
    values: Sequence[Sequence[float]] | np.ndarray,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    low: float | None = None,
    high: float | None = None,
    scale: bool = True,
    axes: Axes | None = None,
    width: float = 5,
    height: float = 4.2,
) -> Figure:
    """A matrix as colours. Zero is transparent; negative values have a second hue."""
    matrix = np.asarray(values, float)
    figure, axes = figure_and_axes(axes, width, height)
    with plot_style():
        from matplotlib.colors import LinearSegmentedColormap, Normalize

        top = float(np.nanmax(matrix)) if high is None else high
        bottom = float(np.nanmin(matrix)) if low is None else low
        if bottom < 0:
            bottom, top = -max(-bottom, top), max(-bottom, top)
        stops = list(zip((0, 0.5, 0.5, 1), SIGNED, strict=True)) if bottom < 0 else SIGNED[2:]
        shades = LinearSegmentedColormap.from_list("glass", stops)
        image = axes.imshow(
            matrix, cmap=shades, norm=Normalize(bottom, top), aspect="auto", interpolation="none", origin="upper"
        )
        axes.grid(False)
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(LIGHT["grid"])
        if columns is not None:
            axes.set_xticks(range(len(columns)), [label(name, MAX_CELL_LABEL) for name in columns])
            if max(map(len, columns), default=0) > 3:
                rotate_ticks(axes, 60)
        if rows is not None:
            axes.set_yticks(range(len(rows)), [label(name, MAX_CELL_LABEL) for name in rows])
        axes.tick_params(length=0)
        set_labels(axes, title, xlabel, ylabel)
        if scale:
            bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
            bar.outline.set_visible(False)  # type: ignore[operator]
            bar.ax.grid(False)
    return figure


def scatter(
    groups: Mapping[str, tuple[Any, Any]],
    *,
    labels: Mapping[str, tuple[float, float]] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    axes: Axes | None = None,
    width: float = 7,
    height: float = 4.2,
) -> Figure:
    """Groups of points, each with its colour and marker; `labels` are texts at given positions."""
    figure, axes = figure_and_axes(axes, width, height)
    with plot_style():
        set_scales(axes, log_x, log_y)
        for index, (name, (x, y)) in enumerate(groups.items()):
            marker = "osD^vP"[index % 6]
            axes.scatter(x, y, s=18, marker=marker, color=colour(index), alpha=0.75, linewidths=0, label=label(name))
        for text, position in (labels or {}).items():
            axes.annotate(label(text), position, xytext=(5, 4), textcoords="offset points", fontsize=8.5)
        fill_log_ticks(axes)
        set_labels(axes, title, xlabel, ylabel)
        if len(groups) > 1:
            legend_above(axes)
    return figure
