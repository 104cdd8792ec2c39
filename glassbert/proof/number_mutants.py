"""Wrong gradients of numbers beside words."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.layers.embeddings import NumberEmbeddings, TokenEmbeddings
from glassbert.proof.mutants import wrong, wrong_in


@wrong("number_embedding_backward", "numbers: only the knot below gets a gradient")
def _(dy, state):
    index, weights, shape = state
    return ops.number_embedding_backward(dy, (index, weights * np.array([1.0, 0.0]), shape))


@wrong("number_embedding_backward", "numbers: both knots get the whole gradient")
def _(dy, state):
    index, weights, shape = state
    return ops.number_embedding_backward(dy, (index, (weights > 0).astype(dy.dtype), shape))


@wrong("number_embedding_backward", "numbers: a step gets the gradient of its own knot alone")
def _(dy, state):
    dsteps = ops.number_embedding_backward(dy, state)
    rest = np.concatenate([dsteps[:, 1:-1], np.zeros_like(dsteps[:, :1])], 1)
    return np.concatenate([dsteps[:, :-1] - rest, dsteps[:, -1:]], 1)


@wrong("number_embedding_backward", "numbers: the missing value counts as the highest knot")
def _(dy, state):
    dsteps = ops.number_embedding_backward(dy, state)
    return np.concatenate([dsteps[:, :-1] + dsteps[:, -1:], dsteps[:, -1:]], 1)


@wrong("number_embedding_backward", "numbers: columns share one set of steps")
def _(dy, state):
    dsteps = ops.number_embedding_backward(dy, state)
    return np.broadcast_to(dsteps.sum(0, keepdims=True), dsteps.shape)


@wrong_in({NumberEmbeddings: "sum_backward"}, "numbers: the words get the gradient, the numbers none", "numbers")
def _(self, dx, batch, scope):
    TokenEmbeddings.sum_backward(self, dx, batch, scope)
