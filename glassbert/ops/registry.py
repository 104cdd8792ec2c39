"""The table of operations, and the door through which an engine may bring a faster kernel.

An operation is two plain functions, `name` and `name_backward`, each marked with `@op`. Marking does two things: it
enters the function into `OPERATIONS`, so that tests and `glassbert check` can enumerate all of them, and it lets an
engine answer a call with a kernel of its own (`KERNELS`), of the same name and contract.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from glassbert.engines.namespace import is_numpy

OPERATIONS: dict[str, Callable[..., Any]] = {}
KERNELS: dict[str, dict[str, Callable[..., Any]]] = {"numpy": {}, "mlx": {}}
_replaced: dict[str, Callable[..., Any]] = {}


def op(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register an operation; calls go to the engine's kernel of that name where it has one."""
    name = function.__name__

    @functools.wraps(function)
    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        if _replaced and name in _replaced:
            return _replaced[name](first, *args, **kwargs)
        kernel = KERNELS["numpy" if is_numpy(first) else "mlx"].get(name, function)
        return kernel(first, *args, **kwargs)

    OPERATIONS[name] = call
    return call


def kernel(engine: str, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a kernel of `engine` that stands in for the operation `name`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS[engine][name] = function
        return function

    return register


def plain(name: str) -> Callable[..., Any]:
    """The operation as the lesson has it, without any engine's kernel."""
    return OPERATIONS[name].__wrapped__  # type: ignore[attr-defined]


@contextlib.contextmanager
def replaced(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let `function` answer every call of `name`: how the proof plants a wrong gradient."""
    if name not in OPERATIONS:
        raise KeyError(f"no operation is called {name!r}")
    _replaced[name] = function
    try:
        yield
    finally:
        del _replaced[name]


@contextlib.contextmanager
def plain_operations() -> Iterator[None]:
    """Switch every engine kernel off, so that the lesson's own code runs."""
    saved = {engine: dict(kernels) for engine, kernels in KERNELS.items()}
    for kernels in KERNELS.values():
        kernels.clear()
    try:
        yield
    finally:
        for engine, kernels in saved.items():
            KERNELS[engine].update(kernels)


def operation_names() -> list[str]:
    """The forward operations, in alphabetical order."""
    return sorted(name for name in OPERATIONS if not name.endswith("_backward"))
