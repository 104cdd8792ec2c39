"""Planted faults of kernels: for every kernel of every engine one in the forward and one in the backward, and a few
that are mistakes of a particular kernel."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from glassbert.arrays import namespace
from glassbert.engines import bfloat16_kernels, numpy_kernels, onednn, tiled_kernels
from glassbert.ops.registry import SUFFIX
from glassbert.proof.mutants import wrong_kernel


def without_last(x: Any) -> Any:
    """The array with zeros in the last row; a number one percent larger."""
    if not x.ndim:
        return x * 1.01
    xp = namespace(x)
    keep = (xp.arange(x.shape[0]) < x.shape[0] - 1).reshape(-1, *[1] * (x.ndim - 1))
    return x * keep if x.shape[0] > 1 else x * 0.9


def spoiled(function: Callable[..., Any], forward: bool) -> Callable[..., Any]:
    """The kernel with a wrong last row of its output, or of its first gradient."""

    def run(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if forward:
            return without_last(result[0]), result[1]
        return (without_last(result[0]), *result[1:]) if isinstance(result, tuple) else without_last(result)

    return run


# Cases in which the kernel itself runs; in others it leaves the inputs to the plain operation, which has another state.
RUNS_IN = {
    ("numpy", "tiled_attention"): ("tiled_attention: bias by head",),
    ("mlx", "tiled_attention"): ("tiled_attention: heads of 8, no mask",),
    ("mlx", "quantized_linear"): ("quantized_linear: 4 bits, groups with offsets, rows of 64",),
    ("mlx", "layer_norm"): ("layer_norm: 2,000 rows of 64",),  # on CUDA only widths that 64 divides
}


def plant_in_all(engine: str, kernels: dict[str, Callable[..., Any]]) -> None:
    for name, function in kernels.items():
        forward = not name.endswith(SUFFIX)
        what = "the last row of the output" if forward else "the last row of the gradient"
        suspects = RUNS_IN.get((engine, name.removesuffix(SUFFIX)), ())
        wrong_kernel(engine, name, f"{engine} kernel of {name}: {what} is lost", *suspects)(spoiled(function, forward))


plant_in_all("numpy", numpy_kernels.KERNELS)
if not onednn.why_not():
    own = {name: f for name, f in bfloat16_kernels.KERNELS.items() if numpy_kernels.KERNELS.get(name) is not f}
    plant_in_all("bfloat16", own)

    @wrong_kernel("bfloat16", "linear_backward", "bfloat16 kernel of linear: rows that fill up are not zeros")
    def _(dy, state, out=(None, None)):
        narrow, *others = state
        narrow = narrow.copy()
        narrow[-1] = narrow[0]
        return bfloat16_kernels.linear_backward(dy, (narrow, *others), out)

    @wrong_kernel("bfloat16", "linear", "bfloat16 kernel of linear: the bias is forgotten")
    def _(x, weight, bias=None):
        return bfloat16_kernels.linear(x, weight)[0], bfloat16_kernels.linear(x, weight, bias)[1]

    @wrong_kernel("bfloat16", "attention_backward", "bfloat16 kernel of attention: gradients of q and k exchanged")
    def _(dcontext, state):
        dq, dk, dv, dbias = bfloat16_kernels.attention_backward(dcontext, state)
        return dk, dq, dv, dbias

    @wrong_kernel("bfloat16", "attention", "bfloat16 kernel of attention: the scale is forgotten")
    def _(q, k, v, pattern, bias=None, scale=None, dropout_mask=None, dropout_rate=0.0):
        return bfloat16_kernels.attention(q, k, v, pattern, bias, 1.0, dropout_mask, dropout_rate)


if importlib.util.find_spec("mlx") is not None:
    from glassbert.engines import mlx_kernels, mlx_quantized  # noqa: F401 (enters its kernels)

    plant_in_all("mlx", mlx_kernels.KERNELS)


@wrong_kernel("numpy", "relu", "numpy kernel of relu: NaN becomes 0")
def _(x):
    y = np.where(x > 0, x, np.float32(0.0))
    return y, y


@wrong_kernel("numpy", "gelu", "numpy kernel of gelu: minus infinity stays minus infinity")
def _(x):
    y, state = numpy_kernels.gelu(x)
    return np.where(np.isneginf(x), x, y), state


@wrong_kernel("numpy", "layer_norm", "numpy kernel of layer_norm: the variance is divided by one less than the width")
def _(x, gamma, beta, eps):
    width = x.shape[-1]
    return numpy_kernels.layer_norm(x * np.float32((1 - 1 / width) ** 0.5), gamma, beta, eps)


@wrong_kernel("numpy", "attention_backward", "numpy kernel of attention: gradients of q and k exchanged")
def _(dcontext, state):
    dq, dk, dv, dbias = numpy_kernels.attention_backward(dcontext, state)
    return dk, dq, dv, dbias


@wrong_kernel("numpy", "attention", "numpy kernel of attention: the mask is ignored")
def _(q, k, v, pattern, bias=None, scale=None, dropout_mask=None, dropout_rate=0.0):
    return numpy_kernels.attention(q, k, v, type(pattern)(), bias, scale, dropout_mask, dropout_rate)


@wrong_kernel("numpy", "attention", "numpy kernel of attention: the offset is ignored", "attention: more keys")
def _(q, k, v, pattern, bias=None, scale=None, dropout_mask=None, dropout_rate=0.0):
    return numpy_kernels.attention(q, k, v, replace(pattern, offset=0), bias, scale, dropout_mask, dropout_rate)


@wrong_kernel(
    "numpy", "tiled_attention_backward", "numpy kernel of tiled_attention: bias gradient summed over heads",
    "tiled_attention: bias by head",
)  # fmt: skip
def _(dcontext, state):
    groups, values, _ = state
    return tiled_kernels.tiled_attention_backward(dcontext, (groups, values, True))


@wrong_kernel(
    "numpy", "tiled_attention", "numpy kernel of tiled_attention: filled-up places of documents are keys",
    "tiled_attention: packed documents",
)  # fmt: skip
def _(q, k, v, pattern, bias=None, scale=None, tile_mask=None, dropout_rate=0.0):
    groups = tiled_kernels.groups_of_documents(q, k, pattern) or []
    everywhere = [group._replace(real=None) for group in groups]
    return tiled_kernels.grouped_attention(q, k, v, everywhere, scale, False)


@wrong_kernel(
    "numpy", "tiled_attention_backward", "numpy kernel of tiled_attention: filled-up places give gradients",
    "tiled_attention: packed documents",
)  # fmt: skip
def _(dcontext, state):
    groups, *rest = state
    everywhere = [group._replace(real=None) for group in groups]
    return tiled_kernels.grouped_attention_backward(dcontext, (everywhere, *rest))


@wrong_kernel("numpy", "cross_entropy_backward", "numpy kernel of cross_entropy: ignored rows get a gradient")
def _(dloss, state):
    exponentials, total, picked, valid, count = state
    return numpy_kernels.cross_entropy_backward(dloss, (exponentials, total, picked, np.ones_like(valid), count))
