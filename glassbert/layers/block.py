"""The transformer block: attention, then feed-forward, each a branch beside the residual stream.

post-norm (BERT):         x = norm(x + attention(x));      x = norm(x + ffn(x))
pre-norm (ModernBERT):    x = x + attention(norm(x));      x = x + ffn(norm(x))
"""

from __future__ import annotations

from typing import Any

from glassbert.engines.namespace import Array
from glassbert.layers.attention import Sight, attention_parameters, self_attention, self_attention_backward
from glassbert.layers.basics import drop, drop_backward, norm, norm_backward
from glassbert.layers.feed_forward import feed_forward, feed_forward_backward, feed_forward_parameters
from glassbert.layers.parameters import Parameter, inside, norm_parameters
from glassbert.layers.scope import Scope
from glassbert.ops import residual, residual_backward


def block_parameters(config: Any, index: int) -> list[Parameter]:
    norms = norm_parameters("norm", config.hidden_size, config.norm_bias)
    return [
        *inside("attention", attention_parameters(config)),
        *([] if index == 0 and config.skip_first_norm else inside("attention", norms)),
        *inside("ffn", feed_forward_parameters(config)),
        *inside("ffn", norms),
    ]


def block(x: Array, at: Scope, config: Any, sight: Sight, source: Any) -> Array:
    at.note("input", x)
    attention, ffn = at.inside("attention"), at.inside("ffn")
    eps, rate = config.layer_norm_eps, config.hidden_dropout
    reuse = not at.cache.trace  # nobody will look at a branch again: the sum may take its place, and x̂ the sum's
    if config.norm_position == "post":
        branch = drop(self_attention(x, attention, config, sight, source), attention, "output_dropout", rate, source)
        x = norm(residual(x, branch, reuse), attention, "norm", eps, reuse)
        branch = drop(feed_forward(x, ffn, config, source), ffn, "output_dropout", rate, source)
        x = norm(residual(x, branch, reuse), ffn, "norm", eps, reuse)
    else:
        first = attention.optional("norm.weight") is None
        normed = x if first else norm(x, attention, "norm", eps)
        branch = self_attention(normed, attention, config, sight, source)
        x = residual(x, drop(branch, attention, "output_dropout", rate, source), reuse)
        branch = feed_forward(norm(x, ffn, "norm", eps), ffn, config, source)
        x = residual(x, drop(branch, ffn, "output_dropout", rate, source), reuse)
    return at.note("output", x)


def join(dx: Array, dbranch: Array, at: Scope) -> Array:
    """Where the stream forked, the gradients of both ways add up. The branch's own array takes the sum."""
    if at.cache.trace:  # there, somebody may still look at it
        return dx + dbranch
    dbranch += dx
    return dbranch


def block_backward(dx: Array, at: Scope, config: Any, sight: Sight, source: Any) -> Array:
    """`block`, read from the bottom up. Where the stream forked, the gradients of both ways meet and add up."""
    at.note("d_output", dx)
    attention, ffn = at.inside("attention"), at.inside("ffn")
    rate = config.hidden_dropout
    if config.norm_position == "post":
        dx, dbranch = residual_backward(norm_backward(dx, ffn, "norm"))
        dbranch = feed_forward_backward(drop_backward(dbranch, ffn, "output_dropout", rate), ffn, config)
        dx, dbranch = residual_backward(norm_backward(join(dx, dbranch, at), attention, "norm"))
        dbranch = drop_backward(dbranch, attention, "output_dropout", rate)
        dx = join(dx, self_attention_backward(dbranch, attention, config, sight, source), at)
    else:
        dx, dbranch = residual_backward(dx)
        dbranch = feed_forward_backward(drop_backward(dbranch, ffn, "output_dropout", rate), ffn, config)
        dx, dbranch = residual_backward(join(dx, norm_backward(dbranch, ffn, "norm"), at))
        dbranch = drop_backward(dbranch, attention, "output_dropout", rate)
        dbranch = self_attention_backward(dbranch, attention, config, sight, source)
        first = attention.optional("norm.weight") is None
        dx = join(dx, dbranch if first else norm_backward(dbranch, attention, "norm"), at)
    return at.note("d_input", dx)
