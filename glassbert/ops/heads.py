"""Queries, keys and values of all heads, side by side in one array.

    y[b, t] = [q[b, t], k[b, t], v[b, t]]          q, k, v [B, T, heads, d]; y [B, T, 3H], H = heads · d

One linear map makes all three, so its gradient is wanted side by side. The inverse takes them apart without copying.
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.registry import operation


@operation
def join_heads(q: Array, k: Array, v: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/05-attention.md (5.15)."""
    batch, length, heads, size = q.shape
    return namespace(q).stack([q, k, v], 2).reshape(batch, length, 3 * heads * size), heads


@operation
def join_heads_backward(dy: Array, heads: int) -> tuple[Array, Array, Array]:
    """Numbers that were only moved are moved back. Derivation: docs/derivations/05-attention.md (5.15)."""
    return split_heads(dy, heads)


def split_heads(qkv: Array, heads: int) -> tuple[Array, Array, Array]:
    """[B, T, 3H] -> q, k, v, each [B, T, heads, d], without copying."""
    batch, length, width = qkv.shape
    parts = qkv.reshape(batch, length, 3, heads, width // (3 * heads))
    return parts[:, :, 0:1].squeeze(2), parts[:, :, 1:2].squeeze(2), parts[:, :, 2:3].squeeze(2)  # MLX copies for [0]
