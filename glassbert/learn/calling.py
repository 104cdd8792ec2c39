"""How a learner's function is called, and what came out: arrays, or an error."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.errors import GlassBertError
from glassbert.learn.exercise import Exercise, Inputs


class CallError(GlassBertError):
    """The function cannot be called as the exercise asks; the message says how it should look."""


@dataclass
class Outcome:
    """What a function did with one case: `values` by output name, or the `error` that stopped it."""

    values: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    complaint: str = ""  # why the result cannot be read: nothing returned, too few arrays, words
    changed: list[str] = field(default_factory=list)  # arguments that were overwritten

    @property
    def readable(self) -> bool:
        return self.error is None and not self.complaint


Call = Callable[[Inputs], Any]


def caller(exercise: Exercise, function: Callable[..., Any]) -> Call:
    """How to call the function with the inputs of a case.

    By name where the names are those of the exercise, by position where only their number fits, and with (dy, state) in
    the style of the package.
    """
    wanted = list(exercise.shapes)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function of C has no signature
        return lambda inputs: function(*inputs.values())
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if any(p.kind is p.VAR_KEYWORD for p in parameters) and set(needed) <= set(wanted):
        return lambda inputs: function(**inputs)
    if set(wanted) <= set(names) and set(needed) <= set(wanted):
        return lambda inputs: function(**inputs)
    if exercise.state is not None and len(needed) == 2 and "state" in needed:
        return lambda inputs: function(*package_arguments(exercise, inputs))
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and not needed:
        return lambda inputs: function(*inputs.values())
    if len(by_position) >= len(wanted) >= len(needed) and not any(p.kind is p.KEYWORD_ONLY for p in parameters):
        return lambda inputs: function(*inputs.values())
    raise CallError(
        f"{exercise.name} is called with {len(wanted)} arguments, ({', '.join(wanted)}), but yours takes "
        f"({', '.join(p.name for p in parameters)}). Begin with: def {exercise.signature}:"
    )


def package_arguments(exercise: Exercise, inputs: Inputs) -> tuple[Any, Any]:
    """(dy, state), as a backward of the package takes them."""
    first, *rest = inputs
    assert exercise.state is not None
    return inputs[first], exercise.state(**{name: inputs[name] for name in rest})


def run_case(exercise: Exercise, call: Call, inputs: Inputs) -> Outcome:
    """Call a function on copies of the inputs."""
    given = {name: value if callable(value) else copy.deepcopy(value) for name, value in inputs.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = call(given)
        except (Exception, SystemExit) as error:
            return Outcome(error=error)
    outcome = read_result(exercise, result)
    outcome.changed = [name for name in inputs if not same_argument(inputs[name], given[name])]
    return outcome


def same_argument(before: Any, after: Any) -> bool:
    if callable(before):
        return True
    if isinstance(before, list):
        return len(before) == len(after) and all(map(same_argument, before, after))
    return np.array_equal(before, after)


def read_result(exercise: Exercise, result: Any) -> Outcome:
    """Name the outputs of a result: a tuple in the order of the exercise, or a dict by name."""
    names = list(exercise.outputs)
    listed = ", ".join(names)
    if result is None:
        return Outcome(complaint=f"it returned nothing. Is `return {listed}` missing?")
    if isinstance(result, Mapping):
        missing = [name for name in names if name not in result]
        if missing:
            return Outcome(complaint=f"its dict has no {', '.join(missing)}; it must hold {listed}")
        values = [result[name] for name in names]
    elif len(names) == 1:
        pair = isinstance(result, tuple) and len(result) in (1, 2) and not np.isscalar(result[0])
        # (y, state), as a forward of the package returns them
        values = [result[0] if pair and not exercise.returns_list else result]
    elif isinstance(result, (tuple, list)):
        found = list(result)
        if len(found) == len(names) + 1 and found[-1] is None:  # attention_backward of the package: no bias
            found.pop()
        if len(found) != len(names):
            return Outcome(complaint=f"it returned {len(found)} values, and {len(names)} are needed: {listed}")
        values = found
    else:
        return Outcome(complaint=f"it returned one {kind_of(result)}, and {len(names)} values are needed: {listed}")
    outcome = Outcome()
    for name, value in zip(names, values, strict=True):
        complaint = enter(outcome, name, value, exercise.returns_list)
        if complaint:
            return Outcome(complaint=complaint)
    return outcome


def enter(outcome: Outcome, name: str, value: Any, spread: bool) -> str:
    """Enter one output as an array; a list of arrays becomes several outputs. Returns a complaint, or nothing."""
    if spread:
        if not isinstance(value, (list, tuple)):
            return f"{name} must be a list of arrays, and it is one {kind_of(value)}"
        for index, one in enumerate(value):
            complaint = enter(outcome, f"{name}[{index}]", one, spread=False)
            if complaint:
                return complaint
        return ""
    if value is None:
        return f"{name} is None: it was not computed"
    try:
        array = np.asarray(value)
    except ValueError:
        return f"{name} is a list of rows of different lengths, not an array"
    if array.dtype.kind not in "biuf":
        return f"{name} is {kind_of(value)}, not an array of numbers"
    outcome.values[name] = array
    return ""


def kind_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {list(value.shape)} of {value.dtype}"
    return f"{type(value).__name__}"
