"""Planted faults (mutants): typical mistakes in gradients and in kernels. The cases must detect each of them.

A mutant of an operation replaces its backward in the engine that runs a case (`Engine.with_operations`); one of a layer
or model replaces one of its functions temporarily. Both run on the plain operations and are compared with finite
differences. A mutant of a kernel replaces the kernel and is compared with the plain operation.

`suspects` are the subjects, or the prefixes of the names, of the cases to run. If none of them detects the mutant, the
check fails. `harmless` mutants are correct gradients written in another way; they must not be detected.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from glassbert.engines import get_engine
from glassbert.proof.cases import FAMILY_MODULES, Case, all_cases, settings
from glassbert.proof.referee import PLAIN, bfloat16_fault, differences, kernel_fault

Plant = Callable[[], contextlib.AbstractContextManager[Any]]


class Mutant(NamedTuple):
    """A planted fault: how to plant it, and the cases that should detect it."""

    name: str
    suspects: tuple[str, ...]
    replaced: Mapping[str, Callable[..., Any]] = {}
    plant: Plant = contextlib.nullcontext
    harmless: bool = False
    kernels_of: str = ""  # the engine whose kernel is replaced, or "bfloat16"; "": a fault over the plain operations


class Verdict(NamedTuple):
    """Whether a mutant was detected, and by which case."""

    name: str
    caught: bool
    by: str | None
    harmless: bool

    @property
    def ok(self) -> bool:
        return self.caught != self.harmless


_MUTANTS: dict[str, Mutant] = {}


def enter(mutant: Mutant) -> None:
    """Add a mutant to the table."""
    if mutant.name in _MUTANTS:
        raise ValueError(f"there is already a mutant {mutant.name!r}")
    _MUTANTS[mutant.name] = mutant


def wrong(operation: str, name: str, *suspects: str, harmless: bool = False) -> Callable[[Any], Any]:
    """Register a function that replaces `operation`. Its own cases are run after those of `suspects`."""

    def register(function: Any) -> Any:
        subjects = (*suspects, operation.removesuffix("_backward"))
        enter(Mutant(name, subjects, {operation: function}, harmless=harmless))
        return function

    return register


def wrong_kernel(engine: str, operation: str, name: str, *suspects: str) -> Callable[[Any], Any]:
    """Register a function that replaces the kernel of `operation` on `engine`."""

    def register(function: Any) -> Any:
        subjects = (*suspects, operation.removesuffix("_backward"))
        enter(Mutant(name, subjects, {operation: function}, kernels_of=engine))
        return function

    return register


def wrong_in(places: dict[Any, str], name: str, *suspects: str, harmless: bool = False) -> Callable[[Any], Any]:
    """Register a function that replaces the attribute of every module or class in `places`."""

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
        "quantized_mutants",
        "number_mutants",
        "aligned_mutants",
        "loss_mutants",
        "relative_mutants",
        "layer_mutants",
        "model_mutants",
        "deberta_mutants",
        "rtd_mutants",
        "distillation_mutants",
        "kernel_mutants",
        "family_mutants",
        *FAMILY_MODULES,
    ):
        import_module(f"glassbert.proof.{module}")
    return dict(_MUTANTS)


def suspected(mutant: Mutant) -> list[Case]:
    """The cases that should detect a mutant, in the order of its suspects."""
    cases = all_cases().values()
    found = [c for s in mutant.suspects for c in cases if c.subject == s or (":" in s and c.name.startswith(s))]
    return list(dict.fromkeys(found))


def judge(mutant: Mutant) -> Verdict:
    """Plant the mutant and run its cases until one detects it."""
    for case in suspected(mutant):
        fixture = case.build()
        with mutant.plant(), fixture.around():
            if mutant.kernels_of == "bfloat16":
                caught = bool(bfloat16_fault(case.subject, fixture, mutant.replaced)[1])
            elif mutant.kernels_of:
                engine = get_engine(mutant.kernels_of, "float32", fixture.threads).with_operations(mutant.replaced)
                caught = bool(kernel_fault(fixture, engine))
            else:
                engine = get_engine("numpy", "float64", fixture.threads, PLAIN).with_operations(mutant.replaced)
                caught = not differences(fixture, engine=engine, first_fault=True).ok
        if caught:
            return Verdict(mutant.name, True, case.name, mutant.harmless)
    return Verdict(mutant.name, False, None, mutant.harmless)
