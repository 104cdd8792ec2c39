"""The feed-forward layer: every token by itself, through a wider space and back.

hidden = x W_upᵀ + b                        [B, T, H] -> [B, T, I], or [B, T, 2I] where gated
output = dropout(act(hidden)) W_downᵀ + b   -> [B, T, H]
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array
from glassbert.layers.registry import FEED_FORWARDS
from glassbert.layers.scope import Parameter, Scope, linear_parameters, operation_for


@FEED_FORWARDS.register("dense")
class FeedForward:
    """Up, activation, down."""

    def __init__(self, config: Any):
        self.config = config

    def parameters(self) -> list[Parameter]:
        size, wide, bias = self.config.hidden_size, self.config.intermediate_size, self.config.ffn_bias
        return [
            *linear_parameters("up", size, self.up_size(wide), bias),
            *linear_parameters("down", wide, size, bias, "output"),
        ]

    def up_size(self, wide: int) -> int:
        return wide

    def activate(self, hidden: Array, scope: Scope) -> Array:
        return scope.run(self.config.activation, "activation", hidden, donate=True)  # hidden is needed no more

    def forward(self, x: Array, scope: Scope) -> Array:
        """Derivation: docs/derivations/11-block-and-model.md (11.3)."""
        scope.record("input", x)
        hidden = scope.record("hidden", scope.linear(x, "up"))  # [B, T, I or 2I]
        if not scope.cache.trace:  # the activation may overwrite it
            parameters = scope.parameter("up.weight"), scope.optional("up.bias")
            linear = getattr(scope.ops, operation_for("linear", parameters))
            scope.compute_later("hidden", lambda: linear(x, *parameters)[0])  # must not hold the cache: a cycle
        activated = scope.dropout(self.activate(hidden, scope), "dropout", self.config.ffn_dropout)
        activated = scope.store("activated", activated)  # [B, T, I]
        return scope.record("output", scope.linear(activated, "down"))

    def backward(self, dy: Array, scope: Scope) -> Array:
        """Derivation: docs/derivations/11-block-and-model.md (11.4)."""
        scope.record("d_output", dy)
        dactivated = scope.record("d_activated", scope.linear_backward(dy, "down"))
        dhidden = scope.run_backward("activation", scope.dropout_backward(dactivated, "dropout"), donate=True)
        scope.record("d_hidden", dhidden)
        return scope.record("d_input", scope.linear_backward(dhidden, "up"))


@FEED_FORWARDS.register("gated")
class GatedFeedForward(FeedForward):
    """GeGLU and its like: one half of the wide space gates the other."""

    def up_size(self, wide: int) -> int:
        return 2 * wide

    def activate(self, hidden: Array, scope: Scope) -> Array:
        return scope.run("geglu", "activation", hidden, self.config.activation)
