"""Figures: the few kinds of picture a report needs, drawn alike everywhere.

Every helper returns a matplotlib figure, or draws into `axes` if given some (see `grid`). Nothing here imports
matplotlib before a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import InputError
from glassbert.reports.axes import canvas, colour, draw_marks, label_ends, plain, scales, words
from glassbert.reports.drawing import MISSING, available, grid, house_style, new, to_png, to_svg
from glassbert.reports.numbers import number
from glassbert.reports.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MISSING", "Series", "available", "bars", "colour", "grid", "heatmap", "histogram", "lines"]
__all__ += ["new", "scatter", "to_png", "to_svg"]
# For heat maps: from orange over the bare paper to blue, of a lightness that shows on white and on black.
SIGNED = [(0.85, 0.40, 0.10, 1.0), (0.85, 0.40, 0.10, 0.0), (0.14, 0.47, 0.77, 0.0), (0.14, 0.47, 0.77, 1.0)]


@dataclass(frozen=True)
class Series:
    """One line: points and, if wanted, a band from `low` to `high`, dashes, or a faint stroke for raw values."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    low: Sequence[float] | np.ndarray | None = None
    high: Sequence[float] | np.ndarray | None = None
    dashed: bool = False
    faint: bool = False
    colour: int | None = None


def lines(
    series: Mapping[str, Series | tuple[Any, Any]],
    *,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    marks: Mapping[str, float] | None = None,
    axes: Axes | None = None,
    width: float = 7,
    height: float = 3.2,
) -> Figure:
    """Curves, each labelled at its right end. A name beginning with "_" gets no label; `marks` are vertical lines."""
    figure, axes = canvas(axes, width, height)
    ends: list[tuple[float, float, str, str]] = []
    with house_style():
        scales(axes, log_x, log_y)
        for index, (name, given) in enumerate(series.items()):
            line = given if isinstance(given, Series) else Series(*given)
            x, y = np.asarray(line.x, float), np.asarray(line.y, float)
            if x.shape != y.shape or x.ndim != 1:
                raise InputError(f"the line {name!r} has {x.size} positions and {y.size} values; it needs one for one")
            ink = colour(index if line.colour is None else line.colour)
            if line.low is not None and line.high is not None:
                axes.fill_between(x, np.asarray(line.low), np.asarray(line.high), color=ink, alpha=0.18, linewidth=0)
            style: dict[str, Any] = {"alpha": 0.35, "linewidth": 0.9} if line.faint else {}
            axes.plot(x, y, color=ink, linestyle=(0, (4, 2)) if line.dashed else "-", **style)
            seen = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & ((y > 0) | (not log_y)))
            if seen.size and not name.startswith("_"):
                ends.append((x[seen[-1]], y[seen[-1]], name, ink))
        words(axes, title, xlabel, ylabel)
        draw_marks(axes, marks)
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
    """Counts between edges, as `numpy.histogram` gives them; `marks` are vertical lines, a median say."""
    counts, edges = np.asarray(counts, float), np.asarray(edges, float)
    if edges.size != counts.size + 1:
        raise InputError(f"{counts.size} counts need {counts.size + 1} edges, not {edges.size}")
    figure, axes = canvas(axes, width, height)
    with house_style():
        scales(axes, log_x, log_y)
        ink = colour(series)
        axes.stairs(counts, edges, fill=True, color=ink, alpha=0.28, linewidth=0)
        axes.stairs(counts, edges, color=ink, linewidth=1.4)
        axes.grid(False, axis="x")
        words(axes, title, xlabel, ylabel)
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
    """Horizontal bars, the first on top, each with its value written at its end; `low` to `high` draw intervals."""
    lengths = np.asarray(values, float)
    if len(names) != lengths.size:
        raise InputError(f"{len(names)} names cannot label {lengths.size} bars")
    figure, axes = canvas(axes, width, height or 0.7 + 0.27 * max(len(names), 1))
    with house_style():
        axes.xaxis.set_major_formatter(lambda value, _: write(value))
        inks = [colour(series if isinstance(series, int) else series[i]) for i in range(len(names))]
        places = np.arange(len(names))
        axes.barh(places, lengths, height=0.62, color=inks, linewidth=0, alpha=1 if low is None else 0.6)
        tips = lengths
        if low is not None and high is not None:
            axes.hlines(places, low, high, color=LIGHT["ink"], linewidth=1.2)
            tips = np.maximum(lengths, np.asarray(high, float))
        for place, tip, value in zip(places, tips, lengths, strict=True):
            axes.annotate(plain(write(value)), (max(tip, 0), place), xytext=(5, 0), textcoords="offset points",
                          va="center", fontsize=8.5)  # fmt: skip
        axes.set_yticks(places, [plain(name) for name in names])
        axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(bool((lengths < 0).any()))
        words(axes, title, xlabel, "")
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
    """A matrix as colour. Zero is the paper itself; negative values, if any, get a second hue."""
    matrix = np.asarray(values, float)
    figure, axes = canvas(axes, width, height)
    with house_style():
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
            axes.set_xticks(range(len(columns)), [plain(name) for name in columns])
            if max(map(len, columns), default=0) > 3:
                axes.tick_params(axis="x", labelrotation=60)
        if rows is not None:
            axes.set_yticks(range(len(rows)), [plain(name) for name in rows])
        axes.tick_params(length=0)
        words(axes, title, xlabel, ylabel)
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
    """Points in groups, each with its colour and its sign; `labels` name single places."""
    figure, axes = canvas(axes, width, height)
    with house_style():
        scales(axes, log_x, log_y)
        for index, (name, (x, y)) in enumerate(groups.items()):
            sign = "osD^vP"[index % 6]
            axes.scatter(x, y, s=18, marker=sign, color=colour(index), alpha=0.75, linewidths=0, label=plain(name))
        for text, place in (labels or {}).items():
            axes.annotate(plain(text), place, xytext=(5, 4), textcoords="offset points", fontsize=8.5)
        words(axes, title, xlabel, ylabel)
        if len(groups) > 1:
            axes.legend(loc="best")
    return figure
