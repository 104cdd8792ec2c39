"""Wrong gradients of losses and of pooling."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.proof.mutants import wrong


@wrong("cross_entropy_backward", "cross-entropy: not divided by the number of rows")
def _(dloss, state):
    return ops.cross_entropy_backward(dloss, state) * state[-1]


@wrong("cross_entropy_backward", "cross-entropy: divided by all rows, ignored ones too")
def _(dloss, state):
    return ops.cross_entropy_backward(dloss, state) * state[-1] / len(state[0])


@wrong("cross_entropy_backward", "cross-entropy: ignored rows have a gradient")
def _(dloss, state):
    probabilities, picked, valid, count = state
    return ops.cross_entropy_backward(dloss, (probabilities, picked, np.ones_like(valid), count))


@wrong("cross_entropy_backward", "cross-entropy: the incoming gradient is ignored")
def _(dloss, state):
    return ops.cross_entropy_backward(np.ones_like(dloss), state)


@wrong("binary_cross_entropy_backward", "logistic loss: the sigmoid is missing")
def _(dloss, state):
    logits, answers, _, valid, count = state
    return np.where(valid, logits - answers, 0) * (dloss / count)


@wrong("binary_cross_entropy_backward", "logistic loss: a squared error's slope on top of the sigmoid's")
def _(dloss, state):
    sigmoid = 1.0 / (1.0 + np.exp(-state[0]))
    return ops.binary_cross_entropy_backward(dloss, state) * sigmoid * (1.0 - sigmoid)


@wrong("mean_squared_error_backward", "squared error: the 2 is missing")
def _(dloss, state):
    return 0.5 * ops.mean_squared_error_backward(dloss, state)


@wrong("mean_pool_backward", "mean pooling: spread over padding as well")
def _(dy, weights):
    return ops.mean_pool_backward(dy, np.full_like(weights, 1.0 / weights.shape[1]))


@wrong("mean_pool_backward", "mean pooling: every token gets the whole gradient")
def _(dy, weights):
    return ops.mean_pool_backward(dy, weights > 0)


@wrong("cls_pool_backward", "first-token pooling: gradient at the last token")
def _(dy, shape):
    return ops.cls_pool_backward(dy, shape)[:, ::-1].copy()


# ---- weights, smoothing, focal loss, ranks, pairs ------------------------------------------------------------------


@wrong(
    "cross_entropy_backward",
    "weighted cross-entropy: the target has its weight, the predicted distribution has none",
    "cross_entropy: class weights",
)
def _(dloss, state):
    probabilities, aim, valid, count = state
    if aim.ndim == 1:
        return ops.cross_entropy_backward(dloss, state)
    return (probabilities - aim) * (valid * dloss / count)[:, None]


@wrong("cross_entropy_backward", "label smoothing: left out in backward", "cross_entropy: label smoothing")
def _(dloss, state):
    probabilities, aim, valid, count = state
    picked = aim if aim.ndim == 1 else aim.argmax(-1)
    return ops.cross_entropy_backward(dloss, (probabilities, picked, valid, count))


@wrong("binary_cross_entropy_backward", "logistic loss: positive weights left out", "binary_cross_entropy: positive")
def _(dloss, state):
    logits, answers, _, valid, count = state
    return ops.binary_cross_entropy_backward(dloss, (logits, answers, None, valid, count))


@wrong(
    "binary_cross_entropy_backward", "logistic loss: positive weights on every target", "binary_cross_entropy: positive"
)
def _(dloss, state):
    logits, answers, factor, valid, count = state
    slope = ops.binary_cross_entropy_backward(dloss, (logits, answers, None, valid, count))
    return slope if factor is None else slope * factor


@wrong("focal_loss_backward", "focal loss: the factor (1 - p)^γ taken for a constant")
def _(dloss, state):
    belief, _, rest, weight, count, gamma = state
    return belief * (weight * rest**gamma * dloss / count)[:, None]


@wrong("focal_loss_backward", "focal loss: one power of 1 - p too many")
def _(dloss, state):
    return ops.focal_loss_backward(dloss, state) * state[2][:, None]


@wrong("binary_focal_loss_backward", "binary focal loss: the factor (1 - p)^γ taken for a constant")
def _(dloss, state):
    logits, yes, no, valid, count, gamma = state
    p = 1.0 / (1.0 + np.exp(-logits))
    return np.where(valid, no * p ** (gamma + 1) - yes * (1 - p) ** (gamma + 1), 0) * (dloss / count)


@wrong("binary_focal_loss_backward", "binary focal loss: negative targets treated as positive")
def _(dloss, state):
    logits, yes, no, valid, count, gamma = state
    return ops.binary_focal_loss_backward(dloss, (logits, yes + no, 0.0 * no, valid, count, gamma))


@wrong("ordinal_loss_backward", "ranks: every row has a gradient at every step")
def _(dloss, state):
    logits, asked, passed, count = state
    return ops.ordinal_loss_backward(dloss, (logits, np.ones_like(asked), passed, count))


@wrong("ordinal_loss_backward", "ranks: the step at the rank itself is left out")
def _(dloss, state):
    logits, asked, passed, count = state
    return ops.ordinal_loss_backward(dloss, (logits, asked & (passed > 0), passed, count))


@wrong("unit_length_backward", "unit length: the part along the vector is kept")
def _(dy, state):
    return dy * state[1]


@wrong("unit_length_backward", "unit length: not divided by the length")
def _(dy, state):
    return ops.unit_length_backward(dy, state) / state[1]


@wrong("cosine_loss_backward", "cosine: only the first vector has a gradient")
def _(dloss, state):
    da, db = ops.cosine_loss_backward(dloss, state)
    return da, 0.0 * db


@wrong("cosine_loss_backward", "cosine: each vector gets its own direction instead of the other's")
def _(dloss, state):
    difference, count, a, b = state
    return ops.cosine_loss_backward(dloss, (difference, count, (b[0], a[1]), (a[0], b[1])))


@wrong("contrastive_loss_backward", "contrastive: the temperature is left out")
def _(dloss, state):
    return ops.contrastive_loss_backward(dloss, (*state[:3], 1.0))


@wrong("contrastive_loss_backward", "contrastive: the second vector has no gradient from the other pairs")
def _(dloss, state):
    choice, a, b, temperature = state
    da, _ = ops.contrastive_loss_backward(dloss, state)
    dscores = np.diag(np.diag(ops.cross_entropy_backward(dloss, choice))) / temperature
    return da, ops.unit_length_backward(dscores @ a[0], b)


@wrong("ranking_loss_backward", "ranking: the temperature is left out")
def _(dloss, state):
    return ops.ranking_loss_backward(dloss, (*state[:3], 1.0))


@wrong("ranking_loss_backward", "ranking: the pairs with the lower target have no gradient")
def _(dloss, state):
    weights, a, b, temperature = state
    slope = -weights.sum(1)[:, None] * dloss / temperature
    return ops.unit_length_backward(slope * b[0], a), ops.unit_length_backward(slope * a[0], b)


@wrong("ranking_loss_backward", "ranking: the 1 under the logarithm is forgotten")
def _(dloss, state):
    weights, *rest = state
    return ops.ranking_loss_backward(dloss, (weights / max(weights.sum(), 1e-300), *rest))


@wrong("max_pool_backward", "max pooling: every token gets the gradient")
def _(dy, state):
    length = state[2]
    return np.repeat(dy[:, None] / length, length, 1)


@wrong("max_pool_backward", "max pooling: a row of padding has a gradient", "max_pool: ragged")
def _(dy, state):
    argmax, _, length = state
    return ops.max_pool_backward(dy, (argmax, None, length))


@wrong("attention_pool_backward", "attention pooling: the weights taken for constants")
def _(dy, state):
    _, dquery = ops.attention_pool_backward(dy, state)
    return state[1][:, :, None] * dy[:, None], dquery


@wrong("attention_pool_backward", "attention pooling: 1/√H missing in the query's gradient")
def _(dy, state):
    dx, dquery = ops.attention_pool_backward(dy, state)
    return dx, dquery * len(dquery) ** 0.5


# ---- distillation --------------------------------------------------------------------------------------------------


@wrong("soft_target_loss_backward", "soft targets: T² instead of T, the inner derivative is missing")
def _(dloss, state):
    return ops.soft_target_loss_backward(dloss, state) * state[-1]


@wrong("soft_target_loss_backward", "soft targets: the factor T² is left out in backward")
def _(dloss, state):
    return ops.soft_target_loss_backward(dloss, state) / state[-1] ** 2


@wrong("soft_target_loss_backward", "soft targets: teacher less student")
def _(dloss, state):
    return -ops.soft_target_loss_backward(dloss, state)


@wrong("soft_target_loss_backward", "soft targets: ignored rows have a gradient")
def _(dloss, state):
    difference, valid, *rest = state
    return ops.soft_target_loss_backward(dloss, (difference, np.ones_like(valid), *rest))


@wrong("soft_target_loss_backward", "soft targets: divided by all rows, ignored ones too")
def _(dloss, state):
    return ops.soft_target_loss_backward(dloss, state) * state[2] / len(state[1])


@wrong("cosine_distance_loss_backward", "cosine distance: the part along x is not removed")
def _(dloss, state):
    aim, valid, count, (_, shrink) = state
    return -aim * shrink * (valid * dloss / count)[:, None]


@wrong("cosine_distance_loss_backward", "cosine distance: the length of x is forgotten")
def _(dloss, state):
    return ops.cosine_distance_loss_backward(dloss, state) / state[-1][1]


@wrong("cosine_distance_loss_backward", "cosine distance: the sign of a similarity")
def _(dloss, state):
    return -ops.cosine_distance_loss_backward(dloss, state)


@wrong("cosine_distance_loss_backward", "cosine distance: ignored rows have a gradient")
def _(dloss, state):
    aim, valid, count, x_state = state
    return ops.cosine_distance_loss_backward(dloss, (aim, np.ones_like(valid), count, x_state))


@wrong("relation_loss_backward", "relations: x stands twice in x xᵀ, and one gradient is lost")
def _(dloss, state):
    x, difference, valid, count, heads = state
    rows, length, width = x.shape
    parts = x.reshape(rows, length, heads, width // heads).swapaxes(1, 2)
    dscores = difference * np.where(valid, dloss / count, 0.0)[..., None]
    return (2 * dscores @ parts * (width // heads) ** -0.5).swapaxes(1, 2).reshape(x.shape)


@wrong("relation_loss_backward", "relations: 1/√d of the whole width instead of one head")
def _(dloss, state):
    return ops.relation_loss_backward(dloss, state) * state[-1] ** -0.5


@wrong("relation_loss_backward", "relations: padding has a gradient")
def _(dloss, state):
    x, difference, valid, *rest = state
    return ops.relation_loss_backward(dloss, (x, difference, np.ones_like(valid), *rest))


@wrong("relation_loss_backward", "relations: teacher less student")
def _(dloss, state):
    return -ops.relation_loss_backward(dloss, state)


@wrong("relation_loss_backward", "relations: not divided by the number of heads")
def _(dloss, state):
    return ops.relation_loss_backward(dloss, state) * state[-1]
