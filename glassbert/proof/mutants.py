"""Planted faults: wrong gradients that people write by mistake, and faults of kernels. Each must be noticed.

A mutant of an operation replaces its backward in the engine that runs a case (`Engine.with_operations`); one of a layer
or model replaces a function of it for a while. Both run over the plain operations and are compared with finite
differences. A mutant of a kernel replaces the kernel and is compared with the plain operation.

`suspects` names the subjects, or the beginnings of the names, of the cases that are run. A mutant that they let pass
has survived, and that fails the check. `harmless` mutants are right gradients written in another way: flagging one of
them is a mistake of the checker.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from glassbert.engines import get_engine
from glassbert.proof.cases import Case, all_cases, settings
from glassbert.proof.referee import PLAIN, differences, kernel_fault

Plant = Callable[[], contextlib.AbstractContextManager[Any]]


class Mutant(NamedTuple):
    """A wrong gradient, how to plant it, and where it should be noticed."""

    name: str
    suspects: tuple[str, ...]
    replaced: Mapping[str, Callable[..., Any]] = {}
    plant: Plant = contextlib.nullcontext
    harmless: bool = False
    kernels_of: str = ""  # the engine whose kernel is replaced; "": a fault over the plain operations


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
        enter(Mutant(name, subjects, {operation: function}, harmless=harmless))
        return function

    return register


def wrong_kernel(engine: str, operation: str, name: str, *suspects: str) -> Callable[[Any], Any]:
    """Enter a function that answers for the kernel of `operation` on `engine`."""

    def register(function: Any) -> Any:
        subjects = (*suspects, operation.removesuffix("_backward"))
        enter(Mutant(name, subjects, {operation: function}, kernels_of=engine))
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
        enter(Mutant(name, suspects, plant=functools.partial(plant_function, function), harmless=harmless))
        return function

    return register


@functools.cache
def all_mutants() -> dict[str, Mutant]:
    for module in (
        "op_mutants",
        "loss_mutants",
        "layer_mutants",
        "series_mutants",
        "low_rank_mutants",
        "kernel_mutants",
    ):
        import_module(f"glassbert.proof.{module}")
    return dict(_MUTANTS)


def suspected(mutant: Mutant) -> list[Case]:
    """The cases that should notice a mutant, in the order of its suspects."""
    cases = all_cases().values()
    found = [c for s in mutant.suspects for c in cases if c.subject == s or (":" in s and c.name.startswith(s))]
    return list(dict.fromkeys(found))


def judge(mutant: Mutant) -> Verdict:
    """Plant the mutant and run one case after another until it is caught."""
    for case in suspected(mutant):
        fixture = case.build()
        with mutant.plant(), fixture.around():
            if mutant.kernels_of:
                engine = get_engine(mutant.kernels_of, "float32", fixture.threads).with_operations(mutant.replaced)
                caught = bool(kernel_fault(fixture, engine))
            else:
                engine = get_engine("numpy", "float64", fixture.threads, PLAIN).with_operations(mutant.replaced)
                caught = not differences(fixture, engine=engine).ok
        if caught:
            return Verdict(mutant.name, True, case.name, mutant.harmless)
    return Verdict(mutant.name, False, None, mutant.harmless)
