"""Insights: ways of looking at a model, each a function that a decorator enters into the set of pictures.

    from glassbert.insight import View, insight
    from glassbert.reports import figures

    @insight("norms", title="How long are the embeddings?")
    def norms(scene):
        lengths = {one.name: np.linalg.norm(one.model.token_embeddings, axis=1) for one in scene.models}
        counts = {name: np.histogram(values, 40) for name, values in lengths.items()}
        return View(lengths, lambda: figures.histogram(*next(iter(counts.values()))), "Rare words stay short.")

An insight returns plain arrays by name, a function that draws them, and a caption that says what to see. What does not
fit a model, or needs something that is not there, raises an error of GlassBERT's own; the page gives its sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import ConfigError, GlassBertError, InputError
from glassbert.files import replacing
from glassbert.insight.inputs import Opened
from glassbert.reports import Page, figures
from glassbert.training.settings import MASK_SENTENCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _silent() -> None:
    pass


@dataclass(frozen=True)
class Scene:
    """What an insight is shown.

    models      one, or two to be compared
    texts       what they read; `annotated` is the table of a CoNLL-U file, where the texts come from one
    sentence    with a [MASK], for what is shown on a single prediction
    told        is called after every bit of work, for a progress bar
    """

    models: Sequence[Opened]
    texts: Sequence[str] = ()
    annotated: Any = None
    sentence: str = MASK_SENTENCE
    told: Callable[[], None] = field(default=_silent)

    def need_texts(self) -> Sequence[str]:
        if not self.texts:
            raise InputError("there is no text to read: name a text file, a CoNLL-U file or a corpus folder with --on")
        return self.texts

    def need_annotations(self) -> Any:
        if self.annotated is None:
            raise InputError("there are no annotations: name a CoNLL-U file with --on")
        return self.annotated


@dataclass(frozen=True)
class View:
    """What an insight found: plain arrays by name, a figure of them, and what to see in it."""

    arrays: Mapping[str, Any]
    draw: Callable[[], Figure]
    caption: str

    def plain(self) -> dict[str, np.ndarray]:
        """The arrays with nested names joined by slashes, as `numpy.savez` takes them."""
        return dict(_flat("", self.arrays))


@dataclass(frozen=True)
class Insight:
    name: str
    title: str
    function: Callable[[Scene], View]

    def __call__(self, scene: Scene) -> View:
        found = self.function(scene)
        if not isinstance(found, View):
            raise InputError(f"the insight {self.name!r} must return a View, got {type(found).__name__}")
        return found


INSIGHTS: dict[str, Insight] = {}


def insight(name: str, *, title: str) -> Callable[[Callable[[Scene], View]], Insight]:
    """Enter a function `(scene) -> View` into the set of pictures."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ConfigError(f"an insight is called by a small word such as 'geometry', not {name!r}")
    if name in INSIGHTS:
        raise ConfigError(f"there is an insight {name!r} already")

    def register(function: Callable[[Scene], View]) -> Insight:
        INSIGHTS[name] = Insight(name, title, function)
        return INSIGHTS[name]

    return register


def get_insights(names: Sequence[str] = ()) -> list[Insight]:
    """By name, or all of them."""
    from glassbert.insight import views  # noqa: F401  (enters those of the house)

    for name in names:
        if name not in INSIGHTS:
            raise ConfigError(f"there is no insight {name!r}; there are {', '.join(INSIGHTS)}")
    return [one for one in INSIGHTS.values() if not names or one.name in names]


def _flat(prefix: str, values: Any) -> list[tuple[str, np.ndarray]]:
    if not isinstance(values, Mapping):
        array = np.asarray(values)
        if array.dtype == object:
            raise InputError(f"{prefix!r} is no array of numbers or texts")
        return [(prefix, array)]
    return [item for name, value in values.items() for item in _flat(f"{prefix}/{name}" if prefix else name, value)]


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
        with replacing(folder / f"{one.name}.npz", "wb") as file:
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
