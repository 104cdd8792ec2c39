"""Planted faults of quantised weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from glassbert import ops
from glassbert.ops.quantized import dequantize
from glassbert.proof.mutants import wrong


@wrong("quantized_linear_backward", "quantised linear: the gradient of x forgets the offsets")
def _(dy, state):
    shape, weight, has_bias = state
    return ops.quantized_linear_backward(dy, (shape, replace(weight, offsets=None), has_bias))


@wrong("quantized_linear_backward", "quantised linear: the gradient of x forgets the change of low rank")
def _(dy, state):
    shape, weight, has_bias = state
    return ops.quantized_linear_backward(dy, (shape, replace(weight, changes=()), has_bias))


@wrong("quantized_linear_backward", "quantised linear: the change of low rank lacks its scale")
def _(dy, state):
    shape, weight, has_bias = state
    changes = tuple((rows, a, b, 1.0) for rows, a, b, _ in weight.changes)
    return ops.quantized_linear_backward(dy, (shape, replace(weight, changes=changes), has_bias))


@wrong("quantized_linear_backward", "quantised linear: the zero of the codes is not subtracted")
def _(dy, state):
    shape, weight, has_bias = state
    return ops.quantized_linear_backward(dy, (shape, replace(weight, zero=weight.zero + 1), has_bias))


@wrong("quantized_linear_backward", "quantised linear: all groups of a row use the scale of the first")
def _(dy, state):
    shape, weight, has_bias = state
    first = weight.scales[:, :1] + 0 * weight.scales
    return ops.quantized_linear_backward(dy, (shape, replace(weight, scales=first), has_bias))


@wrong("quantized_linear_backward", "quantised linear: multiplies by the weight, not by its transpose, if square")
def _(dy, state):
    shape, weight, _ = state
    dx, dweight, dbias = ops.quantized_linear_backward(dy, state)
    square = weight.shape[0] == weight.shape[1]
    return (dy @ dequantize(weight).T).reshape(shape) if square else dx, dweight, dbias


@wrong("quantized_linear_backward", "quantised linear: the bias gets the mean over rows, not the sum")
def _(dy, state):
    dx, dweight, dbias = ops.quantized_linear_backward(dy, state)
    return dx, dweight, None if dbias is None else dbias / (dy.size // dy.shape[-1])


@wrong("quantized_embedding_backward", "quantised embedding: the padding row is not frozen")
def _(dy, state):
    return ops.quantized_embedding_backward(dy, (state[0], None))


@wrong("quantized_embedding_backward", "quantised embedding: a repeated id counts once")
def _(dy, state):
    index, rows = ops.quantized_embedding_backward(dy, state)
    counts = [max(1, int((state[0] == i).sum())) for i in index]
    return index, rows / np.array(counts)[:, None]
