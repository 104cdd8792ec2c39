"""Sentence embeddings: the output is the pooled vector, and the loss compares the vectors of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import InputError
from glassbert.layers.scope import Parameter, Scope
from glassbert.models.heads.head import Head
from glassbert.models.heads.labels import number_labels
from glassbert.models.heads.pooling import pool, pool_backward, pool_parameters
from glassbert.ops import IGNORED


class EmbeddingHead(Head):
    """One vector a row. For the loss rows come in pairs: rows 0 and 1, rows 2 and 3, and so on.

    Both rows of a pair carry its label. "cosine": how similar they are, in [-1, 1]; "contrastive": 1, they belong
    together, and the partners of other pairs are wrong ones. A pair of the label -100 is left out.
    """

    kind = "embedding"
    pairs = True
    losses = ("cosine", "contrastive")
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
            raise InputError(f"an embedding head learns from pairs of rows, and {rows} rows are an odd number")
        numbers = number_labels(labels, rows, 1)[:, 0]
        targets, others = numbers[0::2], numbers[1::2]
        if (targets != others).any():
            pair = int(np.argmax(targets != others))
            raise InputError(f"rows {2 * pair} and {2 * pair + 1} are a pair, so they must carry the same label")
        known = targets[targets != IGNORED]
        if self.loss_name == "contrastive" and (known != 1).any():
            raise InputError("a contrastive loss learns from pairs that belong together: labels must be 1 (or -100)")
        if known.size and np.abs(known).max() > 1:
            raise InputError(
                f"a cosine lies in [-1, 1], and a label is {known[np.argmax(np.abs(known))]:g}; scale the labels first"
            )
        return {"targets": targets}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        return scope.record("embedding", pool(hidden, batch.real_tokens, scope, self.pooling))  # [B, H]

    def backward(self, doutput: Array, scope: Scope) -> Array:
        return pool_backward(scope.record("d_embedding", doutput), scope, self.pooling)
