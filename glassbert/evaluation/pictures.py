"""Breakdowns as pictures: a dot for every value, its interval as a line, subjects told apart by colour and sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from glassbert.evaluation.measures import Measure, write
from glassbert.reports import figures
from glassbert.reports.drawing import LIGHT, escape_math, plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNS = "osD^vP"


def group_figure(rows: Mapping[str, Sequence[Measure]], marks: Mapping[str, float] | None = None) -> Figure:
    """One line for every name, the first on top; `marks` are vertical lines, chance say."""
    names = list(dict.fromkeys(row.name for some in rows.values() for row in some if row.value is not None))
    unit = next(row.unit for some in rows.values() for row in some)
    height = 0.75 + len(names) * (0.235 + 0.06 * (len(rows) - 1))
    figure, axes = figures.new(7, height)
    with plot_style():
        for number, (subject, some) in enumerate(rows.items()):
            known = [row for row in some if row.value is not None]
            if not known:
                continue
            offset = (number - (len(rows) - 1) / 2) * 0.26
            places = np.array([names.index(row.name) for row in known]) + offset
            values = np.array([float(row.value or 0.0) for row in known])
            ink = figures.colour(number)
            for row, place in zip(known, places, strict=True):
                if row.interval is not None:
                    axes.hlines(place, *row.interval, color=ink, linewidth=1.6, alpha=0.55)
            axes.scatter(
                values,
                places,
                s=24,
                marker=SIGNS[number % 6],
                color=ink,
                linewidths=0,
                label=escape_math(subject),
                zorder=3,
            )
            if len(rows) == 1:
                ends = np.array([row.interval[1] if row.interval else row.value for row in known], float)
                for row, place, end in zip(known, places, ends, strict=True):
                    axes.annotate(escape_math(row.text), (end, place), xytext=(6, 0), textcoords="offset points",
                                  va="center", fontsize=8.5)  # fmt: skip
        for name, at in (marks or {}).items():
            axes.axvline(at, color=LIGHT["muted"], linewidth=1, linestyle=(0, (3, 3)))
            axes.annotate(escape_math(name), (at, 1), xycoords=("data", "axes fraction"), xytext=(3, 3),
                          textcoords="offset points", fontsize=8.5, color=LIGHT["muted"])  # fmt: skip
        axes.set_yticks(range(len(names)), [escape_math(name) for name in names])
        axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(False, axis="y")
        if unit == "share":
            low, high = axes.get_xlim()
            axes.set_xlim(max(low, -0.02), min(max(high, low + 0.1), 1.12 if len(rows) == 1 else 1.02))
        axes.margins(x=0.1)
        axes.xaxis.set_major_formatter(lambda value, _: write(round(value, 10), unit if unit == "share" else ""))
        axes.set_xlabel(escape_math("" if unit == "share" else unit))
        if len(rows) > 1:
            figure.legend(loc="outside lower center", ncols=min(len(rows), 3))
    return figure
