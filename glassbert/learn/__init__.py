"""Learn: the course, its exercises and the referee that checks them.

    import glassbert
    glassbert.learn.check(layer_norm=my_layer_norm)

`glassbert learn` lists the lessons. Everything is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassbert.learn.exercise import exercises as exercises
    from glassbert.learn.referee import check as check
    from glassbert.learn.verdict import Verdict as Verdict

LATER = {"Verdict": "verdict", "check": "referee", "exercises": "exercise"}

__all__ = ["Verdict", "check", "exercises"]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"glassbert.learn has no {name!r}")
    return getattr(import_module(f"glassbert.learn.{LATER[name]}"), name)
