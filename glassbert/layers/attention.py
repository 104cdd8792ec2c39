"""The attention layer: queries, keys and values from one linear map, attention, and an output map.

q, k, v = heads(x Wᵀ + b)            [B, T, H] -> three times [B, heads, T, d]
q, k = rotary(q), rotary(k)          where positions are rotary
output = merge(attention(q, k, v)) Wᵀ + b
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.layers.registry import ATTENTIONS
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.ops.attention import AttentionPattern, attention_weights, join_heads, split_heads

# In `Batch.more`, of an encoder with a query stream: the positions [B, P] that it predicts, -1 where there is none.
QUERIES = "queries"
DENSE_LENGTH = 256  # up to this length keeping all weights is faster than computing them twice


class AttentionContext(NamedTuple):
    """What an attention layer is given besides the hidden states.

    pattern    which keys a query attends to
    rotary     cos and sin of the rotary angles, [B or 1, T, 1, d/2] each
    bias       a term added to the scores, [B or 1, heads or 1, Tq, Tk], or what the attention makes it of
    bias_name  the name under which the gradient of the bias is accumulated
    memory     what the attention keeps of earlier tokens, keys and values [B, heads, M, d]; it gets no gradient
    states     what keys and values are made of, [B, T, H], where it is not what queries are made of
    states_name  the name under which the gradient of `states` is accumulated
    batch      all inputs of the pass, for an attention that reads more of them
    last       whether this is the last layer, so that nobody reads tokens which are not in the output
    rows       in the last layer: the tokens that are read, as indices [M] into [B · T]; None: all of them
    """

    pattern: AttentionPattern
    rotary: tuple[Array, Array] | None = None
    bias: Array | None = None
    bias_name: str = ""
    memory: tuple[Array, ...] | None = None
    states: Array | None = None
    states_name: str = ""
    batch: Any = None
    last: bool = False
    rows: Array | None = None


@ATTENTIONS.register("self")
class SelfAttention:
    """Multi-head self-attention. A variant overrides `score_bias` and `score_bias_backward`, or all of it.

    memory_names        the values that make up the memory of a next pass, in which tokens are on the axis `memory_axis`
    masks_with_memory   whether padding and packed documents may be given together with a memory
    leaves_out_padding  whether the real tokens of a batch may be computed as one packed row
    inputs              the names of inputs that only this attention reads; `more_inputs` checks them
    """

    memory_names: tuple[str, ...] = ("k", "v")
    memory_axis = 2
    masks_with_memory = False
    leaves_out_padding = True
    inputs: tuple[str, ...] = ()

    def __init__(self, config: Any):
        self.config = config
        self.heads = config.num_attention_heads
        self.scale: float | None = config.attention_scale

    def parameters(self) -> list[Parameter]:
        size, bias = self.config.hidden_size, self.config.attention_bias
        return [
            *linear_parameters("qkv", size, 3 * size, bias),
            *linear_parameters("output", size, size, bias, "output"),
        ]

    def project(self, x: Array, scope: Scope, context: AttentionContext) -> tuple[Array, Array, Array]:
        """Queries, keys and values, [B, T, heads, d] each."""
        if context.states is None:
            return split_heads(scope.linear(x, "qkv"), self.heads)
        q, _, _ = split_heads(scope.linear(x, "qkv"), self.heads)
        _, k, v = split_heads(scope.linear(context.states, "qkv_of_states", "qkv"), self.heads)
        return q, k, v

    def project_backward(self, dq: Array, dk: Array, dv: Array, scope: Scope, context: AttentionContext) -> Array:
        if context.states is None:
            return scope.linear_backward(join_qkv(scope, dq, dk, dv), "qkv")
        nothing = namespace(dq).zeros_like(dq)
        dstates = scope.linear_backward(join_qkv(scope, nothing, dk, dv), "qkv_of_states", "qkv")
        scope.cache.accumulate(context.states_name, dstates)
        return scope.linear_backward(join_qkv(scope, dq, nothing, nothing), "qkv")

    @classmethod
    def memory_shape(cls, config: Any, rows: int, length: Any) -> tuple[Any, ...]:
        """The shape of each array of a memory of `length` tokens."""
        return (rows, config.num_attention_heads, length, config.head_size)

    @classmethod
    def more_inputs(
        cls, config: Any, head: str | None, given: Mapping[str, Any], checked: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """The checked arrays of `inputs`, with defaults for a model with this head; `checked` has all others.

        They are in `context.batch.more` under the names of the result.
        """
        return {}

    @classmethod
    def inputs_for_missing(cls, missing: np.ndarray) -> dict[str, np.ndarray]:
        """Inputs with which the tokens where `missing` [B, T] is true are predicted; a mask token may be enough."""
        return {}

    @classmethod
    def full_inputs(cls, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Inputs with which every parameter of the attention takes part, for a test of a model with ids [B, T]."""
        return {}

    @classmethod
    def more_flops(cls, config: Any, batch: int, length: int, layers: int, pairs: int) -> dict[str, int]:
        """Operations of all layers besides queries, keys, values, scores, context and output, by name.

        `pairs` is the number of pairs of a query and a key in all layers and rows.
        """
        return {}

    @classmethod
    def more_numbers(cls, config: Any, length: int) -> float:
        """Numbers that one layer saves for every token, besides those of any attention."""
        return 0

    def score_bias(self, q: Array, k: Array, scope: Scope, context: AttentionContext) -> Array | None:
        """The term that is added to the scores; here that of the position scheme, if it has one."""
        return context.bias

    def score_bias_backward(
        self, dbias: Array, scope: Scope, context: AttentionContext
    ) -> tuple[Array | None, Array | None]:
        """Pass the gradient of the term on; returns what it adds to the gradients of q and k."""
        scope.cache.accumulate(context.bias_name, dbias)
        return None, None

    def forward(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        """Derivation: docs/derivations/11-block-and-model.md (11.5)."""
        scope.record("input", x)
        q, k, v = self.project(x, scope, context)
        if context.rotary is not None:
            q, k = (
                scope.run("rotary", "q_rotary", q, *context.rotary),
                scope.run("rotary", "k_rotary", k, *context.rotary),
            )
        q, k, v = heads_first(q), heads_first(k), heads_first(v)
        if context.memory is not None:
            xp = namespace(k)
            k, v = (xp.concatenate([old, new], 2) for old, new in zip(context.memory, (k, v), strict=True))
        q, k, v = (scope.store(name, x, token_axes=(2,)) for name, x in (("q", q), ("k", k), ("v", v)))
        bias = self.score_bias(q, k, scope, context)
        scope.save("has_bias", bias is not None)
        out = self.attend(q, k, v, bias, scope, context.pattern)
        merged = scope.record("merged", merge_heads(out))  # [B, T, H]
        merged = self.take_read(merged, scope, context)  # in the last layer perhaps [M, H]
        return scope.record("output", scope.linear(merged, "output"))

    def take_read(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        """[B, T, H] -> the tokens that the output has: all of them, or those of `context.rows`, [M, H]."""
        return x if context.rows is None else scope.run("take_rows", "read", x, context.rows)

    def take_read_backward(self, dx: Array, scope: Scope, context: AttentionContext) -> Array:
        """[M, H] -> [B, T, H]: a token that nobody reads has no gradient."""
        return dx if context.rows is None else scope.run_backward("read", dx)

    @property
    def selects_rows(self) -> bool:
        """Whether `forward` and `backward` know of `context.rows`; those of a subclass may not."""
        own = type(self)
        return own.forward is SelfAttention.forward and own.backward is SelfAttention.backward

    def weight_gradient(self, dcontext: Array, scope: Scope) -> Array:
        """The gradient of the weights, for the reader."""
        dweights = dcontext @ scope["v"].swapaxes(-1, -2)
        mask = scope.saved("dropout_mask")
        return dweights if mask is None else dweights * mask / (1.0 - self.config.attention_dropout)

    def keeps_weights(self, q: Array, pattern: AttentionPattern, rate: float) -> bool:
        """Whether all weights are computed at once and kept, or tile by tile."""
        return keeps_weights(q, pattern, rate)

    def attend(
        self, q: Array, k: Array, v: Array, bias: Array | None, scope: Scope, pattern: AttentionPattern
    ) -> Array:
        """The context [B, heads, T, d], by all weights at once or in tiles; the state is kept as "attention"."""
        rate, scale = self.config.attention_dropout if scope.dropout_source is not None else 0.0, self.scale
        if self.keeps_weights(q, pattern, rate):
            mask = None
            if rate > 0.0:
                shape = (*q.shape[:3], k.shape[2])
                mask = scope.dropout_source.mask(scope.name("dropout"), shape, rate)  # type: ignore[union-attr]
                scope.save("dropout_mask", mask)
            out = scope.run("attention", "attention", q, k, v, pattern, bias, scale, mask, rate)
        else:
            masks = tile_masks(scope, rate)
            out = scope.run("tiled_attention", "attention", q, k, v, pattern, bias, scale, masks, rate)
        scope.compute_later("weights", lambda: attention_weights(q, k, pattern, bias, scale), token_axes=(2, 3))
        return scope.store("context", out, token_axes=(2,))

    def backward(self, dy: Array, scope: Scope, context: AttentionContext) -> Array:
        """`forward` from its last line to its first. Derivation: docs/derivations/11-block-and-model.md (11.6)."""
        scope.record("d_output", dy)
        dmerged = self.take_read_backward(scope.linear_backward(dy, "output"), scope, context)
        batch, length, width = dmerged.shape
        dcontext = heads_first(dmerged.reshape(batch, length, self.heads, width // self.heads))
        scope.record("d_context", dcontext, token_axes=(2,))
        dq, dk, dv, dbias = scope.run_backward("attention", dcontext)
        if scope.cache.trace:
            scope.record("d_weights", self.weight_gradient(dcontext, scope), token_axes=(2, 3))
        if scope.saved("has_bias"):
            more_q, more_k = self.score_bias_backward(dbias, scope, context)
            dq = dq if more_q is None else dq + more_q
            dk = dk if more_k is None else dk + more_k
        if context.memory is not None:
            past = context.memory[0].shape[2]
            dk, dv = dk[:, :, past:], dv[:, :, past:]
        for name, value in (("d_q", dq), ("d_k", dk), ("d_v", dv)):
            scope.record(name, value, token_axes=(2,))
        dq, dk, dv = heads_first(dq), heads_first(dk), heads_first(dv)
        if context.rotary is not None:
            dq, dk = scope.run_backward("q_rotary", dq), scope.run_backward("k_rotary", dk)
        return scope.record("d_input", self.project_backward(dq, dk, dv, scope, context))


def heads_first(x: Array) -> Array:
    """[B, T, heads, d] -> [B, heads, T, d] and back, without copying."""
    return x.transpose(0, 2, 1, 3)


def merge_heads(x: Array) -> Array:
    """[B, heads, T, d] -> [B, T, H]"""
    batch, heads, length, size = x.shape
    return heads_first(x).reshape(batch, length, heads * size)


def join_qkv(scope: Scope, q: Array, k: Array, v: Array) -> Array:
    """Three times [B, T, heads, d] -> [B, T, 3H]: the inverse of `split_heads`."""
    joined: Array = scope.ops.own.get("join_heads", join_heads)(q, k, v)[0]  # no backward follows
    return joined


def keeps_weights(q: Array, pattern: AttentionPattern, rate: float) -> bool:
    """Short rows keep their weights; long, packed and fused ones compute them again in the backward."""
    if is_numpy(q):
        return q.shape[2] <= DENSE_LENGTH and (pattern.segments is None or q.shape[2] <= DENSE_LENGTH // 2)
    return rate > 0.0  # MLX's fused kernel has no dropout


def tile_masks(scope: Scope, rate: float) -> Any:
    """Dropout masks of tiles: a function of the tile's position, so that the backward draws the same masks."""
    if rate == 0.0:
        return None
    source, name = scope.dropout_source, scope.name("dropout")

    def tile_mask(rows: slice, queries: slice, keys: slice, shape: tuple[int, ...]) -> Array:
        return source.mask(f"{name}.{queries.start}.{keys.start}", shape, rate, row=rows.start)  # type: ignore[union-attr]

    return tile_mask
