"""What an exercise is, and the table of exercises.

An exercise asks for one function. Its truth is the package's own operation, its known mistakes are edits of a right
solution: each edit is run on the same inputs, and a learner's outputs are compared with what comes out.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np

from glassbert.errors import ConfigError, InputError

MODULES = ("blocks", "attention", "model", "masking", "training", "gradients", "row_gradients", "evaluation", "faults")
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Mistake:
    """A known mistake: edits that turn the solution into a wrong answer. Variants of a mistake share its name."""

    name: str
    says: str  # what the referee says when it recognises the mistake
    hint: str  # why it is wrong, or where to look
    edits: tuple[tuple[str, str], ...]  # (text of the solution, wrong text)

    def apply(self, source: str) -> str:
        """The source of a solution with this mistake in it, without its docstring."""
        source = without_docstring(source)
        for right, wrong in self.edits:
            if source.count(right) != 1:
                raise ConfigError(f"the mistake {self.name!r} must change one place, but {right!r} is not there once")
            source = source.replace(right, wrong)
        return source


def mistake(name: str, says: str, hint: str, *edits: tuple[str, str]) -> Mistake:
    return Mistake(name, says, hint, edits)


@dataclass(frozen=True)
class Exercise:
    """A function to write.

    task       what the function computes, in one or two sentences
    shapes     the shape of every argument
    outputs    the name and shape of every array to return
    cases      named inputs
    reference  the right outputs for the inputs, by the package
    hints      for a mistake that is not in the table, one at a time
    library    the function of the package that it became
    state      what the package's own backward takes as its state, for answers in the package's style
    digits     how many digits an answer in float64 must have
    """

    name: str
    lesson: int
    task: str
    shapes: Mapping[str, str]
    outputs: Mapping[str, str]
    cases: Callable[[], Mapping[str, Inputs]]
    reference: Callable[..., Any]
    solution: Callable[..., Any]
    hints: Sequence[str]
    mistakes: Sequence[Mistake]
    library: Any
    state: Callable[..., Any] | None = None
    digits: int = 9
    fault: Mistake | None = None

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.shapes)})"

    @property
    def returns_list(self) -> bool:
        """Whether the one output is a list of arrays."""
        return any(shape.startswith("a list") for shape in self.outputs.values())

    @property
    def statement(self) -> str:
        """What to write, in full."""
        arguments = "\n".join(f"    {name}: {shape}" for name, shape in self.shapes.items())
        returned = ", ".join(f"{name} {shape}" for name, shape in self.outputs.items())
        return f"def {self.signature}\n    {self.task}\n\n{arguments}\n    returns {returned}"

    @cached_property
    def source(self) -> str:
        """The source of the solution."""
        return textwrap.dedent(inspect.getsource(self.solution))

    @cached_property
    def faulty_source(self) -> str:
        """The function with the planted fault, without the docstring that would give it away."""
        if self.fault is None:
            raise InputError(f"{self.name} is an exercise to write, not a fault to find")
        return self.fault.apply(self.source)

    @cached_property
    def faulty_lines(self) -> set[int]:
        """The lines of `faulty_source` that are wrong, counted from 1."""
        right = without_docstring(self.source).splitlines()
        wrong = self.faulty_source.splitlines()
        if len(right) == len(wrong):
            return {i for i, (a, b) in enumerate(zip(right, wrong, strict=True), 1) if a != b}
        kept = set(right)
        return {i for i, line in enumerate(wrong, 1) if line not in kept}


def without_docstring(source: str) -> str:
    """A function's source without its docstring of one line."""
    return "".join(line for line in source.splitlines(keepends=True) if not line.strip().startswith('"""'))


def compile_source(source: str, name: str) -> Callable[..., Any]:
    """The function of that name that the source of a solution defines."""
    space: dict[str, Any] = {"np": np, "math": math, "IGNORED": -100}
    exec(compile(source, f"<{name}>", "exec"), space)
    return space[name]


EXERCISES: dict[str, Exercise] = {}


def register(exercise: Exercise) -> Exercise:
    if exercise.name in EXERCISES:
        raise ConfigError(f"there are two exercises named {exercise.name!r}")
    EXERCISES[exercise.name] = exercise
    return exercise


@cache
def exercises() -> Mapping[str, Exercise]:
    """All exercises by name, in the order of the lessons."""
    for module in MODULES:
        import_module(f"glassbert.learn.topics.{module}")
    return dict(sorted(EXERCISES.items(), key=lambda entry: entry[1].lesson))


def get_exercise(name: str) -> Exercise:
    known = exercises()
    if name not in known:
        from difflib import get_close_matches

        close = get_close_matches(name, known, 1)
        meant = f"; did you mean {close[0]!r}?" if close else "."
        raise InputError(f"there is no exercise {name!r}{meant} The exercises: {', '.join(known)}")
    return known[name]
