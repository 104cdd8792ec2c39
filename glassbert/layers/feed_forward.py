"""The feed-forward layer: every token by itself, through a wider space and back.

hidden = x W_upᵀ + b                        [B, T, H] -> [B, T, I], or [B, T, 2I] where gated
output = dropout(act(hidden)) W_downᵀ + b   -> [B, T, H]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from glassbert.engines.namespace import Array
from glassbert.layers.basics import dense, dense_backward, drop, drop_backward
from glassbert.layers.parameters import Parameter, linear_parameters
from glassbert.layers.scope import Scope
from glassbert.ops import ACTIVATIONS, geglu, geglu_backward, relu, relu_backward


def feed_forward_parameters(config: Any) -> list[Parameter]:
    size, wide = config.hidden_size, config.intermediate_size
    return [
        *linear_parameters("up", size, 2 * wide if config.gated else wide, config.ffn_bias),
        *linear_parameters("down", wide, size, config.ffn_bias, "output"),
    ]


def feed_forward(x: Array, at: Scope, config: Any, source: Any) -> Array:
    at.note("input", x)
    at.keep("x", x)
    hidden = dense(x, at, "up")  # [B, T, I or 2I]
    if gives_hidden_up(config, at):
        apart = at.apart()
        at.promise("hidden", lambda: dense(x, apart, "up"))
        activated, cache = relu(hidden, overwrite=True)
    elif at.cache.forgets and not config.gated:
        activated, cache = ACTIVATIONS[config.activation][0](hidden, overwrite=True)
    else:
        hidden = at.keep("hidden", hidden)
        activate = partial(geglu, activation=config.activation) if config.gated else ACTIVATIONS[config.activation][0]
        activated, cache = activate(hidden)
    at.keep("cache", cache)
    activated = at.keep("activated", drop(activated, at, "dropout", config.ffn_dropout, source))  # [B, T, I]
    return at.note("output", dense(activated, at, "down"))


def gives_hidden_up(config: Any, at: Scope) -> bool:
    """ReLU's backward asks only what is above zero, which its output tells as well: one array fewer to keep."""
    return config.activation == "relu" and not config.gated and not at.cache.trace


def feed_forward_backward(dy: Array, at: Scope, config: Any) -> Array:
    at.note("d_output", dy)
    dactivated = dense_backward(dy, at["activated"], at, "down")
    at.note("d_activated", dactivated)
    dactivated = drop_backward(dactivated, at, "dropout", config.ffn_dropout)
    if config.gated:
        dhidden = geglu_backward(dactivated, at["hidden"], at["cache"], config.activation)
    elif gives_hidden_up(config, at):
        dhidden = relu_backward(dactivated, at["activated"], overwrite=True)
    else:
        hidden = at["hidden"]
        dhidden = ACTIVATIONS[config.activation][1](dactivated, hidden, at["cache"])
    at.note("d_hidden", dhidden)
    return at.note("d_input", dense_backward(dhidden, at["x"], at, "up"))
