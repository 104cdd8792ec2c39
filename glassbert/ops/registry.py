"""The table of operations.

An operation is two plain functions marked with `@operation`: `name` and `name_backward`. Both have one contract:

    y, state = name(inputs...)               state: everything that the backward needs, in a form of its own choice
    d_inputs = name_backward(dy, state)      one gradient for each differentiable input, in their order

The mark enters the function into `OPERATIONS` and returns it unchanged: calling `ops.layer_norm` runs what is written
there. Engines choose between these functions and kernels of their own (`glassbert.engines.kernels`); tests and
`glassbert check` enumerate the table, so that no operation is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from glassbert.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])
OPERATIONS: dict[str, Callable[..., Any]] = {}
SUFFIX = "_backward"


def operation(function: Function) -> Function:
    """Register a forward `name` or a backward `name_backward` under its own name."""
    name = function.__name__
    known = OPERATIONS.get(name)
    if known is not None and known.__module__ != function.__module__:
        raise ConfigError(f"there is an operation {name!r} already, in {known.__module__}; choose another name")
    OPERATIONS[name] = function
    return function


def operation_names() -> list[str]:
    """The forward operations, in alphabetical order."""
    return sorted(name for name in OPERATIONS if not name.endswith(SUFFIX))


def backward_of(name: str) -> Callable[..., Any]:
    """The plain backward of an operation, or an error that says what is missing."""
    if name + SUFFIX not in OPERATIONS:
        raise ConfigError(f"operation {name!r} has no backward; write {name}{SUFFIX}(dy, state) and mark it @operation")
    return OPERATIONS[name + SUFFIX]
