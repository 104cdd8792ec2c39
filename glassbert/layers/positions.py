"""Position schemes: how the order of the tokens enters an encoder.

none      not at all
learned   a learned vector for every position is added to the embeddings
rotary    queries and keys are rotated by an angle that grows with the position

A scheme may act in three places: on the sum of the embeddings (`embed`), on the queries and keys of every layer (the
`rotary` of its context) and on the scores (the `bias` of its context, computed once a pass by `begin`). The gradients
of a bias that all layers share are accumulated under the name `positions.d_bias` and handed to `backward` at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.layers.registry import POSITIONS
from glassbert.layers.scope import Parameter, Scope
from glassbert.ops import rotary_angles


@POSITIONS.register("none")
class Positions:
    """No positions; the base of all schemes."""

    uses_table = False  # whether there is a table with a row for each position
    packs = False  # whether leaving out padding changes nothing, although there is a bias
    relative = False  # whether only distances matter: positions may count through a packed row
    limited = True  # whether a sequence may have no more tokens than max_position_embeddings

    def __init__(self, config: Any):
        self.config = config

    def embedding_parameters(self) -> list[Parameter]:
        """Parameters inside the embeddings."""
        return []

    def parameters(self) -> list[Parameter]:
        """Parameters of the scheme itself, under `positions.`"""
        return []

    def on_host(self, positions: np.ndarray, dtype: np.dtype) -> Any:
        """Constants that depend on the positions [B or 1, T] alone, computed in NumPy once a batch; None: no such."""
        return None

    def embed(self, x: Array, positions: Array, scope: Scope) -> Array:
        """Add to the sum of the embeddings."""
        return x

    def embed_backward(self, dx: Array, scope: Scope) -> None:
        """The gradient of what `embed` added."""

    def begin(self, batch: Any, scope: Scope) -> Array | None:
        """The bias of the scores that all layers share, [B or 1, heads or 1, Tq, Tk], or None."""
        return None

    def rotary(self, batch: Any, layer: int) -> tuple[Array, Array] | None:
        """cos and sin by which this layer rotates queries and keys, or None."""
        return None

    def backward(self, dbias: Array, batch: Any, scope: Scope) -> None:
        """The gradient of what `begin` returned, summed over the layers."""


@POSITIONS.register("learned")
class LearnedPositions(Positions):
    """position[place] is added to the embedding of every token."""

    uses_table = True

    def embedding_parameters(self) -> list[Parameter]:
        return [Parameter("position", (self.config.max_position_embeddings, self.config.embedding_width), "embedding")]

    def embed(self, x: Array, positions: Array, scope: Scope) -> Array:
        scope.save("position.rows", positions.shape[0])  # 1 where all sequences share their positions
        before = self.config.position_offset - 1  # the position of padding, which is not trained
        padding = before if before >= 0 else None
        return x + scope.run("embedding", "position", scope.parameter("position"), positions, padding)

    def embed_backward(self, dx: Array, scope: Scope) -> None:
        dposition = dx if scope.saved("position.rows") == dx.shape[0] else sum_over_first(dx)[None]  # [B or 1, T, H]
        scope.add_rows("position", *scope.run_backward("position", dposition))


@POSITIONS.register("rotary")
class RotaryPositions(Positions):
    """Queries and keys are rotated; local layers may have another base than global ones."""

    relative = True

    def on_host(self, positions: np.ndarray, dtype: np.dtype) -> Any:
        config = self.config
        full = rotary_angles(positions, config.head_size, config.global_rope_theta, dtype)
        if config.local_window is None:
            return full, full
        return full, rotary_angles(positions, config.head_size, config.local_rope_theta, dtype)

    def rotary(self, batch: Any, layer: int) -> tuple[Array, Array] | None:
        return batch.position_terms[0 if self.config.window_of(layer) is None else 1]


def sum_over_first(x: Array) -> Array:
    """The sum over the first axis as a product with ones: fast on a CPU, and 16-bit values accumulate in 32 bits."""
    ones = namespace(x).ones((1, x.shape[0]), dtype=x.dtype)
    return (ones @ x.reshape(x.shape[0], -1)).reshape(x.shape[1:])
