"""A zoo of wrong gradients. Each is a mistake that people make; the referee must notice every one of them.

A mutant stands in for one backward operation (through `replaced`) or one function of a layer or model, and runs over
the plain operations, whose caches it knows. `suspects` names the subjects, or the beginnings of the names, of the cases
that are asked first; a mutant that they let pass has survived, and that fails the check.

`harmless` mutants are right gradients written in another way. Flagging one of them would be a mistake of the referee.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from glassbert.ops.registry import plain_operations, replaced
from glassbert.proof.cases import Case, all_cases, settings
from glassbert.proof.referee import differences

Plant = Callable[[], contextlib.AbstractContextManager[Any]]


class Mutant(NamedTuple):
    """A wrong gradient, how to plant it, and where it should be noticed."""

    name: str
    plant: Plant
    suspects: tuple[str, ...]
    harmless: bool = False

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        with plain_operations(), self.plant():
            yield


class Verdict(NamedTuple):
    """Whether a mutant was caught, and by which case; for a harmless one, whether anybody flagged it."""

    name: str
    caught: bool
    by: str | None
    harmless: bool

    @property
    def ok(self) -> bool:
        return self.caught != self.harmless


_MUTANTS: dict[str, Mutant] = {}


def enter(mutant: Mutant) -> None:
    if mutant.name in _MUTANTS:
        raise ValueError(f"there is a mutant {mutant.name!r} already")
    _MUTANTS[mutant.name] = mutant


def wrong(operation: str, name: str, *suspects: str, harmless: bool = False) -> Callable[[Any], Any]:
    """Enter a function that answers for `operation`, whose own cases are always suspects, after those named here."""

    def register(function: Any) -> Any:
        subjects = (*suspects, operation.removesuffix("_backward"))
        enter(Mutant(name, functools.partial(replaced, operation, function), subjects, harmless))
        return function

    return register


def wrong_in(places: dict[Any, str], name: str, *suspects: str, harmless: bool = False) -> Callable[[Any], Any]:
    """Enter a function that stands in for the attribute of every module or class in `places`."""

    def plant_function(function: Any) -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        for owner, attribute in places.items():
            stack.enter_context(settings(owner, **{attribute: function}))
        return stack

    def register(function: Any) -> Any:
        enter(Mutant(name, functools.partial(plant_function, function), suspects, harmless))
        return function

    return register


@functools.cache
def all_mutants() -> dict[str, Mutant]:
    for module in ("op_mutants", "loss_mutants", "layer_mutants", "series_mutants", "low_rank_mutants"):
        import_module(f"glassbert.proof.{module}")
    return dict(_MUTANTS)


def suspected(mutant: Mutant) -> list[Case]:
    """The cases that should notice a mutant, in the order of its suspects."""
    cases = all_cases().values()
    found = [c for s in mutant.suspects for c in cases if c.subject == s or (":" in s and c.name.startswith(s))]
    return list(dict.fromkeys(found))


def judge(mutant: Mutant) -> Verdict:
    """Plant the mutant and let the referee look at one case after another until it is caught."""
    for case in suspected(mutant):
        fixture = case.build()
        with mutant.planted(), fixture.around():
            if not differences(fixture).ok:
                return Verdict(mutant.name, True, case.name, mutant.harmless)
    return Verdict(mutant.name, False, None, mutant.harmless)
