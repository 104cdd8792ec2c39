"""The table of operations.

An operation is two plain functions marked with `@operation`: `name` and `name_backward`. Both have one contract:

    y, state = name(inputs...)               state: everything that the backward needs, of any type
    d_inputs = name_backward(dy, state)      one gradient for each differentiable input, in their order

The decorator registers the function in `OPERATIONS` and returns it unchanged. Engines choose between these functions
and their own kernels (`glassbert.engines.kernels`); tests and `glassbert check` run over the whole table.
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
        raise ConfigError(f"there is already an operation {name!r} in {known.__module__}; choose another name")
    OPERATIONS[name] = function
    return function


def operation_names() -> list[str]:
    """The forward operations, in alphabetical order."""
    return sorted(name for name in OPERATIONS if not name.endswith(SUFFIX))


def backward_of(name: str) -> Callable[..., Any]:
    """The plain backward of an operation; raises `ConfigError` if there is none."""
    if name + SUFFIX not in OPERATIONS:
        raise ConfigError(f"operation {name!r} has no backward; write {name}{SUFFIX}(dy, state) and mark it @operation")
    return OPERATIONS[name + SUFFIX]
