"""Disentangled attention (DeBERTa): content and relative positions meet in the scores, not in the embeddings.

score(i, j) = (q_i · k_j + q_i · K[δ(i - j)] + k_j · Q[δ(i - j)]) / √(d · terms)

content to content, content to position ("c2p"), position to content ("p2c"); δ is the bucket of a distance. K and Q
are keys and queries made from a table of embeddings of distances, which all layers share.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.errors import ConfigError, InputError
from glassbert.layers.attention import AttentionContext, SelfAttention
from glassbert.layers.positions import LearnedPositions, Positions
from glassbert.layers.registry import ATTENTIONS, POSITIONS
from glassbert.layers.scope import Parameter, Scope, linear_parameters, norm_parameters

CONTENT_TO_POSITION, POSITION_TO_CONTENT = "c2p", "p2c"
TERMS = (CONTENT_TO_POSITION, POSITION_TO_CONTENT)
RELATIVE = ("relative", "relative_learned")


@functools.lru_cache(maxsize=256)
def bucket_rows(length: int, buckets: int, furthest: int) -> tuple[int, int, np.ndarray]:
    """The rows of the table that a sequence needs: first, one after the last, and of every distance the row among them.

    Distances i - j run from -(length - 1) to length - 1. Up to half the buckets each has its own; beyond, a bucket
    holds ever more of them:  half + ⌈log(|i - j| / half) / log((furthest - 1) / half) · (half - 1)⌉. Without buckets
    the distance itself is the row. The table has a row for each bucket of either sign; beyond it the last row counts.
    """
    distance = np.arange(1 - length, length)
    half, span = buckets // 2, buckets or furthest
    if buckets and length - 1 > half:
        size = np.where(np.abs(distance) < half, half - 1, np.abs(distance))
        ratio = np.log((size / half).astype(np.float32)) / np.log(np.float32((furthest - 1) / half))
        far = np.ceil(ratio * np.float32(half - 1)) + half
        distance = np.where(size <= half, distance, far * np.sign(distance)).astype(np.int64)
    rows = np.clip(distance + span, 0, 2 * span - 1)
    return int(rows[0]), int(rows[-1]) + 1, rows - rows[0]


@POSITIONS.register("relative")
class RelativePositions(Positions):
    """A table of embeddings of distances, perhaps with a norm. `begin` gives it to all layers."""

    packs = True  # it depends on no row

    @staticmethod
    def check_config(config: Any) -> None:
        if config.attention != "disentangled":
            raise ConfigError(
                f"positions={config.positions!r} are read by attention='disentangled', and attention is "
                f"{config.attention!r}"
            )

    def parameters(self) -> list[Parameter]:
        config = self.config
        table = Parameter("relative", (2 * config.position_span, config.hidden_size), "embedding")
        return [table, *(norm_parameters("norm", config.hidden_size, True) if config.relative_norm else [])]

    def begin(self, batch: Any, scope: Scope) -> Array:
        table = scope.parameter("relative")  # [2 · span, H]
        if self.config.relative_norm:
            table = scope.norm(table, "norm", self.config.layer_norm_eps)
        return scope.record("table", table, ())

    def backward(self, dbias: Array, batch: Any, scope: Scope) -> None:
        scope.add("relative", scope.norm_backward(dbias, "norm") if self.config.relative_norm else dbias)


@POSITIONS.register("relative_learned")
class RelativeAndLearnedPositions(RelativePositions, LearnedPositions):
    """The same, and a learned vector for every position in the embeddings (`position_biased_input`)."""


@ATTENTIONS.register("disentangled")
class DisentangledAttention(SelfAttention):
    """score(i, j) = (q_i · k_j + q_i · K[δ(i - j)] + k_j · Q[δ(i - j)]) / √(d · terms)

    K and Q are keys and queries made from the embeddings of distances, by the maps of the content (`share_att_key`) or
    by maps of their own. The embeddings have dropout in every layer.
    """

    def __init__(self, config: Any):
        super().__init__(config)
        if self.scale is None:
            self.scale = (config.head_size * (1 + len(config.pos_att_type))) ** -0.5

    @staticmethod
    def check_config(config: Any) -> None:
        if not hasattr(config, "pos_att_type"):
            raise ConfigError(
                "attention='disentangled' needs the fields of DebertaConfig (position_buckets, pos_att_type, ...); "
                "take a preset of that family, such as deberta-mini"
            )
        if config.positions not in RELATIVE:
            raise ConfigError(
                f"attention='disentangled' needs positions={RELATIVE[0]!r} or {RELATIVE[1]!r}, got {config.positions!r}"
            )

    @classmethod
    def more_flops(cls, config: Any, batch: int, length: int, layers: int, pairs: int) -> dict[str, int]:
        """The terms with positions: one product a pair and term, and the maps of the table."""
        terms, rows = len(config.pos_att_type), min(2 * length - 1, 2 * config.position_span)
        return {"attention.positions": terms * 2 * (pairs + layers * rows * config.hidden_size) * config.hidden_size}

    def parameters(self) -> list[Parameter]:
        config, size = self.config, self.config.hidden_size
        parameters = super().parameters()
        if not config.share_att_key:
            for name, term in (("position_key", CONTENT_TO_POSITION), ("position_query", POSITION_TO_CONTENT)):
                parameters += linear_parameters(name, size, size, True) if term in config.pos_att_type else []
        return parameters

    def score_bias(self, q: Array, k: Array, scope: Scope, context: AttentionContext) -> Array | None:
        config, length = self.config, q.shape[2]
        if k.shape[2] != length:
            raise InputError("disentangled attention has no memory of earlier tokens")
        table = scope.dropout(context.bias, "position_dropout", config.hidden_dropout, for_all_rows=True)
        first, last, index = self.rows_for(length, namespace(q))
        rows = table[first:last]  # [R, H]
        keys, queries = self.position_vectors(rows, scope)
        scope.save("rows", (first, last, table.shape))
        return scope.run("relative_scores", "relative", q, k, keys, queries, index, self.scale)

    def rows_for(self, length: Any, xp: Any) -> tuple[int, int, Array]:
        """`bucket_rows` of a length; where it is unknown, those of the longest row, and the part of their index."""
        buckets, furthest, longest = self.config.position_buckets, self.config.furthest, self.config.max_length
        if isinstance(length, int):
            return bucket_rows(length, buckets, furthest)
        first, last, index = bucket_rows(longest, buckets, furthest)
        return first, last, xp.array(index)[longest - length : longest + length - 1]

    def position_vectors(self, rows: Array, scope: Scope) -> tuple[Array | None, Array | None]:
        """Keys and queries of the distances, [R, heads, d] each; None where their term is left out."""
        config, shape = self.config, (rows.shape[0], self.heads, self.config.head_size)
        if config.share_att_key:
            both = scope.linear(rows, "qkv_of_positions", "qkv")  # [R, 3H]
            queries, keys = (both[:, i * config.hidden_size : (i + 1) * config.hidden_size] for i in (0, 1))
        wanted = [term in config.pos_att_type for term in TERMS]
        if not config.share_att_key:
            keys = scope.linear(rows, "position_key") if wanted[0] else None
            queries = scope.linear(rows, "position_query") if wanted[1] else None
        return keys.reshape(shape) if wanted[0] else None, queries.reshape(shape) if wanted[1] else None

    def score_bias_backward(
        self, dbias: Array, scope: Scope, context: AttentionContext
    ) -> tuple[Array | None, Array | None]:
        dq, dk, dkeys, dqueries = scope.run_backward("relative", dbias)
        first, last, shape = scope.saved("rows")
        drows = self.position_vectors_backward(dkeys, dqueries, last - first, scope)
        dtable = namespace(drows).pad(drows, [(first, shape[0] - last), (0, 0)])
        scope.cache.accumulate(context.bias_name, scope.dropout_backward(dtable, "position_dropout"), ())
        return dq, dk

    def position_vectors_backward(self, dkeys: Array | None, dqueries: Array | None, rows: int, scope: Scope) -> Array:
        size = self.config.hidden_size
        parts = [None if d is None else d.reshape(rows, size) for d in (dqueries, dkeys)]
        if not self.config.share_att_key:
            found = [
                scope.linear_backward(d, name)
                for d, name in zip(parts, ("position_query", "position_key"), strict=True)
                if d is not None
            ]
            return found[0] if len(found) == 1 else found[0] + found[1]
        given: Array = next(d for d in parts if d is not None)
        nothing = namespace(given).zeros_like(given)
        dboth = namespace(given).concatenate([nothing if d is None else d for d in (*parts, None)], -1)  # [R, 3H]
        return scope.linear_backward(dboth, "qkv_of_positions", "qkv")
