"""The graphs of training: parameters, forward, loss with gradients, and the step of an optimizer.

parameters   outputs   every parameter, `layers.0.ffn.up.weight`: the values of the model
forward      the graph of the model, with the parameters as inputs
gradients    inputs    those of the model, every parameter, and `labels` in the shape that `model.loss` takes
             outputs   `loss`, and the gradient of every parameter: `layers.0.ffn.up.d_weight`
step         inputs    parameters, gradients, `learning_rate`, `step` (counted from 1), and buffers: `mean/NAME`
             outputs   `new.NAME`, `new.mean/NAME`, and the norm of the gradient before clipping

Only the first has weights. A loop gives the outputs of a step to the next pass; the buffers begin with zeros. The
graphs are those of the hand-written operations and optimizers, in float32 and without dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from glassbert.arrays import Gradients
from glassbert.engines.recording import Finished, Graph, RecordingEngine, Symbol
from glassbert.errors import ConfigError
from glassbert.export.recording import begin
from glassbert.models.heads import (
    CausalLanguageHead,
    DiscriminatorHead,
    EmbeddingHead,
    ForecastHead,
    Head,
    MaskedLanguageHead,
    PairHead,
    SequenceHead,
    SpanHead,
    TokenHead,
)
from glassbert.models.model import Model
from glassbert.models.passes import HeadLoss
from glassbert.ops import IGNORED
from glassbert.training.optimizers import make_optimizer

STEPS = ("sgd", "adamw")  # the optimizers whose step is written
NEW = "new."


def gradient_name(parameter: str) -> str:
    """`layers.0.ffn.up.weight` -> `layers.0.ffn.up.d_weight`, as the gradients of activations are named."""
    place, _, last = parameter.rpartition(".")
    return f"{place}.d_{last}" if place else f"d_{last}"


def record_parameters(model: Model) -> Finished:
    """A graph without inputs: its outputs are the parameters of a model."""
    graph = Graph()
    values = {name: model.engine.to_numpy(array).astype(np.float32) for name, array in model.parameters.items()}
    return graph.finished({name: graph.constant(array) for name, array in values.items()})


def record_gradients(model: Model) -> Finished:
    """The graph from inputs, labels and parameters to the loss and all gradients."""
    if model.head is None:
        raise ConfigError("a model without a head has no loss, so it has no gradients to export; fine-tune it first")
    recording = begin(model, kernels="plain", given=True)
    targets = {}
    for part in model.head.parts.values():
        made = symbolic_targets(part.head, recording.graph, recording.network.engine.xp)
        targets.update({f"{part.name}.{name}" if part.name else name: value for name, value in made.items()})
    loss = recording.run.loss(HeadLoss(), targets)
    gradients = Gradients(model.layout.shapes)
    recording.run.backward(gradients)
    gradients.fill_missing()
    outputs = {"loss": loss, **{gradient_name(name): gradients[name] for name in model.layout.shapes}}
    return recording.graph.finished(outputs, recording.named_values())


def record_step(model: Model, optimizer: str, **settings: Any) -> Finished:
    """The graph of one step of an optimizer, which `settings` may change (momentum, betas, clip, ...)."""
    graph = Graph()
    shapes = model.layout.shapes
    stand_in = SimpleNamespace(engine=RecordingEngine(graph, "plain"), layout=model.layout)
    made = make_optimizer(optimizer, stand_in, **settings)
    parameters = {name: graph.input(name, np.float32, shape) for name, shape in shapes.items()}
    gradients = {name: graph.input(gradient_name(name), np.float32, shape) for name, shape in shapes.items()}
    state: dict[str, dict[str, Symbol]] = {}
    for buffer in made.buffers:
        own = made.layout_of(buffer).shapes
        state[buffer] = {name: graph.input(f"{buffer}/{name}", np.float32, shape) for name, shape in own.items()}
    step = graph.input("step", np.int64, ()).astype(np.float32)
    rate = graph.input("learning_rate", np.float32, ())
    moved, buffers, norm, _ = made.step_arrays(parameters, gradients, state, step, rate)
    outputs = {NEW + name: value for name, value in moved.items()}
    for buffer, values in buffers.items():
        outputs |= {f"{NEW}{buffer}/{name}": value for name, value in values.items()}
    return graph.finished({**outputs, "gradient_norm": norm})


# ---- labels ----------------------------------------------------------------------------------------------------------


def symbolic_targets(head: Head, graph: Graph, xp: Any) -> dict[str, Symbol]:
    """The input for the labels of a head, and the targets that `head.prepare_labels` makes of them."""
    form = next((form for kind, form in TARGETS.items() if isinstance(head, kind)), None)
    if form is None:
        raise ConfigError(f"the labels of a head of type {head.kind} cannot be recorded; export it without gradients")
    return form(head, graph, xp)


def _words(head: Any, graph: Graph, xp: Any, shifted: bool = False) -> dict[str, Symbol]:
    """Only the labelled tokens are scored."""
    labels = graph.input("labels", np.int64, ("batch", "length"))
    if shifted:
        nothing = xp.full((labels.shape[0], 1), IGNORED, np.int64)
        labels = xp.concatenate([labels[:, 1:], nothing], 1)
    flat = labels.reshape(-1)
    rows = xp.nonzero(flat != IGNORED, "labelled")
    return {"rows": rows, "targets": flat[rows]}


def _next_words(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    return _words(head, graph, xp, shifted=True)


def _pair(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    return {"targets": graph.input("pair_labels", np.int64, ("batch",))}


def _sequence(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    if head.loss_name in ("cross_entropy", "ordinal"):
        return {"targets": graph.input("labels", np.int64, ("batch",))}
    labels = graph.input("labels", np.float32, ("batch", head.num_labels))
    if head.loss_name != "mean_squared_error":
        return {"targets": labels}
    options = head.loss_options
    mean = np.float32(0.0 if options.target_mean is None else options.target_mean)
    scale = np.float32(1.0 if options.target_scale is None else options.target_scale)
    return {"targets": xp.where(labels == IGNORED, labels, (labels - mean) / scale)}


def _tokens(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    return {"targets": graph.input("labels", np.int64, ("batch", "length")).reshape(-1)}


def _span(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    return {"targets": graph.input("labels", np.int64, ("batch", 2)).reshape(-1)}


def _embeddings(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    return {"targets": graph.input("labels", np.float32, ("batch",))[0::2]}


def _replaced(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    return {"targets": graph.input("labels", np.int64, ("batch", "length")).astype(np.float32)}


def _forecast(head: Any, graph: Graph, xp: Any) -> dict[str, Symbol]:
    labels = graph.input("labels", np.float64, ("batch", head.num_labels))
    values = xp.log(labels) if head.series.logarithm else labels
    return {"targets": ((values - head.series.mean) / head.series.scale).astype(np.float32)}


# The first class that a head is an instance of decides: subclasses stand before their bases.
TARGETS: dict[type[Head], Callable[[Any, Graph, Any], dict[str, Symbol]]] = {
    CausalLanguageHead: _next_words,
    MaskedLanguageHead: _words,
    PairHead: _pair,
    SequenceHead: _sequence,
    SpanHead: _span,
    TokenHead: _tokens,
    EmbeddingHead: _embeddings,
    DiscriminatorHead: _replaced,
    ForecastHead: _forecast,
}
