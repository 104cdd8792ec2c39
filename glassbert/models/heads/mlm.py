"""The masked language model, which scores only the rows that were masked: most of what makes training fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.layers.parameters import Parameter
from glassbert.layers.scope import Scope
from glassbert.models.heads.labels import integer_labels
from glassbert.models.heads.transform import TransformedHead
from glassbert.ops import IGNORED, linear, linear_backward, take_rows, take_rows_backward


class MaskedLanguageHead(TransformedHead):
    """Which word was here? A score for every entry of the vocabulary, by a table that may be the embeddings' own."""

    kind = "mlm"

    @property
    def transformed(self) -> bool:  # type: ignore[override]
        return self.config.head_transform

    @property
    def table(self) -> str:
        return "embeddings.token" if self.config.tie_word_embeddings else "head.decoder.weight"

    def parameters(self) -> list[Parameter]:
        config = self.config
        parameters = self.transform_parameters()
        if not config.tie_word_embeddings:
            parameters.append(Parameter("decoder.weight", (config.vocab_size, config.hidden_size), "weight"))
        if config.decoder_bias:
            parameters.append(Parameter("decoder.bias", (config.vocab_size,), "zeros"))
        return parameters

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        labels = integer_labels(labels, shape, self.config.vocab_size, "the vocabulary")
        rows = np.flatnonzero(labels.reshape(-1) != IGNORED)
        return {"rows": rows, "targets": labels.reshape(-1)[rows]}

    def forward(self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None) -> Array:
        at.keep("rows", rows)
        at.keep("shape", hidden.shape)
        x = hidden if rows is None else take_rows(hidden, rows)  # [B, T, H] or [M, H]
        x = at.keep("decoder.x", self.transform(x, at))
        return at.note("logits", linear(x, at.parameters[self.table], at.optional("decoder.bias")))

    def backward(self, doutput: Array, at: Scope) -> Array:
        assert at.gradients is not None
        at.note("d_logits", doutput)
        has_bias = at.optional("decoder.bias") is not None
        places = (at.gradients.place(self.table), at.place("decoder.bias") if has_bias else None)
        dx, dtable, dbias = linear_backward(doutput, at["decoder.x"], at.parameters[self.table], has_bias, places)
        at.gradients.add(self.table, dtable)
        at.add("decoder.bias", dbias)
        dx = self.transform_backward(dx, at)
        return dx if at["rows"] is None else take_rows_backward(dx, at["rows"], at["shape"])
