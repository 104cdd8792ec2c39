"""Wrong gradients of losses and of pooling."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.ops.registry import plain
from glassbert.proof.mutants import wrong


@wrong("cross_entropy_backward", "cross-entropy: not divided by the number of rows")
def _(dloss, cache):
    return plain("cross_entropy_backward")(dloss, cache) * cache[-1]


@wrong("cross_entropy_backward", "cross-entropy: divided by all rows, ignored ones too")
def _(dloss, cache):
    return plain("cross_entropy_backward")(dloss, cache) * cache[-1] / len(cache[0])


@wrong("cross_entropy_backward", "cross-entropy: ignored rows have a gradient")
def _(dloss, cache):
    probabilities, picked, valid, count = cache
    return plain("cross_entropy_backward")(dloss, (probabilities, picked, np.ones_like(valid), count))


@wrong("cross_entropy_backward", "cross-entropy: the incoming gradient is ignored")
def _(dloss, cache):
    return plain("cross_entropy_backward")(np.ones_like(dloss), cache)


@wrong("binary_cross_entropy_backward", "logistic loss: the sigmoid is missing")
def _(dloss, cache):
    logits, answers, _, valid, count = cache
    return np.where(valid, logits - answers, 0) * (dloss / count)


@wrong("binary_cross_entropy_backward", "logistic loss: a squared error's slope on top of the sigmoid's")
def _(dloss, cache):
    sigmoid = 1.0 / (1.0 + np.exp(-cache[0]))
    return plain("binary_cross_entropy_backward")(dloss, cache) * sigmoid * (1.0 - sigmoid)


@wrong("mean_squared_error_backward", "squared error: the 2 is missing")
def _(dloss, cache):
    return 0.5 * plain("mean_squared_error_backward")(dloss, cache)


@wrong("mean_pool_backward", "mean pooling: spread over padding as well")
def _(dy, shape, weights):
    return np.broadcast_to(dy[:, None] / shape[1], shape).copy()


@wrong("mean_pool_backward", "mean pooling: every token gets the whole gradient")
def _(dy, shape, weights):
    return (weights[:, :, None] > 0) * dy[:, None]


@wrong("cls_pool_backward", "first-token pooling: gradient at the last token")
def _(dy, shape, cache=None):
    return plain("cls_pool_backward")(dy, shape)[:, ::-1].copy()


# ---- weights, smoothing, focus, ranks, pairs -----------------------------------------------------------------------


@wrong(
    "cross_entropy_backward",
    "weighted cross-entropy: the right class keeps its weight, belief does not",
    "cross_entropy: class weights",
)
def _(dloss, cache):
    probabilities, aim, valid, count = cache
    if aim.ndim == 1:
        return plain("cross_entropy_backward")(dloss, cache)
    return (probabilities - aim) * (valid * dloss / count)[:, None]


@wrong("cross_entropy_backward", "label smoothing: forgotten on the way back", "cross_entropy: label smoothing")
def _(dloss, cache):
    probabilities, aim, valid, count = cache
    picked = aim if aim.ndim == 1 else aim.argmax(-1)
    return plain("cross_entropy_backward")(dloss, (probabilities, picked, valid, count))


@wrong("binary_cross_entropy_backward", "logistic loss: positive weights forgotten", "binary_cross_entropy: positive")
def _(dloss, cache):
    logits, answers, _, valid, count = cache
    return plain("binary_cross_entropy_backward")(dloss, (logits, answers, None, valid, count))


@wrong(
    "binary_cross_entropy_backward", "logistic loss: positive weights on every answer", "binary_cross_entropy: positive"
)
def _(dloss, cache):
    logits, answers, factor, valid, count = cache
    slope = plain("binary_cross_entropy_backward")(dloss, (logits, answers, None, valid, count))
    return slope if factor is None else slope * factor


@wrong("focal_loss_backward", "focal loss: the focusing factor taken for a constant")
def _(dloss, cache, gamma):
    belief, _, rest, weight, count = cache
    return belief * (weight * rest**gamma * dloss / count)[:, None]


@wrong("focal_loss_backward", "focal loss: one power of 1 - p too many")
def _(dloss, cache, gamma):
    return plain("focal_loss_backward")(dloss, cache, gamma) * cache[2][:, None]


@wrong("binary_focal_loss_backward", "binary focal loss: the focusing factor taken for a constant")
def _(dloss, cache, gamma):
    logits, yes, no, valid, count = cache
    p = 1.0 / (1.0 + np.exp(-logits))
    return np.where(valid, no * p ** (gamma + 1) - yes * (1 - p) ** (gamma + 1), 0) * (dloss / count)


@wrong("binary_focal_loss_backward", "binary focal loss: a no is treated as a yes")
def _(dloss, cache, gamma):
    logits, yes, no, valid, count = cache
    return plain("binary_focal_loss_backward")(dloss, (logits, yes + no, 0.0 * no, valid, count), gamma)


@wrong("ordinal_loss_backward", "ranks: everybody is asked every question")
def _(dloss, cache):
    logits, asked, passed, count = cache
    return plain("ordinal_loss_backward")(dloss, (logits, np.ones_like(asked), passed, count))


@wrong("ordinal_loss_backward", "ranks: the question that stopped the row is left out")
def _(dloss, cache):
    logits, asked, passed, count = cache
    return plain("ordinal_loss_backward")(dloss, (logits, asked & (passed > 0), passed, count))


@wrong("unit_length_backward", "unit length: the part along the vector is kept", "cosine_loss")
def _(dy, cache):
    return dy * cache[1]


@wrong("unit_length_backward", "unit length: not divided by the length", "cosine_loss")
def _(dy, cache):
    return plain("unit_length_backward")(dy, cache) / cache[1]


@wrong("cosine_loss_backward", "cosine: only the first vector learns")
def _(dloss, cache):
    da, db = plain("cosine_loss_backward")(dloss, cache)
    return da, 0.0 * db


@wrong("cosine_loss_backward", "cosine: each vector gets its own direction instead of the other's")
def _(dloss, cache):
    difference, count, a, b = cache
    return plain("cosine_loss_backward")(dloss, (difference, count, (b[0], a[1]), (a[0], b[1])))


@wrong("contrastive_loss_backward", "contrastive: the temperature is forgotten")
def _(dloss, cache, temperature):
    return tuple(temperature * d for d in plain("contrastive_loss_backward")(dloss, cache, temperature))


@wrong("contrastive_loss_backward", "contrastive: a partner is not pushed by the other pairs")
def _(dloss, cache, temperature):
    choice, a, b = cache
    da, _ = plain("contrastive_loss_backward")(dloss, cache, temperature)
    dscores = np.diag(np.diag(ops.cross_entropy_backward(dloss, choice))) / temperature
    return da, ops.unit_length_backward(dscores @ a[0], b)


@wrong("max_pool_backward", "max pooling: every token gets the gradient")
def _(dy, shape, cache):
    return np.broadcast_to(dy[:, None] / shape[1], shape).copy()


@wrong("max_pool_backward", "max pooling: a row of padding learns as well", "max_pool: ragged")
def _(dy, shape, cache):
    return plain("max_pool_backward")(dy, shape, (cache[0], None))


@wrong("attention_pool_backward", "attention pooling: the weights taken for constants")
def _(dy, cache, query):
    _, dquery = plain("attention_pool_backward")(dy, cache, query)
    return cache[1][:, :, None] * dy[:, None], dquery


@wrong("attention_pool_backward", "attention pooling: the query learns without 1/√H")
def _(dy, cache, query):
    dx, dquery = plain("attention_pool_backward")(dy, cache, query)
    return dx, dquery * len(query) ** 0.5
