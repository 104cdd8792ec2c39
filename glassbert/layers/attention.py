"""The attention layer: queries, keys and values from one linear map, attention, and a map back.

q, k, v = heads(x Wᵀ + b)            [B, T, H] -> three times [B, heads, T, d]
q, k = rotary(q), rotary(k)          where positions are rotary
output = merge(attention(q, k, v)) Wᵀ + b
"""

from __future__ import annotations

from typing import Any, NamedTuple

from glassbert.engines.namespace import Array, is_numpy, namespace
from glassbert.layers.basics import dense, dense_backward
from glassbert.layers.parameters import Parameter, linear_parameters
from glassbert.layers.scope import Scope
from glassbert.ops import (
    AttentionPattern,
    attention,
    attention_backward,
    dropout_backward,
    rotary,
    rotary_backward,
    tiled_attention,
    tiled_attention_backward,
)
from glassbert.ops.attention import attention_weights

DENSE_LENGTH = 256  # up to here keeping all weights is faster than computing them twice


class Sight(NamedTuple):
    """What a layer needs to know about who may see whom, and where everybody stands."""

    pattern: AttentionPattern
    cos: Array | None = None  # rotary angles, [B or 1, T, 1, d/2]
    sin: Array | None = None


def attention_parameters(config: Any) -> list[Parameter]:
    size = config.hidden_size
    return [
        *linear_parameters("qkv", size, 3 * size, config.attention_bias),
        *linear_parameters("output", size, size, config.attention_bias, "output"),
    ]


def split_heads(qkv: Array, heads: int) -> tuple[Array, Array, Array]:
    """[B, T, 3H] -> q, k, v, each [B, T, heads, d], without copying."""
    batch, length, width = qkv.shape
    parts = qkv.reshape(batch, length, 3, heads, width // (3 * heads))
    return parts[:, :, 0:1].squeeze(2), parts[:, :, 1:2].squeeze(2), parts[:, :, 2:3].squeeze(2)  # MLX copies for [0]


def heads_first(x: Array) -> Array:
    """[B, T, heads, d] -> [B, heads, T, d] and back again, without copying."""
    return x.transpose(0, 2, 1, 3)


def merge_heads(x: Array) -> Array:
    """[B, heads, T, d] -> [B, T, H]"""
    batch, heads, length, size = x.shape
    return heads_first(x).reshape(batch, length, heads * size)


def join_qkv(q: Array, k: Array, v: Array) -> Array:
    """Three times [B, T, heads, d] -> [B, T, 3H]: the way back from `split_heads`."""
    batch, length, heads, size = q.shape
    shared = getattr(q, "base", None)  # a kernel may have written them side by side already
    if shared is not None and shared is k.base and shared is v.base and shared.shape == (batch, length, 3, heads, size):
        return shared.reshape(batch, length, 3 * heads * size)
    return namespace(q).stack([q, k, v], 2).reshape(batch, length, 3 * heads * size)


def keeps_weights(q: Array, pattern: AttentionPattern, rate: float) -> bool:
    """Short rows keep their weights; long, packed and fused ones compute them again in backward."""
    if is_numpy(q):
        return q.shape[2] <= DENSE_LENGTH and (pattern.segments is None or q.shape[2] <= DENSE_LENGTH // 2)
    return rate > 0.0  # MLX's fused kernel knows no dropout


def self_attention(x: Array, at: Scope, config: Any, sight: Sight, source: Any) -> Array:
    at.note("input", x)
    at.keep("x", x)
    q, k, v = split_heads(dense(x, at, "qkv"), config.num_attention_heads)
    if sight.cos is not None:
        q, k = rotary(q, sight.cos, sight.sin), rotary(k, sight.cos, sight.sin)
    q, k, v = (at.keep(name, heads_first(x)) for name, x in (("q", q), ("k", k), ("v", v)))
    rate = config.attention_dropout if source is not None else 0.0
    if keeps_weights(q, sight.pattern, rate):
        keep = None
        if rate > 0.0:
            shape = (q.shape[0], q.shape[1], q.shape[2], q.shape[2])
            keep = at.keep("dropout.keep", source.keep(at.name("dropout"), shape, rate))
        context, state = attention(q, k, v, sight.pattern, keep, rate, at.cache.forgets)
    else:
        context, state = tiled_attention(q, k, v, sight.pattern, _tile_dropout(at, source, rate), rate)
    at.keep("state", state)
    at.keep("context", context)
    at.promise("weights", lambda: attention_weights(q, k, sight.pattern))
    merged = at.keep("merged", merge_heads(context))  # [B, T, H]
    return at.note("output", dense(merged, at, "output"))


def self_attention_backward(dy: Array, at: Scope, config: Any, sight: Sight, source: Any) -> Array:
    at.note("d_output", dy)
    dmerged = dense_backward(dy, at["merged"], at, "output")
    batch, length, width = dmerged.shape
    heads = config.num_attention_heads
    dcontext = at.note("d_context", heads_first(dmerged.reshape(batch, length, heads, width // heads)))
    q, k, v = at["q"], at["k"], at["v"]
    rate = config.attention_dropout if source is not None else 0.0
    if keeps_weights(q, sight.pattern, rate):
        keep = at.cache.get(at.name("dropout.keep"))
        dq, dk, dv = attention_backward(dcontext, q, k, v, at["context"], at["state"], keep, rate)
    else:
        tiles = _tile_dropout(at, source, rate)
        dq, dk, dv = tiled_attention_backward(dcontext, q, k, v, at["context"], at["state"], sight.pattern, tiles, rate)
    if at.cache.trace:
        at.note(
            "d_weights", dropout_backward(dcontext @ v.swapaxes(-1, -2), at.cache.get(at.name("dropout.keep")), rate)
        )
    dq, dk, dv = (heads_first(at.note(name, x)) for name, x in (("d_q", dq), ("d_k", dk), ("d_v", dv)))
    if sight.cos is not None:
        dq, dk = rotary_backward(dq, sight.cos, sight.sin), rotary_backward(dk, sight.cos, sight.sin)
    return at.note("d_input", dense_backward(join_qkv(dq, dk, dv), at["x"], at, "qkv"))


def _tile_dropout(at: Scope, source: Any, rate: float) -> Any:
    """Masks for tiles: drawn from the tile's place, so that backward draws the same ones again."""
    if rate == 0.0:
        return None

    def keep_tile(rows: slice, queries: slice, keys: slice, shape: tuple[int, ...]) -> Array:
        place = f"{at.name('dropout')}.{queries.start}.{keys.start}"
        return source.keep(place, shape, rate, row=rows.start)

    return keep_tile
