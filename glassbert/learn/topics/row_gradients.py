"""Exercises of the backward where all numbers of a row depend on each other: softmax, layer norm, attention."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.learn.exercise import Exercise, mistake, register
from glassbert.learn.solutions import gradients as solutions
from glassbert.learn.topics.attention import attention_cases
from glassbert.learn.topics.blocks import ORDINARY, norm_cases, random
from glassbert.learn.topics.gradients import with_gradient
from glassbert.ops.attention import AttentionPattern


def softmax_backward_cases():
    return {
        ORDINARY: {"dy": random(2, 3, 5, seed=9), "y": ops.softmax(random(2, 3, 5))[0]},
        "square": {"dy": random(4, 4, seed=9), "y": ops.softmax(2.0 * random(4, 4))[0]},
    }


register(
    Exercise(
        "softmax_backward",
        lesson=11,
        task="y = softmax(x) has the gradient dy. Return the gradient of x, from dy and y alone.",
        shapes={"dy": "[..., T]", "y": "[..., T], the output of the softmax"},
        outputs={"dx": "[..., T]"},
        cases=softmax_backward_cases,
        reference=ops.softmax_backward,
        solution=solutions.softmax_backward,
        hints=(
            "All weights of a row share one sum: raising one score lowers all other weights.",
            "∂y_i/∂x_j = y_i (δ_ij - y_j). Multiply by dy_i and add over i.",
            "dx = y · (dy - Σ_j dy_j y_j).",
        ),
        mistakes=(
            mistake(
                "only the diagonal of the Jacobian",
                "This is dy · y (1 - y): only how a score changes its own weight.",
                "A score also lowers all other weights of its row: ∂y_i/∂x_j = -y_i y_j.",
                ("y * (dy - inner)", "dy * y * (1 - y)"),
            ),
            mistake(
                "the inner sum is missing",
                "This is y · dy: the sum over the row is missing.",
                "dx = y · (dy - Σ_j dy_j y_j). The rows of dx add up to 0; yours do not.",
                ("y * (dy - inner)", "y * dy"),
            ),
            mistake(
                "the inner sum is a mean",
                "This is what comes out when the inner sum is divided by T.",
                "y already weighs the terms: Σ_j dy_j y_j is a sum, not a mean.",
                ("(dy * y).sum(-1", "(dy * y).mean(-1"),
            ),
            mistake(
                "the inner sum without y",
                "This is what comes out when the inner sum adds dy without its weights y.",
                "Σ_j dy_j y_j: every term is weighted by y_j.",
                ("(dy * y).sum(-1", "dy.sum(-1"),
            ),
            mistake(
                "the inner sum over the wrong axis",
                "This is what comes out when the inner sum runs along the wrong axis.",
                "The softmax ran along the last axis, and so does the sum.",
                ("(dy * y).sum(-1", "(dy * y).sum(-2"),
            ),
            mistake(
                "the inner sum over the wrong axis",
                "This is what comes out when the inner sum runs over everything.",
                "The softmax ran along the last axis, and so does the sum.",
                ("(dy * y).sum(-1, keepdims=True)", "(dy * y).sum()"),
            ),
            mistake(
                "not multiplied by y",
                "This is dy - Σ dy y: the factor y outside the bracket is missing.",
                "dx = y · (dy - Σ_j dy_j y_j).",
                ("y * (dy - inner)", "dy - inner"),
            ),
            mistake(
                "the sign of the inner sum is wrong",
                "This is y · (dy + Σ dy y).",
                "Raising one score takes weight from the others: minus.",
                ("dy - inner", "dy + inner"),
            ),
        ),
        library=ops.softmax_backward,
    )
)


def norm_backward_cases():
    cases = {}
    for name, inputs in norm_cases().items():
        if name != "a constant row":
            x = inputs["x"]
            cases[name] = {"dy": random(*x.shape, seed=9), **{key: inputs[key] for key in ("x", "gamma", "eps")}}
    return cases


def layer_norm_state(x, gamma, eps):
    return ops.layer_norm(x, gamma, np.zeros_like(gamma), eps)[1]


register(
    Exercise(
        "layer_norm_backward",
        lesson=11,
        task="y = gamma · x̂ + beta has the gradient dy. Return the gradients of x, gamma and beta.",
        shapes={"dy": "[B, T, H]", "x": "[B, T, H]", "gamma": "[H]", "eps": "a number"},
        outputs={"dx": "[B, T, H]", "dgamma": "[H]", "dbeta": "[H]"},
        cases=norm_backward_cases,
        reference=lambda dy, x, gamma, eps: ops.layer_norm_backward(dy, layer_norm_state(x, gamma, eps)),
        solution=solutions.layer_norm_backward,
        state=layer_norm_state,
        hints=(
            "Begin with the easy ones: beta is added to every row, gamma multiplies x̂ in every row.",
            "x̂ depends on x in three ways: directly, through the mean and through the variance.",
            "dx = rstd · (g - mean(g) - x̂ · mean(g · x̂)) with g = dy · gamma.",
        ),
        mistakes=(
            mistake(
                "gamma outside the means",
                "This is what comes out when gamma stands outside the means.",
                "g = dy · gamma comes first, and both means are over g. Outside it is right only while gamma is 1.",
                ("g = dy * gamma", "g = dy"),
                ("rstd * (g - mean", "gamma * rstd * (g - mean"),
            ),
            mistake(
                "mean and variance treated as constants",
                "This is gamma · rstd · dy: mean and variance were treated as constants.",
                "Moving one x moves the mean and the variance of its row, and so all other x̂.",
                ("rstd * (g - mean_term - variance_term)", "rstd * g"),
            ),
            mistake(
                "the gradient through the variance is missing",
                "This is what comes out when the variance is treated as a constant.",
                "The third term, x̂ · mean(g · x̂), is missing.",
                ("(g - mean_term - variance_term)", "(g - mean_term)"),
            ),
            mistake(
                "the gradient through the mean is missing",
                "This is what comes out when the mean is treated as a constant.",
                "The second term, mean(g), is missing.",
                ("(g - mean_term - variance_term)", "(g - variance_term)"),
            ),
            mistake(
                "the gradient of gamma takes x instead of x̂",
                "dgamma was made with x instead of x̂.",
                "gamma multiplies x̂ in the forward: dgamma = Σ dy · x̂.",
                ("(dy * x_hat).sum(rows)", "(dy * x).sum(rows)"),
            ),
            mistake(
                "the gradient of gamma without x̂",
                "dgamma is the gradient of beta: x̂ is missing.",
                "gamma multiplies x̂: dgamma = Σ dy · x̂.",
                ("(dy * x_hat).sum(rows)", "dy.sum(rows)"),
            ),
            mistake(
                "the gradient of gamma takes the centred x, not x̂",
                "dgamma was made with x - mean, before it is divided by the spread.",
                "gamma multiplies x̂, the normalised x.",
                ("(dy * x_hat).sum(rows)", "(dy * centred).sum(rows)"),
            ),
            mistake(
                "gamma is missing in dx",
                "This is what comes out when gamma is left out of dx.",
                "y = gamma · x̂ + beta, so the gradient of x̂ is g = dy · gamma.",
                ("g = dy * gamma", "g = dy"),
            ),
            mistake(
                "rstd is missing in dx",
                "This is what comes out when dx is not multiplied by rstd.",
                "x̂ = (x - mean) · rstd: the slope of x̂ carries the factor rstd.",
                ("rstd * (g - mean", "(g - mean"),
            ),
            mistake(
                "sums instead of means",
                "This is what comes out when the two means of dx are sums.",
                "mean(g) and mean(g · x̂) divide by H.",
                ("g.mean(-1, keepdims=True)", "g.sum(-1, keepdims=True)"),
                ("(g * x_hat).mean(-1, keepdims=True)", "(g * x_hat).sum(-1, keepdims=True)"),
            ),
            mistake(
                "means over the wrong axis",
                "This is what comes out when the means of dx run over the tokens.",
                "The forward normalised along the last axis; so do the means of the backward.",
                ("g.mean(-1, keepdims=True)", "g.mean(1, keepdims=True)"),
                ("(g * x_hat).mean(-1, keepdims=True)", "(g * x_hat).mean(1, keepdims=True)"),
            ),
            mistake(
                "the gradients of gamma and beta are means",
                "dgamma and dbeta are averaged over the rows instead of added.",
                "Every row used the same gamma and beta: their gradients add up.",
                ("(dy * x_hat).sum(rows)", "(dy * x_hat).mean(rows)"),
                ("dy.sum(rows)", "dy.mean(rows)"),
            ),
        ),
        library=ops.layer_norm_backward,
        digits=8,
    )
)


def attention_backward_cases():
    cases = with_gradient({**attention_cases()}, "v", "dcontext")
    cases.pop("large scores")
    return cases


def attention_backward(dcontext, q, k, v, mask):
    state = ops.attention(q, k, v, AttentionPattern(keys=mask))[1]
    return ops.attention_backward(dcontext, state)[:3]


QK_SCALE = (
    "This is what comes out when the gradients of queries and keys are not divided by √d.",
    "The forward divided the scores by √d. The backward passes through the same division.",
)

register(
    Exercise(
        "attention_backward",
        lesson=11,
        task="context = softmax(q kᵀ / √d) v has the gradient dcontext. Return the gradients of q, k and v.",
        shapes={
            "dcontext": "[B, heads, T, d]",
            "q": "[B, heads, T, d]",
            "k": "[B, heads, T, d]",
            "v": "[B, heads, T, d]",
            "mask": "[B, T], 1 or 0",
        },
        outputs={"dq": "[B, heads, T, d]", "dk": "[B, heads, T, d]", "dv": "[B, heads, T, d]"},
        cases=attention_backward_cases,
        reference=attention_backward,
        solution=solutions.attention_backward,
        state=lambda q, k, v, mask: ops.attention(q, k, v, AttentionPattern(keys=mask))[1],
        hints=(
            "Compute the weights again, then go from the last line of the forward to the first.",
            "context = weights v is a product: dv = weightsᵀ dcontext, dweights = dcontext vᵀ.",
            "Then softmax_backward, then the product q kᵀ / √d: dq = dscores k / √d, dk = dscoresᵀ q / √d.",
        ),
        mistakes=(
            mistake(
                "1/√d is missing in the gradients of queries and keys",
                *QK_SCALE,
                ("dscores = dscores * scale", "dscores = dscores * 1.0"),
            ),
            mistake(
                "1/√d is missing in the gradient of the queries",
                "dq is not divided by √d.",
                "Both dq and dk carry the factor 1/√d.",
                ("dq = dscores @ k", "dq = dscores @ k / scale"),
            ),
            mistake(
                "1/√d is missing in the gradient of the keys",
                "dk is not divided by √d.",
                "Both dq and dk carry the factor 1/√d.",
                ("dk = dscores.swapaxes(-1, -2) @ q", "dk = dscores.swapaxes(-1, -2) @ q / scale"),
            ),
            mistake(
                "the softmax is skipped",
                "This is what comes out when the gradient of the weights is taken for that of the scores.",
                "Between scores and weights is the softmax: dscores = w · (dw - Σ dw w).",
                ("weights * (dweights - (dweights * weights).sum(-1, keepdims=True))", "dweights"),
            ),
            mistake(
                "the inner sum of the softmax is missing",
                "This is what comes out when the softmax passes w · dw: its inner sum is missing.",
                "dscores = w · (dw - Σ_j dw_j w_j).",
                ("(dweights - (dweights * weights).sum(-1, keepdims=True))", "dweights"),
            ),
            mistake(
                "the weights are not transposed in dv",
                "dv was made with the weights, not with their transpose.",
                "dv of key j adds over all queries i that looked at it: weightsᵀ dcontext.",
                ("dv = weights.swapaxes(-1, -2) @ dcontext", "dv = weights @ dcontext"),
            ),
            mistake(
                "the scores are not transposed in dk",
                "dk was made with dscores, not with its transpose.",
                "dk of key j adds over the queries: dscoresᵀ q.",
                ("dk = dscores.swapaxes(-1, -2) @ q", "dk = dscores @ q"),
            ),
            mistake(
                "the gradients of queries and keys are exchanged",
                "dq and dk are exchanged.",
                "dq = dscores k, and dk = dscoresᵀ q.",
                ("return dq, dk, dv", "return dk, dq, dv"),
            ),
            mistake(
                "the mask is forgotten",
                "This is right without padding. With padding, the weights were computed without the mask.",
                "Compute the weights exactly as the forward did, with the mask.",
                ("mask[:, None, None, :] != 0", "mask[:, None, None, :] != 2"),
            ),
        ),
        library=ops.attention_backward,
        digits=8,
    )
)
