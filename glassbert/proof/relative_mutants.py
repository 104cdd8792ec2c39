"""Planted faults of relative positions and convolutions."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.ops import relative
from glassbert.proof.mutants import wrong, wrong_in

right_shift_backward = relative.shift_backward


@wrong("relative_scores_backward", "relative scores: the scale is forgotten in the gradient of the positions")
def _(dy, state):
    dq, dk, dkeys, dqueries = ops.relative_scores_backward(dy, state)
    scale = state[-1]
    return dq, dk, *(None if d is None else d / scale for d in (dkeys, dqueries))


@wrong("relative_scores_backward", "relative scores: position to content is not transposed on the way back")
def _(dy, state):
    dq, _, dkeys, _ = ops.relative_scores_backward(dy, state)
    _, dk, _, dqueries = ops.relative_scores_backward(dy.swapaxes(-1, -2), state)
    return dq, dk, dkeys, dqueries


@wrong("relative_scores_backward", "relative scores: queries learn nothing from positions")
def _(dy, state):
    dq, *others = ops.relative_scores_backward(dy, state)
    return None if dq is None else 0.0 * dq, *others


@wrong("relative_scores_backward", "relative scores: distances are counted from the other end")
def _(dy, state):
    dq, dk, dkeys, dqueries = ops.relative_scores_backward(dy, state)
    return dq, dk, None if dkeys is None else dkeys[::-1], dqueries


@wrong_in(
    {relative: "by_distance_backward"},
    "relative scores: of distances that share a row the last one counts",
    "relative_scores",
)
def _(dy, index, rows):
    result = np.zeros((rows, dy.shape[0], dy.shape[2]))
    result[index] = dy.transpose(1, 0, 2)
    return result


@wrong_in({relative: "shift_backward"}, "relative scores: rows are shifted the other way", "relative_scores")
def _(dy):
    return right_shift_backward(dy[..., ::-1, :])[..., ::-1, :]


@wrong("convolution_backward", "convolution: neighbours are not moved back")
def _(dy, state):
    _, matrix, _, (_, inputs, width) = state
    _, dweight, dbias = ops.convolution_backward(dy, state)
    dstacked = dy @ matrix
    return sum(dstacked[:, :, j * inputs : (j + 1) * inputs] for j in range(width)), dweight, dbias


@wrong("convolution_backward", "convolution: neighbours that do not count learn")
def _(dy, state):
    stacked, matrix, _, shape = state
    return ops.convolution_backward(dy, (stacked, matrix, None, shape))


@wrong("convolution_backward", "convolution: the taps of the weight in the wrong order")
def _(dy, state):
    dx, dweight, dbias = ops.convolution_backward(dy, state)
    return dx, dweight[:, :, ::-1], dbias
