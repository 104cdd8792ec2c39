"""The graph of a model: its inputs as symbols, one pass, its outputs under the names that others expect.

inputs    input_ids, attention_mask [batch, length]; token_type_ids and segment_ids where the model reads them
          values [batch, window] for a model of series
outputs   last_hidden_state, and pooler_output           no head
          last_hidden_state, sentence_embedding          embedding: pooled, of length one; before that `embedding`
          logits                                         masked words, next word, sequence, token, discriminator
          start_logits, end_logits                       span
          prediction_logits, seq_relationship_logits     pretraining
          forecast                                       series, in their own units

Every other value has the dotted name that the model has for it, such as `layers.0.attention.output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.engines.recording import Finished, Graph, RecordingEngine, Symbol
from glassbert.errors import ConfigError
from glassbert.layers.registry import ATTENTIONS, POSITIONS
from glassbert.layers.scope import NullCache
from glassbert.models.encoder import Batch, host_terms
from glassbert.models.heads import pooler
from glassbert.models.inputs import default_positions
from glassbert.models.model import Model
from glassbert.models.passes import Network, Pass
from glassbert.ops import unit_length

PRECISIONS = ("float32", "float16")
KNOWN = ("ids", "types", "mask", "segments", "positions")


@dataclass
class Recording:
    """A model on the recording engine: the graph, its parameters and inputs as symbols, and the pass over them."""

    graph: Graph
    network: Network
    parameters: dict[str, Symbol]
    batch: Batch
    run: Pass

    def named_values(self) -> dict[str, Symbol]:
        """The values of the pass by their dotted names."""
        caches = [*(part.cache for part in self.run.parts), self.run.head_cache]
        return {name: value for cache in caches for name, value in cache.stored.items() if isinstance(value, Symbol)}


def check_exportable(model: Model) -> None:
    """Raise `ConfigError` if this model has no graph."""
    if model.config.numbers is not None:
        raise ConfigError(
            "a model that reads the numbers of a table beside its words places them between knots before it computes, "
            "which ONNX has no input for; export a model of texts"
        )
    if model.head is not None and model.head.encoders():
        raise ConfigError(
            f"a head of type {model.head.kind} holds a generator that is only used in training; export the finished "
            "model of the run, which has the head 'discriminator'"
        )


def begin(model: Model, dtype: str = "float32", kernels: str = "fast") -> Recording:
    """Parameters and inputs of a model as symbols, and a pass that has not run yet."""
    if dtype not in PRECISIONS:
        raise ConfigError(f"ONNX is written in {' or '.join(PRECISIONS)}, not {dtype!r}")
    check_exportable(model)
    graph = Graph(dtype)
    engine = RecordingEngine(graph, kernels)
    network = model.network._replace(engine=engine)
    batch = symbolic_batch(network)
    parameters = {
        name: graph.parameter(name, _in_precision(name, model.engine.to_numpy(values), dtype))
        for name, values in model.parameters.items()
    }
    run = Pass(network, batch, parameters, trace=True, kernels=kernels)
    return Recording(graph, network, parameters, batch, run)


def record_model(model: Model, dtype: str = "float32") -> Finished:
    """The graph from the inputs of a model to its outputs."""
    recording = begin(model, dtype)
    outputs = model_outputs(recording)
    return recording.graph.finished(outputs, recording.named_values())


def symbolic_batch(network: Network) -> Batch:
    """Inputs of unknown size, and what `check_inputs` and the position scheme make of them."""
    config, head, engine = network.config, network.head, network.engine
    graph: Graph = engine.graph  # type: ignore[attr-defined]
    xp = engine.xp
    if config.series is not None:
        series = config.series
        values = graph.input("values", np.float64, ("batch", series.window))
        windows = ((xp.log(values) if series.logarithm else values) - series.mean) / series.scale
        positions = xp.arange(series.tokens)[None]
        terms = host_terms(positions, network.encoder, engine)
        return Batch(positions, position_terms=terms, windows=engine.array(windows))
    shape = ("batch", "length")
    checked: dict[str, Any] = dict.fromkeys(KNOWN)
    checked["ids"] = graph.input("input_ids", np.int64, shape)
    checked["mask"] = graph.input("attention_mask", np.int64, shape) != 0
    if config.type_vocab_size > 1:
        checked["types"] = graph.input("token_type_ids", np.int64, shape)
    checked["positions"] = default_positions(config, checked["ids"])
    if head is not None and head.reads_segments:
        checked["segments"] = graph.input("segment_ids", np.int64, shape)
        if not POSITIONS[config.positions].relative:
            checked["positions"] = _positions_in_texts(checked["segments"], xp) + config.position_offset
    kind = None if head is None else head.kind
    more = ATTENTIONS[config.attention].more_inputs(config, kind, {}, checked)
    terms = host_terms(checked["positions"], network.encoder, engine)
    return Batch(**checked, position_terms=terms, more=more)


def _positions_in_texts(segments: Array, xp: Any) -> Array:
    """Positions that start from 0 in each text of a row: t less the first token of the same text."""
    same = segments[:, :, None] == segments[:, None]  # [B, T, T]
    return xp.arange(segments.shape[1])[None] - same.argmax(-1)


def model_outputs(recording: Recording) -> dict[str, Symbol]:
    """Run the pass; its outputs by their names, in float32."""
    run, (config, _, head, _) = recording.run, recording.network
    output = run.output()
    outputs: dict[str, Any]
    if head is None:
        outputs = {"last_hidden_state": output}
        if config.pooler and not config.pooler_of_head:
            scope = run.head_scope().with_cache(NullCache())
            outputs["pooler_output"] = pooler(output[:, 0], scope, config)
    elif isinstance(output, Mapping):
        outputs = {PARTS[part]: value for part, value in output.items()}
    else:
        outputs = OUTPUTS.get(head.kind, _logits)(recording, output)
    return {name: value.astype(np.float32) for name, value in outputs.items()}


def _logits(recording: Recording, output: Symbol) -> dict[str, Symbol]:
    return {"logits": output}


def _span(recording: Recording, output: Symbol) -> dict[str, Symbol]:
    return {"start_logits": output[:, 0], "end_logits": output[:, 1]}


def _embedding(recording: Recording, output: Symbol) -> dict[str, Symbol]:
    unit = unit_length(output)[0]
    return {"last_hidden_state": recording.run.hidden, "sentence_embedding": unit, "embedding": output}


def _forecast(recording: Recording, output: Symbol) -> dict[str, Symbol]:
    """In the units of the series, computed in float64 as `SeriesConfig.unscaled` does."""
    series, xp = recording.network.config.series, recording.network.engine.xp
    assert series is not None
    values = output.astype(np.float64) * series.scale + series.mean
    return {"forecast": xp.exp(values) if series.logarithm else values}


PARTS = {"mlm": "prediction_logits", "pair": "seq_relationship_logits"}
OUTPUTS = {"span": _span, "embedding": _embedding, "forecast": _forecast}


def _in_precision(name: str, values: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(values, dtype)
    if not np.isfinite(result).all() and np.isfinite(values).all():
        raise ConfigError(f"{name} has values beyond the range of {dtype}; export it in float32")
    return result
