"""Heads that answer about tokens: a label for each, or where a span begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.namespace import Array, namespace
from glassbert.layers.basics import dense, dense_backward, drop, drop_backward
from glassbert.layers.parameters import Parameter, linear_parameters
from glassbert.layers.scope import Scope
from glassbert.models.heads.labels import integer_labels
from glassbert.models.heads.transform import TransformedHead

NOWHERE = -1e4  # the score of padding: never chosen, and a label that points there costs much, not infinitely much


class TokenHead(TransformedHead):
    """A label for every token."""

    kind = "token"
    labelled = True
    takes_loss_options = True

    @property
    def transformed(self) -> bool:  # type: ignore[override]
        return self.config.family == "modernbert"

    @property
    def dropout(self) -> float:
        return self.config.classifier_dropout

    def parameters(self) -> list[Parameter]:
        classifier = linear_parameters("classifier", self.config.hidden_size, self.num_labels, True)
        return [*self.transform_parameters(), *classifier]

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        return {"targets": integer_labels(labels, shape, self.num_labels, "the labels").reshape(-1)}

    def forward(self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None) -> Array:
        x = drop(self.transform(hidden, at), at, "dropout", self.dropout, source)
        at.keep("classifier.x", x)
        return at.note("logits", dense(x, at, "classifier"))

    def backward(self, doutput: Array, at: Scope) -> Array:
        at.note("d_logits", doutput)
        dx = dense_backward(doutput, at["classifier.x"], at, "classifier")
        return self.transform_backward(drop_backward(dx, at, "dropout", self.dropout), at)


class SpanHead(TokenHead):
    """Where does the answer begin, and where does it end? Two scores for every token, and a choice of one token each.

    The output is [B, 2, T], so that a row of scores is a choice among tokens; labels are [B, 2], the first and the last
    token of the span, counted from 0. Padding cannot be chosen. In transformers it can, and must be learned away: there
    the scores of real tokens are these, while the loss of a padded batch is a little higher.
    """

    kind = "span"
    labelled = False
    own_labels = 2
    takes_loss_options = False

    @property
    def dropout(self) -> float:
        """BERT's head for questions has none."""
        return self.config.classifier_dropout if self.config.family == "modernbert" else 0.0

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        return {"targets": integer_labels(labels, (shape[0], 2), shape[1], "the tokens").reshape(-1)}

    def forward(self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None) -> Array:
        scores = super().forward(hidden, mask, at, source).swapaxes(1, 2)
        if mask is None:
            return scores
        xp = namespace(scores)
        real = at.keep("real", (mask != 0)[:, None])  # [B, 1, T]
        return xp.where(real, scores, xp.array(NOWHERE, dtype=scores.dtype))

    def backward(self, doutput: Array, at: Scope) -> Array:
        real = at.cache.get(at.name("real"))
        return super().backward((doutput if real is None else doutput * real).swapaxes(1, 2), at)
