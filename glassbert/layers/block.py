"""The transformer block: attention, then feed-forward, each a branch that is added to its input.

post-norm (BERT):         x = norm(x + attention(x));      x = norm(x + ffn(x))
pre-norm (ModernBERT):    x = x + attention(norm(x));      x = x + ffn(norm(x))

A sum passes its gradient unchanged to both terms. Where x went two ways, the two gradients add up.

Attention mixes tokens; all else computes every token by itself. So the last block computes everything after its
attention only for the tokens that are read (`take_read`): the masked ones of a language model, the first of a
classifier. The results are the same.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array
from glassbert.layers.attention import AttentionContext
from glassbert.layers.registry import ATTENTIONS, BLOCKS, FEED_FORWARDS
from glassbert.layers.scope import Parameter, Scope, norm_parameters, with_prefix


class Block:
    """What both kinds of blocks share: an attention and a feed-forward layer, chosen by the config."""

    def __init__(self, config: Any, index: int):
        self.config, self.index = config, index
        self.attention = ATTENTIONS[config.attention](config)
        self.ffn = FEED_FORWARDS[config.feed_forward](config)
        self.eps, self.rate = config.layer_norm_eps, config.hidden_dropout
        self.first_norm = not (index == 0 and config.skip_first_norm)

    @property
    def selects_rows(self) -> bool:
        """Whether its passes know of `context.rows`; those of a subclass may not."""
        return type(self) in (PostNormBlock, PreNormBlock) and self.attention.selects_rows

    def parameters(self) -> list[Parameter]:
        norms = norm_parameters("norm", self.config.hidden_size, self.config.norm_bias)
        return [
            *with_prefix("attention", self.attention.parameters()),
            *(with_prefix("attention", norms) if self.first_norm else []),
            *with_prefix("ffn", self.ffn.parameters()),
            *with_prefix("ffn", norms),
        ]


@BLOCKS.register("post")
class PostNormBlock(Block):
    def forward(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        """Derivation: docs/derivations/11-block-and-model.md (11.7)."""
        scope.record("input", x)
        attention, ffn = scope.inside("attention"), scope.inside("ffn")
        branch = attention.dropout(self.attention.forward(x, attention, context), "output_dropout", self.rate)
        x = self.attention.take_read(x, scope, context)
        x = attention.norm(x + branch, "norm", self.eps, donate=True)
        branch = ffn.dropout(self.ffn.forward(x, ffn), "output_dropout", self.rate)
        x = ffn.norm(x + branch, "norm", self.eps, donate=True)
        return scope.record("output", x)

    def backward(self, dx: Array, scope: Scope, context: AttentionContext) -> Array:
        """`forward` from its last line to its first. Derivation: docs/derivations/11-block-and-model.md (11.8)."""
        scope.record("d_output", dx)
        attention, ffn = scope.inside("attention"), scope.inside("ffn")
        dsum = ffn.norm_backward(dx, "norm")
        dx = dsum + self.ffn.backward(ffn.dropout_backward(dsum, "output_dropout"), ffn)
        dsum = attention.norm_backward(dx, "norm")
        dbranch = attention.dropout_backward(dsum, "output_dropout")
        dx = self.attention.take_read_backward(dsum, scope, context)
        dx = dx + self.attention.backward(dbranch, attention, context)
        return scope.record("d_input", dx)


@BLOCKS.register("pre")
class PreNormBlock(Block):
    def forward(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        """Derivation: docs/derivations/11-block-and-model.md (11.1), (11.9)."""
        scope.record("input", x)
        attention, ffn = scope.inside("attention"), scope.inside("ffn")
        normed = attention.norm(x, "norm", self.eps) if self.first_norm else x
        branch = self.attention.forward(normed, attention, context)
        x = self.attention.take_read(x, scope, context) + attention.dropout(branch, "output_dropout", self.rate)
        branch = self.ffn.forward(ffn.norm(x, "norm", self.eps), ffn)
        x = x + ffn.dropout(branch, "output_dropout", self.rate)
        return scope.record("output", x)

    def backward(self, dx: Array, scope: Scope, context: AttentionContext) -> Array:
        """`forward` from its last line to its first.

        Derivation: docs/derivations/11-block-and-model.md (11.2), (11.10)
        """
        scope.record("d_output", dx)
        attention, ffn = scope.inside("attention"), scope.inside("ffn")
        dnormed = self.ffn.backward(ffn.dropout_backward(dx, "output_dropout"), ffn)
        dx = ffn.norm_backward(dnormed, "norm", residual=dx)
        dbranch = attention.dropout_backward(dx, "output_dropout")
        dnormed = self.attention.backward(dbranch, attention, context)
        dx = self.attention.take_read_backward(dx, scope, context)
        dx = attention.norm_backward(dnormed, "norm", residual=dx) if self.first_norm else dx + dnormed
        return scope.record("d_input", dx)
