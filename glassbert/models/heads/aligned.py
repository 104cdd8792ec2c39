"""The head for pairs of texts that compares them word by word.

The two texts of a row are two segments (`segment_ids` 1 and 2), which do not attend to each other in the encoder. Every
token looks for its counterpart in the other text, and is compared with it:

    u = x / |x|                                       [B, T, H]
    a_i = Σ_j softmax_j(SHARPNESS · u_i · u_j) x_j    over the tokens j of the other text
    c_i = [|x_i - a_i|, x_i · a_i]                    [B, T, 2 H]
    f = [mean of c over text 1, mean over text 2]     [B, 4 H]
    logits = classifier(norm(activation(f Wᵀ + b)))   [B, outputs]

A small encoder has to learn from the examples which words of two texts belong together, if both are one sequence. Here
it knows from the start: equal words have equal vectors.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.errors import InputError
from glassbert.layers.scope import Parameter, Scope, linear_parameters, norm_parameters
from glassbert.models.heads.sequence import SequenceHead
from glassbert.ops import AttentionPattern

SHARPNESS = 10.0


class AlignedHead(SequenceHead):
    """A label, several labels, a rank or numbers for a pair of texts."""

    kind = "aligned"
    pools = False
    reads_segments = True

    def parameters(self) -> list[Parameter]:
        size = self.config.hidden_size
        return [
            *linear_parameters("combine", 4 * size, size, True),
            *norm_parameters("norm", size, True),
            *linear_parameters("classifier", size, self.outputs, True),
        ]

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        texts = [self._tokens_of(text, batch) for text in (1, 2)]  # [B, T] each
        xp = namespace(hidden)
        compared = self.compare(hidden, texts, scope)  # [B, T, 2H]
        means = [scope.run("mean_pool", f"mean.{i}", compared, text) for i, text in enumerate(texts)]
        features = scope.record("features", xp.concatenate(means, -1))  # [B, 4H]
        x = scope.run(self.config.activation, "activation", scope.linear(features, "combine"))
        x = scope.dropout(scope.norm(x, "norm", self.config.layer_norm_eps), "dropout", self.dropout)
        return scope.record("logits", scope.linear(x, "classifier"))  # [B, outputs]

    @classmethod
    def tokens_read(cls, config: Any, batch: int, length: int, scored_rows: int | None) -> int:
        return batch * length

    @classmethod
    def flops(
        cls, config: Any, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        size = config.hidden_size
        return {"head.combine": 2 * batch * 4 * size * size, "head.classifier": 2 * batch * size * num_labels}

    def backward(self, doutput: Array, scope: Scope) -> Array:
        scope.record("d_logits", doutput)
        dx = scope.dropout_backward(scope.linear_backward(doutput, "classifier"), "dropout")
        dx = scope.run_backward("activation", scope.norm_backward(dx, "norm"))
        dfeatures = scope.record("d_features", scope.linear_backward(dx, "combine"))
        size = dfeatures.shape[-1] // 2
        parts = [scope.run_backward(f"mean.{i}", dfeatures[:, i * size : (i + 1) * size]) for i in (0, 1)]
        return self.compare_backward(parts[0] + parts[1], scope)

    def compare(self, hidden: Array, texts: list[Array], scope: Scope) -> Array:
        """Every token with its counterpart in the other text, [B, T, 2H]."""
        first, second = texts
        other = (first[:, :, None] & second[:, None]) | (second[:, :, None] & first[:, None])  # [B, T, T]
        unit = scope.run("unit_length", "unit", hidden).astype(hidden.dtype)[:, None]  # [B, 1, T, H]
        pattern = AttentionPattern(mask=other)
        aligned = scope.run("attention", "align", unit, unit, hidden[:, None], pattern, scale=SHARPNESS)
        return scope.run("compare", "compare", hidden, scope.record("aligned", aligned[:, 0]))

    def compare_backward(self, dcompared: Array, scope: Scope) -> Array:
        """Hidden states are compared, are counterparts, and decide by their directions which tokens belong together."""
        dx, daligned = scope.run_backward("compare", dcompared)
        dquery, dkey, dvalue, _ = scope.run_backward("align", daligned[:, None])
        dunit = scope.run_backward("unit", (dquery + dkey)[:, 0])
        return dx + dvalue[:, 0] + dunit.astype(dx.dtype)

    @staticmethod
    def _tokens_of(text: int, batch: Any) -> Array:
        if batch.segments is None:
            raise InputError("this head compares two texts: give segment_ids, 1 in the first text and 2 in the second")
        here = batch.segments == text
        return here if batch.mask is None else here & (batch.mask != 0)
