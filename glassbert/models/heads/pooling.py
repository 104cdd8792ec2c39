"""One vector for a sequence: pooling, BERT's pooler, and the head for sentence embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.errors import ConfigError, InputError
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.models.config import CHOICES, EncoderConfig
from glassbert.models.heads.head import Head, number_labels
from glassbert.ops import IGNORED

POOLINGS = {
    "cls": "cls_pool",
    "mean": "mean_pool",
    "max": "max_pool",
    "attention": "attention_pool",
    "last": "last_pool",
}


def with_pooling(config: EncoderConfig, pooling: str) -> EncoderConfig:
    """The config with another pooling. A pooler was trained on one token, so only that pooling goes through it.

    For [CLS] without BERT's pooler, give a config with `pooler=False`.
    """
    if pooling not in CHOICES["classifier_pooling"]:
        raise ConfigError(f"unknown pooling {pooling!r}; choose one of {', '.join(CHOICES['classifier_pooling'])}")
    return config.replace(classifier_pooling=pooling, pooler=config.pooler and pooling == config.classifier_pooling)


def pool_parameters(config: EncoderConfig, pooling: str) -> list[Parameter]:
    """The query of attention pooling; it is initialised with zeros, which gives the mean."""
    return [Parameter("pool.query", (config.hidden_size,), "zeros")] if pooling == "attention" else []


def pool(hidden: Array, mask: Array | None, scope: Scope, pooling: str) -> Array:
    """[B, T, H] -> [B, H]. Of the first tokens alone, [B, H], it makes sequences of one token."""
    hidden = hidden[:, None] if hidden.ndim == 2 else hidden
    query = (scope.parameter("pool.query"),) if pooling == "attention" else ()
    return scope.record("pooled", scope.run(POOLINGS[pooling], "pool", hidden, mask, *query))


def pool_backward(dy: Array, scope: Scope, pooling: str) -> Array:
    scope.record("d_pooled", dy)
    if pooling != "attention":
        return scope.run_backward("pool", dy)
    dx, dquery = scope.run_backward("pool", dy)
    scope.add("pool.query", dquery)
    return dx


def pooled_rows(batch: Any, pooling: str) -> Array | None:
    """The tokens that a pooling reads, as indices into [B · T]: the first of every sequence, or all (None)."""
    return namespace(batch.positions).arange(batch.size) * batch.outputs if pooling == "cls" else None


def pooler(x: Array, scope: Scope, config: EncoderConfig) -> Array:
    """BERT's dense layer before a classifier: tanh(x Wᵀ + b)."""
    outer = scope.without_prefix()  # the pooler belongs to the encoder
    hidden = outer.linear(outer.dropout(x, "pooler.dropout", config.pooler_dropout), "pooler")
    return outer.record("pooler.output", outer.run(config.pooler_activation, "pooler.activation", hidden))


def pooler_backward(dy: Array, scope: Scope) -> Array:
    outer = scope.without_prefix()  # the pooler belongs to the encoder
    outer.record("pooler.d_output", dy)
    dx = outer.linear_backward(outer.run_backward("pooler.activation", dy), "pooler")
    return outer.dropout_backward(dx, "pooler.dropout")


def pooler_parameters(config: EncoderConfig) -> list[Parameter]:
    return linear_parameters("pooler", config.hidden_size, config.hidden_size, True)


class EmbeddingHead(Head):
    """Sentence embeddings: the output is the pooled vector, and the loss compares pairs of rows (0 and 1, ...).

    Both rows of a pair have the same label: for the loss "cosine" their similarity in [-1, 1], for "contrastive" 1,
    with the rows of other pairs as negatives. For "ranking" it is a similarity in [-1, 1] too, of which only the order
    counts. A pair with the label -100 is ignored.
    """

    kind = "embedding"
    pairs = True
    losses = ("cosine", "contrastive", "ranking")
    takes_loss_options = True
    default_pooling = "mean"

    @property
    def pooling(self) -> str:
        return self.config.classifier_pooling

    def parameters(self) -> list[Parameter]:
        return pool_parameters(self.config, self.pooling)

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        rows = shape[0]
        if rows % 2:
            raise InputError(f"an embedding head is trained on pairs of rows, but {rows} rows are an odd number")
        numbers = number_labels(labels, rows, 1)[:, 0]
        targets, others = numbers[0::2], numbers[1::2]
        if (targets != others).any():
            pair = int(np.argmax(targets != others))
            raise InputError(f"rows {2 * pair} and {2 * pair + 1} are a pair, so they must have the same label")
        known = targets[targets != IGNORED]
        if self.loss_name == "contrastive" and (known != 1).any():
            raise InputError("a contrastive loss takes only pairs that belong together: labels must be 1 (or -100)")
        if known.size and np.abs(known).max() > 1:
            raise InputError(
                f"a cosine lies in [-1, 1], but a label is {known[np.argmax(np.abs(known))]:g}; scale the labels first"
            )
        return {"targets": targets}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        return scope.record("embedding", pool(hidden, batch.real_tokens, scope, self.pooling))  # [B, H]

    def rows_read(self, batch: Any, rows: Array | None) -> Array | None:
        return pooled_rows(batch, self.pooling) if type(self).forward is EmbeddingHead.forward else None

    @classmethod
    def tokens_read(cls, config: EncoderConfig, batch: int, length: int, scored_rows: int | None) -> int:
        return batch if config.classifier_pooling == "cls" else batch * length

    def backward(self, doutput: Array, scope: Scope) -> Array:
        return pool_backward(scope.record("d_embedding", doutput), scope, self.pooling)
