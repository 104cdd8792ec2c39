"""Embeddings: what the first block sees of a token.

sum = token[id] + position[place] + token_type[type]          each part optional but the first
output = dropout(norm(sum))
"""

from __future__ import annotations

from typing import Any

from glassbert.engines.namespace import Array, namespace
from glassbert.layers.basics import drop, drop_backward, norm, norm_backward
from glassbert.layers.parameters import Parameter, norm_parameters
from glassbert.layers.scope import Scope
from glassbert.ops import embedding, embedding_backward


def embeddings_parameters(config: Any) -> list[Parameter]:
    size = config.hidden_size
    parameters = [Parameter("token", (config.vocab_size, size), "embedding")]
    if config.positions == "learned":
        parameters.append(Parameter("position", (config.max_position_embeddings, size), "embedding"))
    if config.type_vocab_size:
        parameters.append(Parameter("token_type", (config.type_vocab_size, size), "embedding"))
    if config.embedding_norm:
        parameters += norm_parameters("norm", size, config.norm_bias)
    return parameters


def embeddings(ids: Array, positions: Array, types: Array | None, at: Scope, config: Any, source: Any) -> Array:
    """ids [B, T], positions [B or 1, T], types [B, T] -> [B, T, H]"""
    at.keep("ids", ids)
    at.keep("positions", positions)
    at.keep("types", types)
    x = at.note("tokens", embedding(at.parameter("token"), ids))  # [B, T, H]
    if config.positions == "learned":
        x = x + embedding(at.parameter("position"), positions)
    if config.type_vocab_size:
        x = x + (at.parameter("token_type")[0] if types is None else embedding(at.parameter("token_type"), types))
    return after_sum(x, at, config, source)


def embeddings_backward(dx: Array, at: Scope, config: Any) -> None:
    """The sum handed its gradient to every part; each table collects it at the rows that were looked up."""
    dx = after_sum_backward(dx, at, config)
    gradients = at.gradients
    assert gradients is not None
    gradients.add_rows(at.name("token"), *embedding_backward(dx, at["ids"], config.pad_token_id))
    if config.positions == "learned":
        learn_positions(dx, at)
    if config.type_vocab_size:
        if at["types"] is None:
            at.add("token_type", _first_row_only(dx, at.parameter("token_type")))
        else:
            gradients.add_rows(at.name("token_type"), *embedding_backward(dx, at["types"]))


def after_sum(x: Array, at: Scope, config: Any, source: Any) -> Array:
    """What every sum of a token and its place goes through: a norm where the config has one, and dropout."""
    at.note("sum", x)
    if config.embedding_norm:
        x = norm(x, at, "norm", config.layer_norm_eps)
    return at.note("output", drop(x, at, "dropout", config.embedding_dropout, source))


def after_sum_backward(dx: Array, at: Scope, config: Any) -> Array:
    """The gradient at the sum, which is that of each of its parts."""
    at.note("d_output", dx)
    dx = drop_backward(dx, at, "dropout", config.embedding_dropout)
    if config.embedding_norm:
        dx = norm_backward(dx, at, "norm")
    at.note("d_sum", dx)
    return at.note("d_tokens", dx)


def learn_positions(dx: Array, at: Scope) -> None:
    """What the table of positions learns from the gradient [B, T, H] of a sum that it took part in."""
    positions = at["positions"]
    dposition = dx if positions.shape[0] == dx.shape[0] else sum_over_first(dx)[None]  # [B or 1, T, H]
    assert at.gradients is not None
    at.gradients.add_rows(at.name("position"), *embedding_backward(dposition, positions))


def sum_over_first(x: Array) -> Array:
    """The sum over the first axis as a product with ones: quick on a CPU, and 16-bit values are added in 32."""
    ones = namespace(x).ones((1, x.shape[0]), dtype=x.dtype)
    return (ones @ x.reshape(x.shape[0], -1)).reshape(x.shape[1:])


def _first_row_only(dx: Array, table: Array) -> Array:
    xp = namespace(dx)
    row = sum_over_first(dx.reshape(-1, dx.shape[-1]))  # [H]
    return xp.where(xp.arange(table.shape[0])[:, None] == 0, row, xp.zeros_like(row))
