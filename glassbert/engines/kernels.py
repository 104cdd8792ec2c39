"""Kernels: which code runs an operation.

An engine owns a set of kernels. A kernel is a pair of functions with the names and the contract of an operation
(`glassbert.ops.registry`): `y, state = name(...)` and `name_backward(dy, state)`. It may keep another state than the
plain operation does. `Operations` binds every operation to the kernel of one engine, or to the plain functions.

The forward returns its state together with the backward that belongs to it (`State`). So a state never reaches the
backward of another kernel, whatever the engine, the thread or the kernels in use at that moment.

A kernel may take hints, keyword arguments that change memory use and never results. They are passed to the kernels that
declare them and are unknown to the plain operations:

    donate      the caller no longer needs the first array argument; its memory may be overwritten
    inference   no backward follows; no state is needed
    out         (backward) arrays that may receive the gradients of the parameters

One more saves a pass: `residual` of a backward is added to the gradient of the first input, by the kernel or, where it
does not take it, by the caller (`Scope.norm_backward`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from glassbert.errors import EngineError, InputError
from glassbert.ops.registry import OPERATIONS, SUFFIX, backward_of, operation_names

HINTS = ("donate", "inference", "out", "residual")
KERNEL_SETS = ("fast", "plain")
Kernels = Mapping[str, Callable[..., Any]]


class State(NamedTuple):
    """What a forward keeps: its own backward, the values for it, and the hints that this backward takes."""

    backward: Callable[..., Any]
    values: Any
    hints: frozenset[str]


def register_in(kernels: dict[str, Callable[..., Any]]) -> Callable[[Any], Any]:
    """A decorator that enters a kernel into this table under its own name, which is that of its operation."""

    def register(function: Any) -> Any:
        if function.__name__ not in OPERATIONS:
            raise EngineError(f"there is no operation {function.__name__!r} for this kernel")
        kernels[function.__name__] = function
        return function

    return register


@functools.cache
def hints_of(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters) & frozenset(HINTS)


def plain_state(name: str, values: Any) -> State:
    """The state of a plain forward, for a kernel that leaves some inputs to the plain operation."""
    return State(backward_of(name), values, frozenset())


def backward(dy: Any, state: State, **hints: Any) -> Any:
    """The gradients of the inputs of the forward that returned this state."""
    return state.backward(dy, state.values, **{k: v for k, v in hints.items() if k in state.hints})


class Operations:
    """All operations as one engine runs them: `ops.linear(x, weight)` returns y and a `State`.

    `replaced` exchanges single functions, forward or backward: how the proof plants a wrong gradient.
    """

    def __init__(self, kernels: Kernels, replaced: Kernels | None = None):
        self._kernels = kernels
        self._replaced = dict(replaced or {})
        self.own = {**kernels, **self._replaced}  # the functions that are not the plain ones
        for name in self._replaced:
            if name not in OPERATIONS:
                raise EngineError(_unknown(name))

    def forward_and_backward(self, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The two functions that run this operation."""
        if name not in OPERATIONS or name.endswith(SUFFIX):
            raise EngineError(_unknown(name))
        if name in self._kernels:
            forward, backward = self._kernels[name], self._kernels[name + SUFFIX]
        else:
            forward, backward = OPERATIONS[name], backward_of(name)
        return self._replaced.get(name, forward), self._replaced.get(name + SUFFIX, backward)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        forward, backward = self.forward_and_backward(name)
        hints, dropped = hints_of(backward), tuple(frozenset(HINTS) - hints_of(forward))
        replaces_backward = name + SUFFIX in self._replaced

        def run(*arguments: Any, **options: Any) -> tuple[Any, State]:
            if options:
                for hint in dropped:
                    options.pop(hint, None)
            y, values = forward(*arguments, **options)
            if type(values) is not State:
                return y, State(backward, values, hints)
            return y, values._replace(backward=backward, hints=hints) if replaces_backward else values

        run.__name__ = name
        self.__dict__[name] = run  # found without __getattr__ from now on
        return run


class Source(NamedTuple):
    """Which code runs one half of an operation."""

    operation: str
    engine: str
    kernels: str  # "plain", or "fast" where a kernel of the engine answers
    file: str
    line: int
    note: str = ""

    def __str__(self) -> str:
        return f"{self.operation}: {self.kernels} on {self.engine}, {self.file}:{self.line}" + (
            f" ({self.note})" if self.note else ""
        )


def which(operation: str, engine: Any = "auto", kernels: str = "fast") -> list[Source]:
    """Which code runs an operation on an engine, with file and line: its forward and its backward.

    print(*glassbert.which("attention"), sep="\\n")
    """
    from glassbert.engines import get_engine

    chosen = get_engine(engine, kernels=kernels) if isinstance(engine, str) else engine
    if operation not in OPERATIONS:
        raise InputError(_unknown(operation))
    forward, backward = chosen.ops.forward_and_backward(operation.removesuffix(SUFFIX))
    return [_source(f.__name__, f, chosen.name) for f in (forward, backward)]


def _source(name: str, function: Callable[..., Any], engine: str) -> Source:
    function = inspect.unwrap(function)
    kind = "plain" if OPERATIONS.get(name) is function else "fast"
    note = "differentiates one MLX operation with mx.vjp" if getattr(function, "uses_vjp", False) else ""
    code = getattr(function, "__code__", None)
    file = "?" if code is None else code.co_filename.replace("\\", "/").rpartition("/glassbert/")
    where = file if isinstance(file, str) else (f"glassbert/{file[2]}" if file[1] else file[2])
    return Source(name, engine, kind, where, 0 if code is None else code.co_firstlineno, note)


def _unknown(name: str) -> str:
    return f"there is no operation {name!r}; there are {', '.join(operation_names())}"
