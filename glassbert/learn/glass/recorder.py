"""A pass that is written down: every operation with what went in and what came out, forward and backward.

Operations reach an engine through `engine.ops`, so an engine whose operations note their arguments records a whole pass
of any model, also of one with parts of one's own. Between operations a layer adds, reshapes and joins arrays; arrays of
the class `Recorded` note that too. The plain operations compute, on plain arrays: the numbers are those of a trace.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.arrays import Array, FlatGradients
from glassbert.engines.kernels import HINTS, State
from glassbert.engines.numpy_engine import NumpyEngine
from glassbert.models.model import Model
from glassbert.models.passes import Pass
from glassbert.ops.registry import OPERATIONS, backward_of


@dataclass
class Node:
    """One operation of a pass, or one expression between operations ("add", "matmul", "join", "reshape").

    name       the dotted name under which a layer ran it; "" for an expression
    phase      "forward" or "backward": when it ran. An operation ran forward, and its backward is noted here as well
    arguments  as they were given, without hints
    state      what the forward kept
    dy         the gradient that the backward was given; None: there was no backward
    gradients  what the backward returned, as a tuple
    """

    operation: str
    phase: str
    arguments: tuple[Any, ...]
    output: Any
    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    state: Any = None
    dy: Any = None
    gradients: tuple[Any, ...] = ()
    backward_order: int = -1  # its place among everything that ran backward


class Recorder:
    """The nodes of one pass in the order in which they ran."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.phase = "forward"
        self.active = True
        self._steps_back = 0

    def note(self, node: Node) -> None:
        if not self.active:
            return
        if node.phase == "backward":
            self.ran_backward(node)
        self.nodes.append(node)

    def ran_backward(self, node: Node) -> None:
        node.backward_order = self._steps_back
        self._steps_back += 1


class Recorded(np.ndarray):
    """An array whose sums, products, joins and copies are noted. Operations get plain arrays."""

    recorder: Recorder | None

    def __array_finalize__(self, parent: Any) -> None:
        self.recorder = getattr(parent, "recorder", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain_inputs = tuple(plain(one) for one in inputs)
        if out is not None:
            options["out"] = tuple(plain(one) for one in out)
        result = getattr(ufunc, method)(*plain_inputs, **options)
        if out is not None:
            return out[0] if len(out) == 1 else out
        recorder = recorder_of(inputs)
        if method == "__call__" and ufunc.nout == 1 and recorder is not None:
            recorder.note(Node(ufunc.__name__, recorder.phase, plain_inputs, result))
        return recorded(result, recorder)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        result = function(*plain(arguments), **{name: plain(value) for name, value in options.items()})
        recorder = recorder_of(_flat(arguments))
        if recorder is not None and function in (np.concatenate, np.stack):
            parts = tuple(plain(one) for one in arguments[0])
            axis = options.get("axis", arguments[1] if len(arguments) > 1 else 0)
            options = {"axis": axis, "new_axis": function is np.stack}
            recorder.note(Node("join", recorder.phase, parts, result, options=options))
        return recorded(result, recorder)

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """A view where that is possible; a copy is noted."""
        result = super().reshape(*shape, **options)
        if self.recorder is not None and not np.may_share_memory(result, self):
            self.recorder.note(Node("reshape", self.recorder.phase, (plain(self),), plain(result)))
        return result


def plain(value: Any) -> Any:
    """The same value without recording: arrays as plain views, also inside tuples and lists."""
    if isinstance(value, Recorded):
        return value.view(np.ndarray)
    if type(value) in (tuple, list):
        return type(value)(plain(one) for one in value)
    return value


def recorded(value: Any, recorder: Recorder | None) -> Any:
    """Arrays as recorded views, also inside a tuple."""
    if type(value) is tuple:
        return tuple(recorded(one, recorder) for one in value)
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    view = value.view(Recorded)
    view.recorder = recorder
    return view


def recorder_of(values: Any) -> Recorder | None:
    return next((one.recorder for one in values if isinstance(one, Recorded) and one.recorder is not None), None)


def _flat(value: Any) -> list[Any]:
    return [one for part in value for one in _flat(part)] if type(value) in (tuple, list) else [value]


class RecordingBackward:
    """The plain backward of one node."""

    def __init__(self, node: Node, recorder: Recorder):
        self.node, self.recorder = node, recorder

    def __call__(self, dy: Any, values: Any) -> Any:
        result = backward_of(self.node.operation)(plain(dy), values)
        self.node.dy = plain(dy)
        self.node.gradients = result if type(result) is tuple else (result,)
        self.recorder.ran_backward(self.node)
        return recorded(result, self.recorder)


class RecordingOperations:
    """The plain operations, with notes."""

    own: Mapping[str, Any] = {}

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in OPERATIONS:
            raise AttributeError(name)

        def run(*arguments: Any, **options: Any) -> tuple[Array, State]:
            options = {key: plain(value) for key, value in options.items() if key not in HINTS}
            given = tuple(plain(one) for one in arguments)
            y, values = OPERATIONS[name](*given, **options)
            node = Node(name, self._recorder.phase, given, y, options=options, state=values)
            self._recorder.note(node)
            return recorded(y, self._recorder), State(RecordingBackward(node, self._recorder), values, frozenset())

        return run


class RecordingGradients(FlatGradients):
    """Gradients of the parameters in memory of their own: what a backward returned stays as it was."""

    def buffer_for(self, name: str) -> None:
        return None

    def add(self, name: str, value: Any) -> None:
        super().add(name, plain(value))

    def add_rows(self, name: str, index: Any, rows: Any) -> None:
        super().add_rows(name, plain(index), plain(rows))


@dataclass(frozen=True)
class Recording:
    """A recorded pass: nodes, values by name, the loss and the gradients; without a loss there is no backward."""

    nodes: list[Node]
    values: Mapping[str, Any]
    loss: float | None
    gradients: RecordingGradients | None


def record(model: Model, ids: np.ndarray, labels: Mapping[str, Any] | None) -> Recording:
    """Run a NumPy model forward over ids [1, T], and backward where there are labels (arguments of `model.loss`)."""
    recorder = Recorder()
    engine = NumpyEngine(model.engine.dtype_name, 1, "plain")
    engine.ops = RecordingOperations(recorder)  # type: ignore[assignment]
    observed = copy.copy(model)
    observed.engine = engine
    observed.training = False
    loss: Any = None
    gradients = None
    cache: Pass
    if labels is None:
        _, cache = observed.forward(ids, trace=True)
    else:
        loss, cache = observed.loss(ids, **labels, trace=True)
        recorder.phase = "backward"
        gradients = RecordingGradients(model.layout, engine.dtype)
        observed.backward(cache, into=gradients)
    recorder.active = False
    for states in (cache.parts[0].cache.states, cache.head_cache.states):
        for name, state in states.items():
            if isinstance(state, State) and isinstance(state.backward, RecordingBackward):
                state.backward.node.name = name
    values = {name: plain(cache[name]) for name in cache}
    return Recording(recorder.nodes, values, None if loss is None else float(loss), gradients)
