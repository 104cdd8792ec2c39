"""The head of discriminators: was this token replaced by another one?"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.layers.scope import Parameter, Scope, linear_parameters, norm_parameters
from glassbert.models.heads.head import Head, integer_labels


class DiscriminatorHead(Head):
    """One score for every token, the logit of "replaced":

        logits = act(hidden Wᵀ + b) vᵀ + c          [B, T, H] -> [B, T]

    Labels are 1 where a token was replaced, 0 where it is the original and -100 where it does not count. DeBERTa has a
    norm after the activation (`discriminator_norm`).
    """

    kind = "discriminator"
    losses = ("binary_cross_entropy",)
    scores_tokens = True

    def parameters(self) -> list[Parameter]:
        size = self.config.hidden_size
        return [
            *linear_parameters("transform", size, size, True),
            *(norm_parameters("norm", size, self.config.norm_bias) if self.config.discriminator_norm else []),
            *linear_parameters("classifier", size, 1, True),
        ]

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        return {"targets": integer_labels(labels, shape, 2, "the labels").astype(np.float64)}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        x = scope.record("transform.hidden", scope.linear(hidden, "transform"))
        x = scope.run(self.config.activation, "transform.activation", x)
        if self.config.discriminator_norm:
            x = scope.norm(x, "norm", self.config.layer_norm_eps)
        return scope.record("logits", scope.linear(x, "classifier").squeeze(-1))  # [B, T]

    def backward(self, doutput: Array, scope: Scope) -> Array:
        scope.record("d_logits", doutput)
        dx = scope.linear_backward(doutput[..., None], "classifier")
        if self.config.discriminator_norm:
            dx = scope.norm_backward(dx, "norm")
        return scope.linear_backward(scope.run_backward("transform.activation", dx), "transform")

    @classmethod
    def flops(
        cls, config: Any, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        tokens, size = batch * length, config.hidden_size
        return {"head.transform": 2 * tokens * size * size, "head.classifier": 2 * tokens * size}
