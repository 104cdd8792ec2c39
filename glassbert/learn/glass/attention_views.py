"""Attention and rotary positions as the glass shows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.learn.glass.described import Arrays, Described, LazyArrays, back, describes, formulas, heads
from glassbert.learn.glass.recorder import Node
from glassbert.ops.attention import attention_weights, scale_of, whole


@describes("attention", "tiled_attention")
def _attention(node: Node) -> Described:
    q, k, v, pattern, bias, scale = (*node.arguments, None, None)[:6]
    allowed = pattern.allowed(np, whole(q.shape[0]), whole(q.shape[2]), whole(k.shape[2]))
    pairs, has_back = (q.shape[2], k.shape[2]), node.dy is not None

    def masked(a: Arrays, scores: np.ndarray) -> np.ndarray:
        return scores if allowed is None else np.where(np.broadcast_to(allowed, (1, *scores.shape))[0], scores, -np.inf)

    def maximum(a: Arrays) -> np.ndarray:
        found = masked(a, a["scores"]).max(-1)
        return np.where(np.isfinite(found), found, 0)

    arrays = LazyArrays(
        {
            "q": heads(q), "k": heads(k), "v": heads(v), "scale": np.array(scale_of(q, scale), q.dtype),
            "bias": None if bias is None else np.broadcast_to(bias, (1, q.shape[1], *pairs))[0],
            "allowed": None if allowed is None else np.broadcast_to(allowed * 1.0, (1, 1, *pairs))[0, 0],
            "scores": lambda a: (a["q"] * a["scale"]) @ a["k"].swapaxes(-1, -2) + a.get("bias", 0),
            "maximum": maximum,
            "exponentials": lambda a: np.exp(masked(a, a["scores"]) - a["maximum"][..., None]),
            "total": lambda a: a["exponentials"].sum(-1),
            "weights": lambda a: attention_weights(q, k, pattern, bias, scale)[0],
            "context": heads(node.output),
            "dcontext": heads(node.dy) if has_back else None,
            "dq": back(node, 0, heads), "dk": back(node, 1, heads), "dv": back(node, 2, heads),
            "dweights": (lambda a: a["dcontext"] @ a["v"].swapaxes(-1, -2)) if has_back else None,
            "inner": (lambda a: (a["dweights"] * a["weights"]).sum(-1)) if has_back else None,
            "dscores": (lambda a: a["weights"] * (a["dweights"] - a["inner"][..., None])) if has_back else None,
        }
    )  # fmt: skip
    sums = formulas(
        "scores[a,i,j] = scale[] q[a,i,d] k[a,j,d] + bias[a,i,j]",
        "total[a,i] = exponentials[a,i,j]",
        "context[a,i,d] = weights[a,i,j] v[a,j,d]",
        "dv[a,j,d] = weights[a,i,j] dcontext[a,i,d]",
        "dweights[a,i,j] = dcontext[a,i,d] v[a,j,d]",
        "inner[a,i] = dweights[a,i,j] weights[a,i,j]",
        "dscores[a,i,j] = weights[a,i,j] dweights[a,i,j] - weights[a,i,j] inner[a,i]",
        "dq[a,i,d] = scale[] dscores[a,i,j] k[a,j,d]",
        "dk[a,j,d] = scale[] dscores[a,i,j] q[a,i,d]",
        arrays=arrays,
    )
    expressions = {
        "exponentials": ("" if allowed is None else "allowed[i,j] * ") + "exp(scores[a,i,j] - maximum[a,i])",
        "weights": "exponentials[a,i,j] / total[a,i]",
    }
    return Described(
        "scores = q kᵀ / √d,   weights = softmax(scores),   context = weights v",
        "dv = weightsᵀ dcontext,   dweights = dcontext vᵀ,   dscores = weights · (dweights − Σ dweights · weights),   "
        "dq = dscores k / √d,   dk = dscoresᵀ q / √d",
        arrays, sums, expressions,
        forward=("q", "k", "scores", "allowed", "exponentials", "total", "weights", "v", "context"),
        backward=("dcontext", "v", "dweights", "weights", "inner", "dscores", "dq", "dk", "dv"),
        operand={"q": 0, "k": 1, "v": 2, "bias": 4}, gradient={"dq": 0, "dk": 1, "dv": 2}, result="context",
    )  # fmt: skip


@describes("rotary")
def _rotary(node: Node) -> Described:
    def halves(x: Any, second: bool) -> Any:
        """[1, T, heads, d] -> one half of the features, [heads, T, d/2]"""
        x = np.asarray(x)[0].transpose(1, 0, 2)
        half = x.shape[-1] // 2
        return x[..., half:] if second else x[..., :half]

    x, cos, sin = node.arguments
    dx = None if node.dy is None else node.gradients[0]
    arrays = LazyArrays(
        {
            "x1": halves(x, False), "x2": halves(x, True), "cos": cos[0, :, 0], "sin": sin[0, :, 0],
            "y1": halves(node.output, False), "y2": halves(node.output, True),
            "dy1": None if dx is None else halves(node.dy, False), "dy2": None if dx is None else halves(node.dy, True),
            "dx1": None if dx is None else halves(dx, False), "dx2": None if dx is None else halves(dx, True),
        }
    )  # fmt: skip
    sums = formulas(
        "y1[a,t,c] = x1[a,t,c] cos[t,c] - x2[a,t,c] sin[t,c]",
        "y2[a,t,c] = x2[a,t,c] cos[t,c] + x1[a,t,c] sin[t,c]",
        "dx1[a,t,c] = dy1[a,t,c] cos[t,c] + dy2[a,t,c] sin[t,c]",
        "dx2[a,t,c] = dy2[a,t,c] cos[t,c] - dy1[a,t,c] sin[t,c]",
        arrays=arrays,
    )
    return Described(
        "y₁ = x₁ cos θ − x₂ sin θ,   y₂ = x₂ cos θ + x₁ sin θ,   θ = position · frequency",
        "the gradient is rotated back, by −θ",
        arrays, sums,
        forward=("x1", "x2", "cos", "sin", "y1", "y2"), backward=("dy1", "dy2", "cos", "sin", "dx1", "dx2"),
        operand={"x1": 0, "x2": 0}, gradient={"dx1": 0, "dx2": 0}, result="y1",
    )  # fmt: skip
