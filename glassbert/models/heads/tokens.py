"""Heads for tokens: a label for every token, or the first and last token of a span."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.models.heads.head import TransformedHead, integer_labels

PADDING_SCORE = (
    -1e4
)  # the score of padding: never chosen, and a label that points there costs much, not infinitely much


class TokenHead(TransformedHead):
    """A label for every token."""

    kind = "token"
    labelled = True
    takes_loss_options = True

    @property
    def dropout(self) -> float:
        return self.config.classifier_dropout

    def parameters(self) -> list[Parameter]:
        classifier = linear_parameters("classifier", self.config.hidden_size, self.num_labels, True)
        return [*self.transform_parameters(), *classifier]

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        return {"targets": integer_labels(labels, shape, self.num_labels, "the labels").reshape(-1)}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        x = scope.dropout(self.transform(hidden, scope), "dropout", self.dropout)
        return scope.record("logits", scope.linear(x, "classifier"))

    def backward(self, doutput: Array, scope: Scope) -> Array:
        scope.record("d_logits", doutput)
        dx = scope.linear_backward(doutput, "classifier")
        return self.transform_backward(scope.dropout_backward(dx, "dropout"), scope)

    @classmethod
    def flops(
        cls, config: Any, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        tokens, size = batch * length, config.hidden_size
        transform = {"head.transform": 2 * tokens * size * size} if config.classifier_transform else {}
        return {**transform, "head.classifier": 2 * tokens * size * num_labels}


class SpanHead(TokenHead):
    """The first and the last token of an answer span: two scores for every token.

    The output is [B, 2, T]: a softmax over the tokens for the first and for the last token. Labels are [B, 2], the
    positions of the two, from 0. The scores of padding are masked. transformers does not mask them: its scores of real
    tokens are the same, and its loss of a padded batch is slightly higher.
    """

    kind = "span"
    labelled = False
    own_labels = 2
    takes_loss_options = False

    @property
    def dropout(self) -> float:
        """0 for BERT, which has no dropout in this head."""
        return self.config.classifier_dropout if self.config.span_dropout else 0.0

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        return {"targets": integer_labels(labels, (shape[0], 2), shape[1], "the tokens").reshape(-1)}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        scores = super().forward(hidden, batch, scope).swapaxes(1, 2)
        mask = batch.real_tokens
        if mask is None:
            return scores
        xp = namespace(scores)
        real = (mask != 0)[:, None]  # [B, 1, T]
        scope.save("real", real)
        return xp.where(real, scores, xp.array(PADDING_SCORE, dtype=scores.dtype))

    def backward(self, doutput: Array, scope: Scope) -> Array:
        real = scope.saved("real")
        return super().backward((doutput if real is None else doutput * real).swapaxes(1, 2), scope)
