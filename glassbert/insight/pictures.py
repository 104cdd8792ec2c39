"""The registry of insights, and the folder of pictures that `glassbert inspect --pictures` writes.

    from glassbert.insight import View, insight
    from glassbert.reports import figures

    @insight("norms", title="Norms of the embeddings")
    def norms(scene):
        lengths = {one.name: np.linalg.norm(one.model.token_embeddings, axis=1) for one in scene.models}
        counts = {name: np.histogram(values, 40) for name, values in lengths.items()}
        return View(lengths, lambda: figures.histogram(*next(iter(counts.values()))), "Rare words have small norms.")

An insight is a function from a `Scene` to a `View`: arrays by name, a function that draws them, and a caption. If the
insight does not apply to the model or data is missing, it raises a `GlassBertError`; the page shows its message.

    DIR/index.html                     all pictures on one page, for light and dark mode
    DIR/heads.png, heads-dark.png      one picture
    DIR/heads.npz                      its arrays
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import ConfigError, GlassBertError, InputError
from glassbert.files import atomic_write
from glassbert.insight.inputs import LoadedModel
from glassbert.reports import Page, figures
from glassbert.training.settings import MASK_SENTENCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110


def _ignore() -> None:
    pass


@dataclass(frozen=True)
class Scene:
    """The input of an insight.

    models        one model, or two to compare
    texts         the texts that the models read
    annotated     the table of a CoNLL-U file, if the texts come from one
    sentence      a sentence with [MASK], for insights about a single prediction
    on_progress   called after every unit of work
    """

    models: Sequence[LoadedModel]
    texts: Sequence[str] = ()
    annotated: Any = None
    sentence: str = MASK_SENTENCE
    on_progress: Callable[[], None] = _ignore

    def require_texts(self) -> Sequence[str]:
        if not self.texts:
            raise InputError("this insight needs texts: name a text file, a CoNLL-U file or a corpus folder with --dev")
        return self.texts

    def require_annotations(self) -> Any:
        if self.annotated is None:
            raise InputError("this insight needs annotations: name a CoNLL-U file with --dev")
        return self.annotated


@dataclass(frozen=True)
class View:
    """The result of an insight: arrays by name (may be nested), a function that draws them, and a caption."""

    arrays: Mapping[str, Any]
    draw: Callable[[], Figure]
    caption: str

    def flat_arrays(self) -> dict[str, np.ndarray]:
        """The arrays for `numpy.savez`; nested names are joined by slashes."""
        return dict(_flatten("", self.arrays))


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
    """Decorator that registers a function `(scene) -> View`."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ConfigError(f"the name of an insight must be one lower-case word such as 'geometry', got {name!r}")
    if name in INSIGHTS:
        raise ConfigError(f"there is already an insight {name!r}; choose another name")

    def register(function: Callable[[Scene], View]) -> Insight:
        INSIGHTS[name] = Insight(name, title, function)
        return INSIGHTS[name]

    return register


def get_insights(names: Sequence[str] = ()) -> list[Insight]:
    """The insights with these names, or all, in the order of registration."""
    from glassbert.insight import views  # noqa: F401  (registers the built-in insights)

    for name in names:
        if name not in INSIGHTS:
            raise ConfigError(f"there is no insight {name!r}; there are {', '.join(INSIGHTS)}")
    return [one for one in INSIGHTS.values() if not names or one.name in names]


def _flatten(prefix: str, values: Any) -> list[tuple[str, np.ndarray]]:
    if not isinstance(values, Mapping):
        array = np.asarray(values)
        if array.dtype == object:
            raise InputError(f"{prefix!r} must be an array of numbers or of strings, got an array of objects")
        return [(prefix, array)]
    return [item for name, value in values.items() for item in _flatten(f"{prefix}/{name}" if prefix else name, value)]


# ---- drawing ----


@dataclass(frozen=True)
class DrawnInsight:
    """The view of an insight, or the reason why it was skipped."""

    insight: Insight
    view: View | None = None
    figure: Figure | None = None
    skipped_because: str = ""


def draw_pictures(
    scene: Scene, folder: str | Path, insights: Sequence[Insight], on_start: Callable[[str], object] = lambda name: None
) -> list[DrawnInsight]:
    """Run insights and write arrays, pictures and the page. `on_start` is called with each name before it runs."""
    folder = Path(folder)
    drawn = []
    for one in insights:
        on_start(one.name)
        try:
            view = one(scene)
        except GlassBertError as error:
            drawn.append(DrawnInsight(one, skipped_because=str(error)))
            continue
        with atomic_write(folder / f"{one.name}.npz", "wb") as file:
            np.savez_compressed(file, **view.flat_arrays())  # type: ignore[arg-type]
        figure = view.draw() if figures.available() else None
        if figure is not None:
            for dark, ending in ((False, ""), (True, "-dark")):
                figures.to_png(figure, folder / f"{one.name}{ending}.png", dark=dark, dpi=DPI)
        drawn.append(DrawnInsight(one, view, figure))
    _pictures_page(scene, drawn).write(folder / "index.html")
    return drawn


def _pictures_page(scene: Scene, drawn: Sequence[DrawnInsight]) -> Page:
    names = " and ".join(one.name for one in scene.models)
    page = Page(f"Inside {names}", f"{scene.models[0].model!r}")
    for one in drawn:
        page.heading(one.insight.title)
        if one.view is None:
            page.message("note", f"Left out: {one.skipped_because}")
        else:
            page.figure(one.figure or one.view.draw, one.view.caption)
    page.text("The arrays of every picture are in the same folder: `numpy.load('heads.npz')`.")
    return page
