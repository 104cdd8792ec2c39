"""Pictures of probes, drawn from plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from glassbert.reports import figures, share

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Curves = Mapping[str, Sequence[float | None]]


def by_layer(
    names: Sequence[str], scores: Curves, selectivity: Curves, levels: Mapping[str, float], title: str
) -> Figure:
    """Scores above, selectivity below, by layer and in percent; `levels` are horizontal lines, such as a baseline."""
    figure, axes = figures.grid(2, 1, 7, 4.8, sharex=True)
    places = np.arange(len(names))
    above = {name: figures.Series(places, _percent(values)) for name, values in scores.items()}
    for number, (name, level) in enumerate(levels.items(), len(above)):
        above[name] = figures.Series(places, np.full(len(places), 100 * level), dashed=True, colour=number)
    below = {name: figures.Series(places, _percent(values)) for name, values in selectivity.items()}
    figures.lines(above, ylabel="percent", title=title, axes=axes[0][0])
    figures.lines(below, ylabel="selectivity, percent", axes=axes[1][0])
    axes[1][0].set_xticks(places, names)
    return figure


def _percent(values: Sequence[float | None]) -> list[float]:
    return [np.nan if value is None else 100 * value for value in values]


def mix_weights(names: Sequence[str], shares: Mapping[str, np.ndarray], title: str) -> Figure:
    """How much of a learned mix every layer makes up, for one task or several side by side."""
    labels = [f"{task}, {name}" if len(shares) > 1 else name for task in shares for name in names]
    tasks = [number for number, _ in enumerate(shares) for _ in names]
    return figures.bars(labels, np.concatenate(list(shares.values())), write=share, series=tasks, title=title)
