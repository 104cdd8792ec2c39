"""The step before the scores that many heads begin with."""

from __future__ import annotations

from glassbert.engines.namespace import Array
from glassbert.layers.basics import dense, dense_backward, norm, norm_backward
from glassbert.layers.parameters import Parameter, linear_parameters, norm_parameters
from glassbert.layers.scope import Scope
from glassbert.models.heads.head import Head
from glassbert.ops import ACTIVATIONS


class TransformedHead(Head):
    """Heads that begin with dense, activation and norm: BERT's MLM head and all heads of ModernBERT."""

    transformed = True

    def transform_parameters(self) -> list[Parameter]:
        size = self.config.hidden_size
        if not self.transformed:
            return []
        return [
            *linear_parameters("transform", size, size, self.config.head_bias),
            *norm_parameters("norm", size, self.config.norm_bias),
        ]

    def transform(self, x: Array, at: Scope) -> Array:
        if not self.transformed:
            return x
        at.keep("transform.x", x)
        hidden = at.keep("transform.hidden", dense(x, at, "transform"))
        activated, cache = ACTIVATIONS[self.config.activation][0](hidden)
        at.keep("transform.cache", cache)
        return norm(activated, at, "norm", self.config.layer_norm_eps)

    def transform_backward(self, dx: Array, at: Scope) -> Array:
        if not self.transformed:
            return dx
        dx = norm_backward(dx, at, "norm")
        dx = ACTIVATIONS[self.config.activation][1](dx, at["transform.hidden"], at["transform.cache"])
        return dense_backward(dx, at["transform.x"], at, "transform")
