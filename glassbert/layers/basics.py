"""The named forms of linear, layer norm and dropout: operations tied to parameters, cache and gradients."""

from __future__ import annotations

from typing import Any

from glassbert.engines.namespace import Array
from glassbert.layers.scope import Scope
from glassbert.ops import (
    dropout,
    dropout_backward,
    layer_norm,
    layer_norm_backward,
    linear,
    linear_backward,
)


def dense(x: Array, at: Scope, name: str) -> Array:
    return linear(x, at.parameter(f"{name}.weight"), at.optional(f"{name}.bias"))


def dense_backward(dy: Array, x: Array, at: Scope, name: str) -> Array:
    weight, bias = f"{name}.weight", f"{name}.bias"
    has_bias = at.optional(bias) is not None and at.wants(bias)
    assert at.gradients is not None
    taken = at.gradients.add_product(at.name(weight), dy, x, at.parameters)
    if not taken and (has_bias or at.wants(weight)):
        places = (at.place(weight), at.place(bias) if has_bias else None)
        dx, dweight, dbias = linear_backward(dy, x, at.parameter(weight), has_bias, places)
        at.add(weight, dweight)
        at.add(bias, dbias)
        return dx
    return linear(dy, at.parameter(weight).T)  # what remains, dx = dy W, is the map by the transposed matrix


def norm(x: Array, at: Scope, name: str, eps: float, overwrite: bool = False) -> Array:
    y, cache = layer_norm(
        x, at.parameter(f"{name}.weight"), at.optional(f"{name}.bias"), eps, overwrite, at.cache.forgets
    )
    at.keep(f"{name}.cache", cache)
    return y


def norm_backward(dy: Array, at: Scope, name: str) -> Array:
    weight, bias = f"{name}.weight", f"{name}.bias"
    has_bias = at.optional(bias) is not None
    dx, dweight, dbias = layer_norm_backward(dy, at.parameter(weight), at[f"{name}.cache"], has_bias)
    at.add(weight, dweight)
    at.add(bias, dbias)
    return dx


def drop(x: Array, at: Scope, name: str, rate: float, source: Any) -> Array:
    """Dropout with a mask from `source`; without a source (evaluation) or a rate nothing is dropped."""
    if source is None or rate == 0.0:
        return x
    keep = at.keep(f"{name}.keep", source.keep(at.name(name), x.shape, rate))
    return dropout(x, keep, rate)


def drop_backward(dy: Array, at: Scope, name: str, rate: float) -> Array:
    return dropout_backward(dy, at.cache.get(at.name(f"{name}.keep")), rate)
