"""Values: what the first block sees of a series.

    z = (window - centre) / spread                        the window in its frame        [B, W]
    patch_t = z[t·stride : t·stride + patch]              [B, T, P]
    sum = patch · projectionᵀ + bias + position[t]        [B, T, H]
    output = dropout(norm(sum))

Centre and spread are those of the window itself, and the forecast is taken out of the frame with the same two numbers
(`glassbert.models.heads.forecast`). Neither has parameters: with one series, a learned scale and shift would only
repeat what the projection can do. The values are given, not computed, so no gradient goes further than the projection.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.namespace import Array, namespace
from glassbert.layers.basics import dense, dense_backward
from glassbert.layers.embeddings import after_sum, after_sum_backward, learn_positions
from glassbert.layers.parameters import Parameter, linear_parameters, norm_parameters
from glassbert.layers.scope import Scope
from glassbert.ops import embedding

SMALLEST = 1e-5  # added to the variance: a window that stands still has none


def values_parameters(config: Any) -> list[Parameter]:
    size = config.hidden_size
    parameters = linear_parameters("projection", config.series.patch, size, True)
    if config.positions == "learned":
        parameters.append(Parameter("position", (config.max_position_embeddings, size), "embedding"))
    if config.embedding_norm:
        parameters += norm_parameters("norm", size, config.norm_bias)
    return parameters


def frame(windows: Array, series: Any) -> tuple[Array, Array]:
    """Centre and spread of every window, [B, 1] each."""
    xp = namespace(windows)
    mean = windows.mean(1, keepdims=True)
    centre = {"mean": mean, "last": windows[:, -1:], "none": xp.zeros_like(mean)}[series.centre]
    if not series.divide:
        return centre, xp.ones_like(mean)
    away = windows - mean
    return centre, xp.sqrt((away * away).mean(1, keepdims=True) + SMALLEST)


def patches(framed: Array, series: Any) -> Array:
    """[B, W] -> [B, T, P]"""
    starts = series.step * np.arange(series.tokens)
    places = namespace(framed).array(starts[:, None] + np.arange(series.patch))  # [T, P]
    return framed[:, places]


def values(windows: Array, positions: Array, at: Scope, config: Any, source: Any) -> Array:
    """windows [B, W], positions [1, T] -> [B, T, H]"""
    at.keep("positions", positions)
    centre, spread = frame(windows, config.series)
    dtype = at.parameter("projection.weight").dtype
    x = patches((windows - centre) / spread, config.series).astype(dtype)
    at.keep("patches", x)
    x = at.note("tokens", dense(x, at, "projection"))  # [B, T, H]
    if config.positions == "learned":
        x = x + embedding(at.parameter("position"), positions)
    return after_sum(x, at, config, source)


def values_backward(dx: Array, at: Scope, config: Any) -> None:
    """The sum handed its gradient to the projection and to the positions."""
    dx = after_sum_backward(dx, at, config)
    if config.positions == "learned":
        learn_positions(dx, at)
    dense_backward(dx, at["patches"], at, "projection")
