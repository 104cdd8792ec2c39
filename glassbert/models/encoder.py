"""The encoder: embeddings, a stack of blocks, a last norm. Forward and backward on one screen.

Both are plain functions of parameters and inputs, so that threads can run them side by side on parts of a batch and
MLX can compile them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.engines.parameters import Gradients
from glassbert.layers.attention import Sight
from glassbert.layers.basics import norm, norm_backward
from glassbert.layers.block import block, block_backward, block_parameters
from glassbert.layers.embeddings import embeddings, embeddings_backward, embeddings_parameters
from glassbert.layers.parameters import Parameter, inside, norm_parameters
from glassbert.layers.scope import Cache, Forgetful, Scope
from glassbert.layers.values import values, values_backward, values_parameters
from glassbert.models.config import EncoderConfig
from glassbert.ops import AttentionPattern, rotary_angles

Finished = Callable[[str], object]  # hears the place ("layers.3", "embeddings") whose gradients are complete


def no_matter(place: str) -> None:
    """For `finished`, where nobody wants to know."""


@dataclass(frozen=True)
class Batch:
    """The checked inputs of an encoder, as arrays of its engine."""

    positions: Array  # [B or 1, T]
    ids: Array | None = None  # [B, T]
    types: Array | None = None  # [B, T]
    mask: Array | None = None  # [B, T], 0 where a token must not be seen
    segments: Array | None = None  # [B, T], the document of a token, 0 for padding
    angles: tuple[tuple[Array, Array], tuple[Array, Array]] | None = None  # rotary (cos, sin): global, local
    windows: Array | None = None  # [B, W], values of a series in place of ids

    @property
    def size(self) -> int:
        """How many rows it has."""
        rows: Array = self.windows if self.ids is None else self.ids
        return rows.shape[0]

    def rows(self, part: slice) -> Batch:
        def cut(x: Array | None) -> Array | None:
            return x if x is None or x.shape[0] == 1 else x[part]

        angles = self.angles and tuple((cut(cos), cut(sin)) for cos, sin in self.angles)
        ids, types, mask, segments, windows = (
            None if x is None else x[part] for x in (self.ids, self.types, self.mask, self.segments, self.windows)
        )
        return Batch(cut(self.positions), ids, types, mask, segments, angles, windows)  # type: ignore[arg-type]


def encoder_parameters(config: EncoderConfig) -> list[Parameter]:
    first = embeddings_parameters if config.series is None else values_parameters
    parameters = inside("embeddings", first(config))
    for i in range(config.num_hidden_layers):
        parameters += inside(f"layers.{i}", block_parameters(config, i))
    if config.final_norm:
        parameters += norm_parameters("final_norm", config.hidden_size, config.norm_bias)
    return parameters


def angles_for(positions: np.ndarray, config: EncoderConfig, dtype: np.dtype) -> tuple[Any, Any] | None:
    """Rotary angles of the global and of the local layers."""
    if config.positions != "rotary":
        return None
    wide = rotary_angles(positions, config.head_size, config.global_rope_theta, dtype)
    if config.local_window is None:
        return wide, wide
    return wide, rotary_angles(positions, config.head_size, config.local_rope_theta, dtype)


def sight_of(layer: int, batch: Batch, config: EncoderConfig) -> Sight:
    window = config.window_of(layer)
    pattern = AttentionPattern(batch.mask, batch.segments, window, config.causal)
    if batch.angles is None:
        return Sight(pattern)
    return Sight(pattern, *batch.angles[0 if window is None else 1])


def encode(
    parameters: Mapping[str, Array],
    config: EncoderConfig,
    batch: Batch,
    cache: Cache,
    source: Any = None,
    checkpointing: bool = False,
) -> Array:
    """ids [B, T] or windows [B, W] -> hidden states [B, T, H]. Without a `source` of masks nothing is dropped."""
    at = Scope(parameters, cache)
    if config.series is None:
        x = embeddings(batch.ids, batch.positions, batch.types, at.inside("embeddings"), config, source)
    else:
        x = values(batch.windows, batch.positions, at.inside("embeddings"), config, source)
    for i in range(config.num_hidden_layers):
        sight = sight_of(i, batch, config)
        if checkpointing:
            cache.keep(f"layers.{i}.input", x)
            cache.promise_region(f"layers.{i}.", partial(block_again, i, parameters, config, batch, source))
            x = block(x, Scope(parameters, Forgetful()).inside(f"layers.{i}"), config, sight, source)
        else:
            x = block(x, at.inside(f"layers.{i}"), config, sight, source)
    if config.final_norm:
        x = norm(x, at, "final_norm", config.layer_norm_eps)
    return cache.note("output", x)


def block_again(
    i: int, parameters: Mapping[str, Array], config: EncoderConfig, batch: Batch, source: Any, cache: Cache
) -> Cache:
    """Run block i once more from its input, this time keeping everything."""
    again = cache.like()
    block(
        cache[f"layers.{i}.input"],
        Scope(parameters, again).inside(f"layers.{i}"),
        config,
        sight_of(i, batch, config),
        source,
    )
    return again


def encode_backward(
    dx: Array,
    parameters: Mapping[str, Array],
    config: EncoderConfig,
    batch: Batch,
    cache: Cache,
    gradients: Gradients,
    source: Any = None,
    checkpointing: bool = False,
    finished: Finished = no_matter,
) -> None:
    """`encode`, read from the bottom up. Gradients go into `gradients`, keyed by the name of their parameter.

    It ends at the lowest place where something learns: what stands still below needs no gradient.
    """
    at = Scope(parameters, cache, gradients)
    cache.note("d_output", dx)
    lowest = lowest_that_learns(parameters, config, gradients)
    if config.final_norm and lowest <= config.num_hidden_layers:
        dx = norm_backward(dx, at, "final_norm")
        finished("final_norm")
    for i in reversed(range(max(lowest, 0), config.num_hidden_layers)):
        sight = sight_of(i, batch, config)
        scope = at.inside(f"layers.{i}")
        if checkpointing:  # the block left only its input
            scope = Scope(parameters, block_again(i, parameters, config, batch, source, cache), gradients)
            scope = scope.inside(f"layers.{i}")
        dx = block_backward(dx, scope, config, sight, source)
        finished(f"layers.{i}")
    if lowest >= 0:
        return
    if config.series is None:
        embeddings_backward(dx, at.inside("embeddings"), config)
    else:
        values_backward(dx, at.inside("embeddings"), config)
    finished("embeddings")


def lowest_that_learns(parameters: Mapping[str, Array], config: EncoderConfig, gradients: Gradients) -> int:
    """The lowest layer with a gradient that is wanted.

    -1 stands for the embeddings, the number of layers for the last norm, and one more for nothing at all.
    """
    levels = {"embeddings": -1, "final_norm": config.num_hidden_layers}
    nothing = config.num_hidden_layers + 1
    wanted = (name.split(".", 2) for name in parameters if gradients.wants(name))
    return min((int(parts[1]) if parts[0] == "layers" else levels.get(parts[0], nothing) for parts in wanted),
               default=nothing)  # fmt: skip


def backward_order(config: EncoderConfig) -> list[str]:
    """The places in the order in which their gradients become complete."""
    layers = [f"layers.{i}" for i in reversed(range(config.num_hidden_layers))]
    return [*(["final_norm"] if config.final_norm else []), *layers, "embeddings"]
