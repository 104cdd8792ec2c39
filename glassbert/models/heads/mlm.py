"""The heads of language models: masked words, and the next word.

Training scores only the rows that have a target; with masked words this doubles the speed of a step. The last layer of
the encoder computes only these rows, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import ConfigError
from glassbert.layers.scope import Parameter, Scope
from glassbert.models.heads.head import TransformedHead, integer_labels
from glassbert.ops import IGNORED


class MaskedLanguageHead(TransformedHead):
    """Scores for the whole vocabulary; the decoder weight may be tied to the token embeddings."""

    kind = "mlm"
    uses_mask_decoder = True
    decodes = True
    scored_share = 0.15
    donates_output = True

    @property
    def transformed(self) -> bool:
        return self.config.head_transform

    @property
    def transform_size(self) -> int:
        return self.config.embedding_width

    @property
    def table(self) -> str:
        """The name of the decoder weight in the model."""
        return "embeddings.token" if self.config.tie_word_embeddings else "head.decoder.weight"

    def parameters(self) -> list[Parameter]:
        config = self.config
        parameters = self.transform_parameters()
        if not config.tie_word_embeddings:
            width = self.transform_size if self.transformed else config.hidden_size
            parameters.append(Parameter("decoder.weight", (config.vocab_size, width), "weight"))
        if config.decoder_bias:
            parameters.append(Parameter("decoder.bias", (config.vocab_size,), "zeros"))
        return parameters

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        labels = integer_labels(labels, shape, self.config.vocab_size, "the vocabulary")
        rows = np.flatnonzero(labels.reshape(-1) != IGNORED)
        return {"rows": rows, "targets": labels.reshape(-1)[rows]}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        taken = rows is None or hidden.ndim == 2  # nothing is to be taken, or the encoder did so
        x = hidden if taken else scope.run("take_rows", "rows", hidden, rows)  # [B, T, H] or [M, H]
        scope.save("taken", taken)
        if self.transformed:
            x = self.transform(x, scope)
        weight, bias = scope.without_prefix().parameter(self.table), scope.optional("decoder.bias")
        return scope.record("logits", scope.run("linear", "decoder", x, weight, bias))

    def backward(self, doutput: Array, scope: Scope) -> Array:
        """Derivation: docs/derivations/11-block-and-model.md (11.13)."""
        scope.record("d_logits", doutput)
        table, bias = scope.without_prefix().full_name(self.table), scope.full_name("decoder.bias")
        buffers = (scope.gradients.buffer_for(table), None)
        if scope.optional("decoder.bias") is not None:
            buffers = (buffers[0], scope.gradients.buffer_for(bias))
        dx, dtable, dbias = scope.run_backward("decoder", doutput, out=buffers)
        scope.gradients.add(table, dtable)
        scope.add("decoder.bias", dbias)
        if self.transformed:
            dx = self.transform_backward(dx, scope)
        return dx if scope.saved("taken") else scope.run_backward("rows", dx)

    def rows_read(self, batch: Any, rows: Array | None) -> Array | None:
        return rows if type(self).forward is MaskedLanguageHead.forward else None

    @classmethod
    def tokens_read(cls, config: Any, batch: int, length: int, scored_rows: int | None) -> int:
        return batch * length if scored_rows is None else scored_rows

    @classmethod
    def flops(
        cls, config: Any, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        rows, size = cls.tokens_read(config, batch, length, scored_rows), config.hidden_size
        width = config.embedding_width if config.tie_word_embeddings or config.head_transform else size
        transform = {"head.transform": 2 * rows * size * width} if config.head_transform else {}
        return {**transform, "head.decoder": 2 * rows * width * config.vocab_size}


class CausalLanguageHead(MaskedLanguageHead):
    """The next token: the scores at token t are for the label of token t + 1.

    Labels are given where their token is, as in transformers: labels = input_ids trains on every token but the first.
    A label of -100 at the first token of a packed document keeps the document before from predicting it.
    """

    kind = "causal"
    fits = {"causal": True}  # noqa: RUF012
    scored_share = 1.0

    def __init__(self, config: Any, *options: Any, **more: Any):
        super().__init__(config, *options, **more)
        if not config.causal:
            raise ConfigError(
                "a causal head predicts the next token, which this encoder attends to; give a config with causal=True"
            )

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        labels = integer_labels(labels, shape, self.config.vocab_size, "the vocabulary")
        nothing = np.full((shape[0], 1), IGNORED, labels.dtype)
        return super().prepare_labels(np.concatenate([labels[:, 1:], nothing], 1), shape)
