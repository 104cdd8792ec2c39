"""The mask decoder of DeBERTa: absolute positions enter behind the encoder, before the words are predicted.

    h    the states before the last layer
    x0 = h + P                  P: absolute positions, which are new to the encoder
    x1 = layer(x0; h)           the last layer, with queries of x0 and with keys and values of h
    x2 = layer(x1; h)           the same layer once more; the words are predicted from x2

The encoder (`glassbert.models.encoder`) runs the layer twice; this file has the first line.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array
from glassbert.layers.positions import sum_over_first
from glassbert.layers.scope import Parameter, Scope


class MaskDecoder:
    """The first queries of the decoder: hidden states with their absolute positions."""

    def __init__(self, config: Any):
        self.config = config

    def parameters(self) -> list[Parameter]:
        return [Parameter("position", (self.config.max_position_embeddings, self.config.hidden_size), "embedding")]

    def forward(self, x: Array, batch: Any, scope: Scope) -> Array:
        scope.save("rows", batch.positions.shape[0])  # 1 where all sequences share their positions
        table = scope.parameter("position")
        return scope.record("input", x + scope.run("embedding", "position", table, batch.positions))

    def backward(self, dx: Array, scope: Scope) -> Array:
        dposition = dx if scope.saved("rows") == dx.shape[0] else sum_over_first(dx)[None]
        scope.add_rows("position", *scope.run_backward("position", dposition))
        return dx
