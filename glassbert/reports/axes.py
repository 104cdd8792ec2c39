"""What all pictures have in common: colours, words, scales, marks, and names at the ends of lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from glassbert.reports.drawing import new
from glassbert.reports.numbers import short
from glassbert.reports.palette import LIGHT, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def colour(index: int) -> str:
    """The colour of the series of this number; after the sixth they begin again."""
    return LIGHT[SERIES[index % len(SERIES)]]


def plain(text: str) -> str:
    """A label as it is: a dollar sign would make matplotlib read mathematics."""
    return text.replace("$", r"\$")


def canvas(axes: Axes | None, width: float, height: float) -> tuple[Figure, Axes]:
    if axes is None:
        return new(width, height)
    return axes.get_figure(root=True), axes  # type: ignore[return-value]


def words(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Titles; the vertical axis is named above it, where nobody has to turn the head."""
    axes.set_xlabel(plain(xlabel))
    above = plain(ylabel)
    if title:
        axes.set_title(plain(title) + ("\n" if above else ""))
    if above:
        axes.annotate(above, (0, 1), xytext=(0, 5), xycoords="axes fraction", textcoords="offset points",
                      fontsize=8.5, color=LIGHT["muted"])  # fmt: skip


def scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    """Linear or logarithmic axes, with numbers written out up to a million instead of as powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis, logarithmic in ((axes.xaxis, log_x), (axes.yaxis, log_y)):
        if logarithmic:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(round(value, 10))))


def draw_marks(axes: Axes, marks: Mapping[str, float] | None) -> None:
    """Vertical lines with their names, which stand above whatever is drawn."""
    if not marks:
        return
    if axes.get_yscale() == "linear":
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top + 0.12 * (top - bottom))
    for name, place in marks.items():
        axes.axvline(place, color=LIGHT["ink"], linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(plain(name), (place, 1), xycoords=("data", "axes fraction"), xytext=(4, -1),
                      textcoords="offset points", va="top", fontsize=8.5)  # fmt: skip


def label_ends(figure: Figure, axes: Axes, ends: list[tuple[float, float, str, str]], apart: float = 12) -> None:
    """Names to the right of the axes at the height where each line ends, pushed apart where they would overlap."""
    figure.draw_without_rendering()
    point = figure.dpi / 72
    heights = [(axes.transData.transform((x, y))[1], name, ink) for x, y, name, ink in ends]
    floor = -np.inf
    box = axes.get_window_extent()
    for height, name, ink in sorted(heights):
        at = max(height, floor)
        floor = at + apart * point
        beside = (1, (at - box.y0) / box.height)
        axes.annotate(plain(name), beside, xycoords="axes fraction", xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=9, color=ink, annotation_clip=False)  # fmt: skip
