"""Embeddings: the input of the first block.

tokens    sum = token[id] + position[place] + token_type[type]        each term optional but the first
numbers   the same + number, the vector of a number of a table        at the tokens that have one
values    sum = patch · projectionᵀ + bias + position[place]          of a window of a series, see below
          output = projection(dropout(norm(sum)))                     a projection only where embeddings are narrower

A window of a series is normalised and cut into patches:

    z = (window - centre) / spread                        [B, W]
    patch_t = z[t·stride : t·stride + patch]              [B, T, P]

Centre and spread are those of the window itself, and the forecast is scaled back with the same two numbers
(`glassbert.models.heads.forecast`). Neither has parameters: with one series, a learned scale and shift would repeat
what the projection can do. The values are inputs, so no gradient goes further than the projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.layers.positions import Positions, sum_over_first
from glassbert.layers.registry import EMBEDDINGS
from glassbert.layers.scope import Parameter, Scope, linear_parameters, norm_parameters

SMALLEST = 1e-5  # added to the variance: a constant window has none


class Embeddings(ABC):
    """What both kinds share: positions, norm, dropout and a projection to the width of the layers."""

    def __init__(self, config: Any, positions: Positions):
        self.config, self.positions = config, positions
        self.projected = config.embedding_width != config.hidden_size

    def parameters(self) -> list[Parameter]:
        config = self.config
        parameters = [*self.input_parameters()]
        if config.embedding_norm:
            parameters += norm_parameters("norm", config.embedding_width, config.norm_bias)
        if self.projected:
            parameters += linear_parameters("projection", config.embedding_width, config.hidden_size, True)
        return parameters

    @abstractmethod
    def input_parameters(self) -> list[Parameter]:
        """The parameters of the sum."""

    @abstractmethod
    def forward(self, batch: Any, scope: Scope) -> Array:
        """The input of the first block, [B, T, H]."""

    @abstractmethod
    def backward(self, dx: Array, batch: Any, scope: Scope) -> None:
        """Add the gradients of the parameters."""

    finishes = False  # whether `finish` changes anything

    def finish(self, x: Array, batch: Any, scope: Scope) -> Array:
        """The hidden states of the last block as those of the encoder."""
        return x

    def finish_backward(self, dx: Array, batch: Any, scope: Scope) -> Array:
        return dx

    def after_sum(self, x: Array, scope: Scope) -> Array:
        scope.record("sum", x)
        if self.config.embedding_norm:
            x = scope.norm(x, "norm", self.config.layer_norm_eps)
        x = scope.dropout(x, "dropout", self.config.embedding_dropout)
        if self.projected:
            x = scope.linear(x, "projection")
        return scope.record("output", x)

    def after_sum_backward(self, dx: Array, scope: Scope) -> Array:
        """The gradient of the sum, which is that of each of its terms."""
        scope.record("d_output", dx)
        if self.projected:
            dx = scope.linear_backward(dx, "projection")
        dx = scope.dropout_backward(dx, "dropout")
        if self.config.embedding_norm:
            dx = scope.norm_backward(dx, "norm")
        scope.record("d_sum", dx)
        return scope.record("d_tokens", dx)


@EMBEDDINGS.register("tokens")
class TokenEmbeddings(Embeddings):
    """Token ids to vectors."""

    def input_parameters(self) -> list[Parameter]:
        config = self.config
        width = config.embedding_width
        types = (
            [Parameter("token_type", (config.type_vocab_size, width), "embedding")] if config.type_vocab_size else []
        )
        token = Parameter("token", (config.vocab_size, width), "embedding")
        return [token, *self.positions.embedding_parameters(), *types]

    @property
    def frozen_id(self) -> int | None:
        """The id whose lookups give no gradient."""
        return self.config.pad_token_id if self.config.frozen_padding else None

    def forward(self, batch: Any, scope: Scope) -> Array:
        """ids [B, T] -> [B, T, H]. Derivation: docs/derivations/11-block-and-model.md (11.11)."""
        return self.after_sum(self.sum(batch, scope), scope)

    def sum(self, batch: Any, scope: Scope) -> Array:
        x = scope.run("embedding", "token", scope.parameter("token"), batch.ids, self.frozen_id)
        scope.record("tokens", x)  # [B, T, H]
        x = self.positions.embed(x, batch.positions, scope)
        if self.config.type_vocab_size:
            if batch.types is None:
                x = x + scope.parameter("token_type")[0]
            else:
                x = x + scope.run("embedding", "token_type", scope.parameter("token_type"), batch.types)
        return x

    def backward(self, dx: Array, batch: Any, scope: Scope) -> None:
        """The sum passes its gradient to every term; each table collects it in the rows that were looked up.

        Derivation: docs/derivations/11-block-and-model.md (11.12)
        """
        self.sum_backward(self.after_sum_backward(dx, scope), batch, scope)

    def sum_backward(self, dx: Array, batch: Any, scope: Scope) -> None:
        scope.add_rows("token", *scope.run_backward("token", dx))
        self.positions.embed_backward(dx, scope)
        if self.config.type_vocab_size:
            if batch.types is None:
                scope.add("token_type", first_row_only(dx, scope.parameter("token_type")))
            else:
                scope.add_rows("token_type", *scope.run_backward("token_type", dx))


@EMBEDDINGS.register("numbers")
class NumberEmbeddings(TokenEmbeddings):
    """Token ids to vectors, and the numbers of a table beside them (`glassbert.models.numbers`)."""

    def input_parameters(self) -> list[Parameter]:
        numbers = self.config.numbers
        shape = (numbers.columns, numbers.rows, self.config.embedding_width)
        return [*super().input_parameters(), Parameter("number", shape, "embedding")]

    def sum(self, batch: Any, scope: Scope) -> Array:
        x = super().sum(batch, scope)
        if batch.number_index is None:
            return x
        given = scope.parameter("number"), batch.number_index, batch.number_weights
        return x + scope.record("numbers", scope.run("number_embedding", "number", *given))

    def sum_backward(self, dx: Array, batch: Any, scope: Scope) -> None:
        super().sum_backward(dx, batch, scope)
        if batch.number_index is not None:
            scope.add("number", scope.run_backward("number", dx))


@EMBEDDINGS.register("values")
class SeriesEmbeddings(Embeddings):
    """Windows of a series to vectors."""

    def input_parameters(self) -> list[Parameter]:
        return [
            *linear_parameters("projection", self.config.series.patch, self.config.embedding_width, True),
            *self.positions.embedding_parameters(),
        ]

    def forward(self, batch: Any, scope: Scope) -> Array:
        """windows [B, W] -> [B, T, H]"""
        centre, spread = frame(batch.windows, self.config.series)
        dtype = scope.parameter("projection.weight").dtype
        x = patches((batch.windows - centre) / spread, self.config.series).astype(dtype)
        scope.record("patches", x)
        x = scope.record("tokens", scope.linear(x, "projection"))  # [B, T, H]
        return self.after_sum(self.positions.embed(x, batch.positions, scope), scope)

    def backward(self, dx: Array, batch: Any, scope: Scope) -> None:
        dx = self.after_sum_backward(dx, scope)
        self.positions.embed_backward(dx, scope)
        scope.linear_backward(dx, "projection")


def first_row_only(dx: Array, table: Array) -> Array:
    """The gradient of a table of which every token used row 0."""
    xp = namespace(dx)
    row = sum_over_first(dx.reshape(-1, dx.shape[-1]))  # [H]
    return xp.where(xp.arange(table.shape[0])[:, None] == 0, row, xp.zeros_like(row))


def frame(windows: Array, series: Any) -> tuple[Array, Array]:
    """Centre and spread of every window, [B, 1] each."""
    xp = namespace(windows)
    mean = windows.mean(1, keepdims=True)
    centre = {"mean": mean, "last": windows[:, -1:], "none": xp.zeros_like(mean)}[series.centre]
    if not series.divide:
        return centre, xp.ones_like(mean)
    deviation = windows - mean
    return centre, xp.sqrt((deviation * deviation).mean(1, keepdims=True) + SMALLEST)


def patches(framed: Array, series: Any) -> Array:
    """[B, W] -> [B, T, P]"""
    starts = series.step * np.arange(series.tokens)
    index = namespace(framed).array(starts[:, None] + np.arange(series.patch))  # [T, P]
    return framed[:, index]
