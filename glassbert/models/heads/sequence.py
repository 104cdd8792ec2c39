"""Heads for whole sequences, and for pairs of sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import ConfigError, InputError
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.models.config import EncoderConfig
from glassbert.models.heads.head import TransformedHead, integer_labels, number_labels
from glassbert.models.heads.pooling import pool, pool_backward, pool_parameters, pooled_rows, pooler, pooler_backward
from glassbert.ops import IGNORED


class SequenceHead(TransformedHead):
    """A label, several labels, a rank or numbers for the whole sequence, depending on the loss."""

    kind = "sequence"
    pools = True
    labelled = True
    takes_loss_options = True
    losses = ("cross_entropy", "binary_cross_entropy", "mean_squared_error", "ordinal")

    @property
    def default_loss(self) -> str:
        return "mean_squared_error" if self.num_labels == 1 else "cross_entropy"

    @property
    def outputs(self) -> int:
        """The number of labels; K - 1 for K ranks."""
        if self.loss_name != "ordinal":
            return self.num_labels
        if self.num_labels < 2:
            raise ConfigError(f"an ordinal head needs num_labels (ranks) of at least 2, got {self.num_labels}")
        return self.num_labels - 1

    @property
    def pooling(self) -> str:
        return self.config.classifier_pooling

    @property
    def dropout(self) -> float:
        return self.config.classifier_dropout

    def parameters(self) -> list[Parameter]:
        classifier = linear_parameters("classifier", self.config.hidden_size, self.outputs, self.config.sequence_bias)
        return [*pool_parameters(self.config, self.pooling), *self.transform_parameters(), *classifier]

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if self.loss_name in ("cross_entropy", "ordinal"):
            return {"targets": integer_labels(labels, (shape[0],), self.num_labels, "the labels")}
        numbers = number_labels(labels, shape[0], self.num_labels)
        known = numbers != IGNORED
        if self.loss_name == "mean_squared_error":
            options = self.loss_options
            mean = 0.0 if options.target_mean is None else np.array(options.target_mean)
            scale = 1.0 if options.target_scale is None else np.array(options.target_scale)
            return {"targets": np.where(known, (numbers - mean) / scale, IGNORED)}
        if (known & ((numbers < 0) | (numbers > 1))).any():
            raise InputError("labels of a binary or multi-label head must lie in [0, 1] (or be -100, ignored)")
        return {"targets": numbers}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        pooled = pool(hidden, batch.real_tokens, scope, self.pooling)  # [B, H]
        if self.config.pooler:
            pooled = pooler(pooled, scope, self.config)
        x = scope.dropout(self.transform(pooled, scope), "dropout", self.dropout)
        return scope.record("logits", scope.linear(x, "classifier"))  # [B, outputs]

    def backward(self, doutput: Array, scope: Scope) -> Array:
        scope.record("d_logits", doutput)
        dx = scope.linear_backward(doutput, "classifier")
        dx = self.transform_backward(scope.dropout_backward(dx, "dropout"), scope)
        if self.config.pooler:
            dx = pooler_backward(dx, scope)
        return pool_backward(dx, scope, self.pooling)

    def rows_read(self, batch: Any, rows: Array | None) -> Array | None:
        return pooled_rows(batch, self.pooling) if type(self).forward is SequenceHead.forward else None

    @classmethod
    def tokens_read(cls, config: EncoderConfig, batch: int, length: int, scored_rows: int | None) -> int:
        return batch if config.classifier_pooling == "cls" else batch * length

    @classmethod
    def flops(
        cls, config: EncoderConfig, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        size = config.hidden_size
        dense = 2 * batch * size * size
        return {
            **({"pooler": dense} if config.pooler else {}),
            **({"head.transform": dense} if config.classifier_transform else {}),
            "head.classifier": 2 * batch * size * num_labels,
        }


class PairHead(SequenceHead):
    """BERT's second objective: whether two sentences belong together. Two scores from [CLS] through the pooler.

    Label 0 means yes: the second sentence follows the first, and (for sentence order) they are in this order.
    """

    kind = "pair"
    needs = ("pair_labels",)
    takes_loss_options = False
    pooling = "cls"
    dropout = 0.0

    def __init__(self, config: EncoderConfig):
        super().__init__(config, 2, "cross_entropy")
