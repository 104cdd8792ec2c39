"""The graph of a model: its inputs as symbols, one pass, its outputs under the names that others expect.

inputs    input_ids, attention_mask [batch, length]; token_type_ids and segment_ids where the model reads them
          a causal model: position_ids [batch, length], attention_mask [batch, past + length], and the keys and values
          of earlier tokens, past_key_values.0.key [batch, heads, past, d]; at first there are none, past is 0
          fields and values [batch, length] where the model reads the numbers of a table
          values [batch, window] for a model of series
outputs   last_hidden_state, and pooler_output           no head
          last_hidden_state, sentence_embedding          embedding: pooled, of length one; before that `embedding`
          logits                                         masked words, sequence, token, discriminator
          start_logits, end_logits                       span
          prediction_logits, seq_relationship_logits     pretraining
          logits, present.0.key, present.0.value, ...    next word: the keys and values for the next pass
          forecast                                       series, in their own units

Every other value has the dotted name that the model has for it, such as `layers.0.attention.output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.engines.recording import Finished, Graph, RecordingEngine, Size, Symbol
from glassbert.engines.recording.quantized import symbolic
from glassbert.errors import ConfigError
from glassbert.layers.registry import ATTENTIONS, POSITIONS
from glassbert.layers.scope import NullCache
from glassbert.models.encoder import Batch, host_terms
from glassbert.models.heads import CausalLanguageHead, pooler
from glassbert.models.inputs import default_positions
from glassbert.models.model import Model
from glassbert.models.numbers import NumbersConfig
from glassbert.models.passes import Network, Pass
from glassbert.models.quantized import on_host, quantized_parameters
from glassbert.ops import QuantizedArray, unit_length

PRECISIONS = ("float32", "float16")
PAST, PRESENT = "past_key_values.{}.{}", "present.{}.{}"
KNOWN = ("ids", "types", "mask", "segments", "positions")


@dataclass
class Recording:
    """A model on the recording engine: the graph, the inputs as symbols, and the pass over them."""

    graph: Graph
    network: Network
    batch: Batch
    run: Pass

    def named_values(self) -> dict[str, Symbol]:
        """The values of the pass by their dotted names."""
        caches = [*(part.cache for part in self.run.parts), self.run.head_cache]
        return {name: value for cache in caches for name, value in cache.stored.items() if isinstance(value, Symbol)}


def check_exportable(model: Model) -> None:
    """Raise `ConfigError` if this model has no graph."""
    if model.head is not None and model.head.encoders():
        raise ConfigError(
            f"a head of type {model.head.kind} holds a generator that is only used in training; export the finished "
            "model of the run, which has the head 'discriminator'"
        )


def keeps_past(model: Model) -> bool:
    """Whether the graph takes and gives keys and values: it predicts next words, one after the other."""
    names = ATTENTIONS[model.config.attention].memory_names
    return isinstance(model.head, CausalLanguageHead) and names == ("k", "v")


def begin(
    model: Model, dtype: str = "float32", kernels: str = "fast", with_past: bool = False, given: bool = False
) -> Recording:
    """Parameters and inputs of a model as symbols, and a pass that has not run yet.

    `given`: the parameters are inputs of the graph, in float32, and not constants.
    """
    if dtype not in PRECISIONS:
        raise ConfigError(f"ONNX is written in {' or '.join(PRECISIONS)}, not {dtype!r}")
    check_exportable(model)
    graph = Graph(dtype)
    engine = RecordingEngine(graph, kernels)
    network = model.network._replace(engine=engine)
    batch = symbolic_batch(network, with_past)
    if quantized_parameters(model) and (given or dtype != "float32"):
        raise ConfigError(
            "a quantised model is exported in float32 and without gradients; export the model that it was made from"
        )
    parameters: dict[str, Any]
    if given:
        parameters = {name: graph.input(name, np.float32, shape) for name, shape in model.layout.shapes.items()}
    else:
        parameters = {
            name: symbolic(graph, name, on_host(values))
            if isinstance(values, QuantizedArray)
            else graph.parameter(name, _in_precision(name, model.engine.to_numpy(values), dtype))
            for name, values in model.parameters.items()
        }
    run = Pass(network, batch, parameters, trace=True, kernels=kernels)
    return Recording(graph, network, batch, run)


def record_model(model: Model, dtype: str = "float32", given: bool = False) -> Finished:
    """The graph from the inputs of a model to its outputs; `given`: its parameters are inputs as well."""
    recording = begin(model, dtype, with_past=keeps_past(model), given=given)
    outputs = model_outputs(recording)
    return recording.graph.finished(outputs, recording.named_values())


def symbolic_batch(network: Network, with_past: bool = False) -> Batch:
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
    past = Size.of("past") if with_past else 0
    checked["mask"] = graph.input("attention_mask", np.int64, ("batch", past + Size.of("length"))) != 0
    if config.type_vocab_size > 1:
        checked["types"] = graph.input("token_type_ids", np.int64, shape)
    if with_past:
        checked["positions"] = graph.input("position_ids", np.int64, shape)
        checked["memory"] = _past_of_layers(config, engine)
    else:
        checked["positions"] = default_positions(config, checked["ids"])
    if head is not None and head.reads_segments:
        checked["segments"] = graph.input("segment_ids", np.int64, shape)
        if not POSITIONS[config.positions].relative:
            checked["positions"] = _positions_in_texts(checked["segments"], xp) + config.position_offset
    if config.numbers is not None:
        fields, values = graph.input("fields", np.int64, shape), graph.input("values", np.float64, shape)
        checked["number_index"], weights = _between_knots(config.numbers, fields, values, xp)
        checked["number_weights"] = engine.array(weights)
    kind = None if head is None else head.kind
    more = ATTENTIONS[config.attention].more_inputs(config, kind, {}, checked)
    terms = host_terms(checked["positions"], network.encoder, engine)
    return Batch(**checked, position_terms=terms, more=more)


def _past_of_layers(config: Any, engine: Any) -> tuple[tuple[Symbol, ...], ...]:
    """The inputs for keys and values of earlier tokens, float32 in every precision."""
    shape = ("batch", config.num_attention_heads, "past", config.head_size)
    return tuple(
        tuple(engine.array(engine.graph.input(PAST.format(i, part), np.float32, shape)) for part in ("key", "value"))
        for i in range(config.num_hidden_layers)
    )


def _between_knots(numbers: NumbersConfig, fields: Symbol, values: Symbol, xp: Any) -> tuple[Symbol, Symbol]:
    """`NumbersConfig.place`: the row of the knot below every number, and the weights of it and the next one."""
    missing, rows = xp.isnan(values), numbers.rows
    index: Any = xp.zeros(fields.shape, np.int64)
    weights: Any = xp.zeros((*fields.shape, 2), np.float64)
    for column, knots in enumerate(numbers.knots):
        edges = xp.array(knots, np.float64)
        inside = xp.clip(xp.where(missing, knots[0], values), knots[0], knots[-1])
        below = xp.clip((edges <= inside[..., None]).sum(-1) - 1, 0, len(knots) - 2)
        share = xp.where(missing, 1.0, (inside - edges[below]) / (edges[below + 1] - edges[below]))
        here = fields == column + 1
        index = xp.where(here, column * rows + xp.where(missing, rows - 2, below), index)
        weights = xp.where(here[..., None], xp.stack([1.0 - share, share], -1), weights)
    return index, weights


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
        outputs = {PARTS.get(str(part), str(part)): value for part, value in output.items()}
    else:
        outputs = OUTPUTS.get(head.kind, _logits)(recording, output)
    return {name: value.astype(np.float32) for name, value in outputs.items()}


def _logits(recording: Recording, output: Symbol) -> dict[str, Symbol]:
    return {"logits": output}


def _next_word(recording: Recording, output: Symbol) -> dict[str, Symbol]:
    outputs = {"logits": output}
    if recording.batch.memory is not None:
        for i, (key, value) in enumerate(recording.run.memory()):
            outputs |= {PRESENT.format(i, "key"): key, PRESENT.format(i, "value"): value}
    return outputs


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
OUTPUTS = {"causal": _next_word, "span": _span, "embedding": _embedding, "forecast": _forecast}


def _in_precision(name: str, values: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(values, dtype)
    if not np.isfinite(result).all() and np.isfinite(values).all():
        raise ConfigError(f"{name} has values beyond the range of {dtype}; export it in float32")
    return result
