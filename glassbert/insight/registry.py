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
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.insight.opening import Opened
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
