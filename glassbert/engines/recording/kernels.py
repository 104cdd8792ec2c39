"""Kernels of the recording engine: where ONNX has one operator for an operation, it takes the place of several.

The state is that of the plain operation, and so is the backward. Nodes that only a state needs are left out of a graph
without gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.engines.kernels import register_in
from glassbert.ops.attention import FORBIDDEN, AttentionPattern, scale_of, whole
from glassbert.ops.registry import OPERATIONS, SUFFIX
from glassbert.ops.relative import by_distance
from glassbert.ops.relative_shift import relative_shift, relative_shift_backward

PLAIN: dict[str, Callable[..., Any]] = {}  # operations whose plain form cannot be recorded
FUSED: dict[str, Callable[..., Any]] = {}  # and those that ONNX has an operator for


@register_in(PLAIN)
def tiled_attention(
    q: Array, k: Array, v: Array, pattern: AttentionPattern, bias: Array | None = None, scale: float | None = None,
    masks: Any = None, rate: float = 0.0,
) -> tuple[Array, Any]:  # fmt: skip
    """Tiles are cut by numbers, and here lengths are unknown: all weights at once."""
    return OPERATIONS["attention"](q, k, v, pattern, bias, scale)


@register_in(PLAIN)
def tiled_attention_backward(dcontext: Array, state: Any) -> Any:
    return OPERATIONS["attention_backward"](dcontext, state)


@register_in(PLAIN)
def relative_scores(
    q: Array, k: Array, keys: Array | None, queries: Array | None, index: Array, scale: float
) -> tuple[Array, Any]:
    """The same with an index in place of the shift by a reshape, which is another one for rows of one token."""
    xp, length = namespace(q), q.shape[2]
    start = (length - 1 - xp.arange(length))[None]  # [1, T]
    total, tables = None, []
    for x, vectors, of_keys in ((q, keys, False), (k, queries, True)):
        table = state = None
        if vectors is not None:
            table = scale * by_distance(vectors, index)  # [heads, 2T - 1, d]
            table = table if of_keys else table[:, ::-1]
            scores, state = relative_shift(x @ table.swapaxes(-1, -2), start, length)
            scores = scores.swapaxes(-1, -2) if of_keys else scores
            total = scores if total is None else total + scores
        tables.append((table, state))
    rows = next(vectors.shape[0] for vectors in (keys, queries) if vectors is not None)
    return total, (q, k, tables, index, rows, scale)


@register_in(PLAIN)
def relative_scores_backward(dy: Array, state: Any) -> tuple[Array | None, ...]:
    q, k, tables, index, rows, scale = state
    xp = namespace(dy)
    contents: list[Array | None] = []
    vectors: list[Array | None] = []
    for x, (table, shifted), of_keys in ((q, tables[0], False), (k, tables[1], True)):
        if table is None:
            contents.append(None)
            vectors.append(None)
            continue
        dscores = relative_shift_backward(dy.swapaxes(-1, -2) if of_keys else dy, shifted)
        contents.append(dscores @ table)
        dtable = (dscores.swapaxes(-1, -2) @ x).sum(0)  # [heads, 2T - 1, d]
        dtable = (dtable if of_keys else dtable[:, ::-1]).transpose(1, 0, 2)
        vectors.append(scale * xp.zeros((rows, *dtable.shape[1:]), dtype=dtable.dtype).at[index].add(dtable))
    return *contents, *vectors


@register_in(FUSED)
def layer_norm(x: Array, gamma: Array, beta: Array | None, eps: float) -> tuple[Array, Any]:
    inputs = [x, gamma] if beta is None else [x, gamma, beta]
    y = x.graph.add("LayerNormalization", inputs, x.dtype, x.shape, axis=-1, epsilon=eps)
    return y, OPERATIONS["layer_norm"](x, gamma, beta, eps)[1]


@register_in(FUSED)
def gelu(x: Array) -> tuple[Array, Any]:
    return x.graph.add("Gelu", [x], x.dtype, x.shape), OPERATIONS["gelu"](x)[1]


@register_in(FUSED)
def gelu_tanh(x: Array) -> tuple[Array, Any]:
    y = x.graph.add("Gelu", [x], x.dtype, x.shape, approximate="tanh")
    return y, OPERATIONS["gelu_tanh"](x)[1]


@register_in(FUSED)
def attention(
    q: Array, k: Array, v: Array, pattern: AttentionPattern, bias: Array | None = None, scale: float | None = None,
    dropout_mask: Array | None = None, dropout_rate: float = 0.0,
) -> tuple[Array, Any]:  # fmt: skip
    """One softmax. A query without any key gets zeros: the context is set to zero, not every weight."""
    xp = namespace(q)
    scores = (q * scale_of(q, scale)) @ k.swapaxes(-1, -2)  # [B, heads, Tq, Tk]
    if bias is not None:
        scores = scores + bias
    allowed = pattern.allowed(xp, whole(q.shape[0]), whole(q.shape[2]), whole(k.shape[2]))
    if allowed is not None:
        scores = xp.where(allowed, scores, xp.array(FORBIDDEN, dtype=scores.dtype))
    context = xp.softmax(scores) @ v
    if allowed is not None:
        context = context * allowed.any(-1, keepdims=True)
    return context, OPERATIONS["attention"](q, k, v, pattern, bias, scale)[1]


@register_in(FUSED)
def geglu(x: Array, activation: str = "gelu") -> tuple[Array, Any]:
    half = x.shape[-1] // 2
    forward = FUSED.get(activation, OPERATIONS[activation])
    return forward(x[..., :half])[0] * x[..., half:], OPERATIONS["geglu"](x, activation)[1]


FUSED.update({name + SUFFIX: OPERATIONS[name + SUFFIX] for name in list(FUSED)})
FUSED = {**PLAIN, **FUSED, "tiled_attention": attention}
