"""The whole set of pictures of a model, or of two side by side, in one folder.

DIR/index.html                     every picture on one page, in light and in dark
DIR/heads.png, heads-dark.png      each by itself, for documents
DIR/heads.npz                      its plain arrays
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glassbert.errors import GlassBertError
from glassbert.files import atomic_write
from glassbert.insight.registry import Insight, Scene, View
from glassbert.reports import Page, figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110


@dataclass(frozen=True)
class Drawn:
    """What became of an insight: its view, or the reason why there is none."""

    insight: Insight
    view: View | None = None
    figure: Figure | None = None
    skipped_because: str = ""


def draw_pictures(
    scene: Scene, folder: str | Path, insights: Sequence[Insight], began: Callable[[str], object] = lambda name: None
) -> list[Drawn]:
    """Look, and write arrays, pictures and page. `began` hears the name of every insight before it is looked at."""
    folder = Path(folder)
    drawn = []
    for one in insights:
        began(one.name)
        try:
            view = one(scene)
        except GlassBertError as why:
            drawn.append(Drawn(one, skipped_because=str(why)))
            continue
        with atomic_write(folder / f"{one.name}.npz", "wb") as file:
            np.savez_compressed(file, **view.plain())  # type: ignore[arg-type]
        figure = view.draw() if figures.available() else None
        if figure is not None:
            for dark, ending in ((False, ""), (True, "-dark")):
                figures.to_png(figure, folder / f"{one.name}{ending}.png", dark=dark, dpi=DPI)
        drawn.append(Drawn(one, view, figure))
    pictures_page(scene, drawn).write(folder / "index.html")
    return drawn


def pictures_page(scene: Scene, drawn: Sequence[Drawn]) -> Page:
    names = " and ".join(one.name for one in scene.models)
    page = Page(f"Inside {names}", f"{scene.models[0].model!r}")
    for one in drawn:
        page.heading(one.insight.title)
        if one.view is None:
            page.message("note", f"Left out: {one.skipped_because}")
        else:
            page.figure(one.figure or one.view.draw, one.view.caption)
    page.text("The numbers of every picture lie beside this page as plain arrays: `numpy.load('heads.npz')`.")
    return page
