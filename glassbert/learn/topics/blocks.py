"""Exercises of the building blocks: embedding, linear map, activations, layer norm, feed-forward."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.layers.feed_forward import FeedForward
from glassbert.learn.exercise import Exercise, mistake, register
from glassbert.learn.solutions import blocks as solutions


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


ONE_ROW = "one row"
ORDINARY = "ordinary"


def embedding_cases():
    table = random(7, 4)
    return {
        ORDINARY: {"table": table, "ids": np.array([[3, 1, 3], [0, 2, 1]])},
        "the last ids": {"table": table, "ids": np.array([[6, 5, 4, 6]])},
    }


register(
    Exercise(
        "embedding",
        lesson=1,
        task="Look up one row of the table for every id.",
        shapes={"table": "[V, H]", "ids": "[B, T], whole numbers below V"},
        outputs={"y": "[B, T, H]"},
        cases=embedding_cases,
        reference=lambda table, ids: ops.embedding(table, ids)[0],
        solution=solutions.embedding,
        hints=(
            "A table has one row for every word. The id is the number of the row.",
            "NumPy indexes with whole arrays: x[ids] takes one entry along the first axis for each id.",
        ),
        mistakes=(
            mistake(
                "columns instead of rows",
                "This is what comes out when ids choose columns of the table instead of rows.",
                "The first axis of the table counts words: table[ids], not table[:, ids].",
                ("table[ids]", "table[:, ids]"),
            ),
            mistake(
                "columns instead of rows",
                "This is what comes out when ids choose columns of the table instead of rows.",
                "The first axis of the table counts words. Do not transpose it.",
                ("table[ids]", "table.T[ids]"),
            ),
            mistake(
                "ids counted from 1",
                "This is what comes out when ids are counted from 1.",
                "Id 0 is the first row of the table.",
                ("table[ids]", "table[ids - 1]"),
            ),
            mistake(
                "only the first row of ids",
                "This is what comes out when only the first row of the batch is looked up.",
                "ids has two axes, rows and positions. Look all of them up at once.",
                ("table[ids]", "table[ids[0]]"),
            ),
        ),
        library=ops.embedding,
    )
)


def linear_cases():
    return {
        ORDINARY: {"x": random(2, 3, 5), "weight": random(4, 5), "bias": random(4)},
        "square weight": {"x": random(2, 3, 4), "weight": random(4, 4), "bias": random(4)},
    }


register(
    Exercise(
        "linear",
        lesson=1,
        task="The linear map y = x Wᵀ + b. The weight is stored as [output, input].",
        shapes={"x": "[B, T, I]", "weight": "[O, I]", "bias": "[O]"},
        outputs={"y": "[B, T, O]"},
        cases=linear_cases,
        reference=lambda x, weight, bias: ops.linear(x, weight, bias)[0],
        solution=solutions.linear,
        hints=(
            "Every output is a dot product of x with one row of the weight, plus one number of the bias.",
            "The weight is [O, I], and a product needs [I, O] on its right side.",
        ),
        mistakes=(
            mistake(
                "the bias is forgotten",
                "This is what comes out when the bias is not added.",
                "y = x Wᵀ + b. The bias has one number for each output.",
                ("y + bias", "y"),
            ),
            mistake(
                "the weight is not transposed",
                "This is what happens when x is multiplied by W instead of by Wᵀ.",
                "The weight is [O, I]. A product of [.., I] needs [I, O] on its right.",
                ("weight.T", "weight"),
            ),
            mistake(
                "the bias is subtracted",
                "This is what comes out when the bias is subtracted.",
                "The bias is added.",
                ("y + bias", "y - bias"),
            ),
            mistake(
                "the bias is added before the product",
                "This is what happens when the bias is added to x, before the product.",
                "The bias belongs to the outputs: it has O numbers. Add it after the product.",
                ("x @ weight.T", "(x + bias) @ weight.T"),
                ("y + bias", "y"),
            ),
        ),
        library=ops.linear,
    )
)


def activation_cases():
    return {
        ORDINARY: {"x": random(3, 5)},
        "from -4 to 4": {"x": np.linspace(-4.0, 4.0, 17)},
        "zero and large": {"x": np.array([[0.0, -0.0, 60.0, -60.0, 1e-9]])},
    }


register(
    Exercise(
        "relu",
        lesson=2,
        task="ReLU: negative values become 0, the others stay.",
        shapes={"x": "any shape"},
        outputs={"y": "the shape of x"},
        cases=activation_cases,
        reference=lambda x: ops.relu(x)[0],
        solution=solutions.relu,
        hints=("relu(x) is the larger of x and 0.", "np.maximum compares entry by entry; np.max finds one number."),
        mistakes=(
            mistake(
                "the absolute value",
                "This is |x|: negative values have become positive.",
                "Below zero the result is 0, not -x.",
                ("np.maximum(x, 0)", "np.abs(x)"),
            ),
            mistake(
                "the smaller of x and 0",
                "This keeps the negative values and drops the positive ones.",
                "ReLU is the maximum of x and 0.",
                ("np.maximum(x, 0)", "np.minimum(x, 0)"),
            ),
            mistake(
                "0 and 1 instead of the values",
                "This is 1 where x is positive: the slope of ReLU, not its value.",
                "Multiply by x, or take the maximum.",
                ("np.maximum(x, 0)", "(x > 0).astype(float)"),
            ),
            mistake(
                "a leaky slope below zero",
                "This lets a hundredth of the negative values through: a leaky ReLU.",
                "Below zero the result is exactly 0.",
                ("np.maximum(x, 0)", "np.where(x > 0, x, 0.01 * x)"),
            ),
        ),
        library=ops.relu,
    )
)

register(
    Exercise(
        "gelu",
        lesson=2,
        task="GELU, exact: x · Φ(x), where Φ(x) = (1 + erf(x / √2)) / 2. math.erf takes one number at a time.",
        shapes={"x": "any shape"},
        outputs={"y": "the shape of x"},
        cases=activation_cases,
        reference=lambda x: ops.gelu(x)[0],
        solution=solutions.gelu,
        hints=(
            "Φ(0) is a half, Φ of a large number is 1.",
            "np.vectorize(math.erf, otypes=[float]) makes a function for arrays.",
        ),
        mistakes=(
            mistake(
                "the tanh approximation",
                "This is the approximation with tanh. It is right to three digits.",
                "The exercise asks for the exact GELU, with erf.",
                (
                    "0.5 * (1.0 + erf(x / math.sqrt(2.0)))",
                    "0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))",
                ),
            ),
            mistake(
                "the sigmoid approximation",
                "This is x · σ(1.702 x), an approximation that is right to two digits.",
                "The exercise asks for the exact GELU, with erf.",
                ("0.5 * (1.0 + erf(x / math.sqrt(2.0)))", "1 / (1 + np.exp(-1.702 * x))"),
            ),
            mistake(
                "erf without the division by √2",
                "This is what comes out when erf is taken of x instead of x / √2.",
                "Φ(x) = (1 + erf(x / √2)) / 2. Without √2 it is another normal distribution, with half the variance.",
                ("erf(x / math.sqrt(2.0))", "erf(x)"),
            ),
            mistake(
                "the factor x is missing",
                "This is Φ(x). GELU is x · Φ(x).",
                "For large x GELU is x itself; your answer is 1 there.",
                ("x * cdf", "cdf"),
            ),
            mistake(
                "the half is missing",
                "This is twice the right answer: the factor 1/2 of Φ is missing.",
                "1 + erf goes from 0 to 2, and a probability from 0 to 1.",
                ("0.5 * (1.0", "(1.0"),
            ),
            mistake(
                "swish instead of GELU",
                "This is x · σ(x), called swish or SiLU.",
                "GELU has the normal distribution function where swish has the sigmoid.",
                ("0.5 * (1.0 + erf(x / math.sqrt(2.0)))", "1 / (1 + np.exp(-x))"),
            ),
        ),
        library=ops.gelu,
        digits=8,
    )
)


def norm_cases():
    x = random(2, 3, 6)
    gamma, beta = 1.0 + 0.5 * random(6, seed=1), random(6, seed=2)
    return {
        ORDINARY: {"x": x, "gamma": gamma, "beta": beta, "eps": 1e-5},
        "far from zero": {"x": 3.0 * x + 20.0, "gamma": gamma, "beta": beta, "eps": 1e-5},
        "a constant row": {"x": np.zeros((1, 2, 6)) + 5.0, "gamma": gamma, "beta": beta, "eps": 1e-2},
        "large eps": {"x": 0.1 * x, "gamma": gamma, "beta": beta, "eps": 0.5},
    }


WRONG_AXIS = (
    "This is what comes out when mean and variance are taken over the wrong axis.",
    "Every token is normalised by itself: along the last axis, its H features.",
)

register(
    Exercise(
        "layer_norm",
        lesson=3,
        task="Every row to mean 0 and variance 1, then y = gamma · x̂ + beta. eps is added to the variance.",
        shapes={"x": "[B, T, H]", "gamma": "[H]", "beta": "[H]", "eps": "a number"},
        outputs={"y": "[B, T, H]"},
        cases=norm_cases,
        reference=lambda x, gamma, beta, eps: ops.layer_norm(x, gamma, beta, eps)[0],
        solution=solutions.layer_norm,
        hints=(
            "A row is one token's features: mean and variance along the last axis, with keepdims=True.",
            "x̂ = (x - mean) / sqrt(var + eps). The variance is the mean of the squares, it divides by H.",
        ),
        mistakes=(
            mistake(
                "divided by the variance, not by its root",
                "This is what comes out when x is divided by the variance instead of by its root.",
                "The unit of the variance is x². Only its root has the unit of x.",
                ("np.sqrt(variance + eps)", "(variance + eps)"),
            ),
            mistake(
                "the variance divides by H - 1",
                "This is what comes out when the variance divides by H - 1 (ddof=1).",
                "H - 1 estimates the variance of a population. Layer norm takes the row as it is and divides by H.",
                ("(centred * centred).mean(-1, keepdims=True)", "x.var(-1, ddof=1, keepdims=True)"),
            ),
            mistake(
                "mean and variance over the wrong axis",
                *WRONG_AXIS,
                ("x.mean(-1, keepdims=True)", "x.mean(0, keepdims=True)"),
                ("(centred * centred).mean(-1, keepdims=True)", "(centred * centred).mean(0, keepdims=True)"),
            ),
            mistake(
                "mean and variance over the wrong axis",
                *WRONG_AXIS,
                ("x.mean(-1, keepdims=True)", "x.mean(1, keepdims=True)"),
                ("(centred * centred).mean(-1, keepdims=True)", "(centred * centred).mean(1, keepdims=True)"),
            ),
            mistake(
                "mean and variance over the wrong axis",
                *WRONG_AXIS,
                ("x.mean(-1, keepdims=True)", "x.mean()"),
                ("(centred * centred).mean(-1, keepdims=True)", "(centred * centred).mean()"),
            ),
            mistake(
                "eps is added to the root",
                "This is what comes out when eps is added after the root.",
                "rstd = 1 / sqrt(var + eps): eps is inside the root.",
                ("np.sqrt(variance + eps)", "(np.sqrt(variance) + eps)"),
            ),
            mistake(
                "the mean is not subtracted",
                "This is what comes out when x is divided by its spread, but the mean stays in.",
                "x̂ has mean 0: subtract the mean first.",
                ("x_hat = centred /", "x_hat = x /"),
            ),
            mistake(
                "beta is forgotten",
                "This is what comes out when beta is not added.",
                "y = gamma · x̂ + beta.",
                ("gamma * x_hat + beta", "gamma * x_hat"),
            ),
            mistake(
                "gamma also multiplies beta",
                "This is gamma · (x̂ + beta).",
                "gamma scales x̂ alone; beta is added afterwards.",
                ("gamma * x_hat + beta", "gamma * (x_hat + beta)"),
            ),
            mistake(
                "eps is forgotten",
                "This is right but for eps: it is nearly right, and infinite for a constant row.",
                "A row whose numbers are all equal has variance 0. eps keeps the division defined.",
                ("np.sqrt(variance + eps)", "np.sqrt(variance)"),
            ),
        ),
        library=ops.layer_norm,
        digits=8,
    )
)


def feed_forward_cases():
    return {
        ORDINARY: {
            "x": random(2, 3, 4),
            "up_weight": random(8, 4),
            "up_bias": random(8),
            "down_weight": random(4, 8),
            "down_bias": random(4),
        }
    }


def feed_forward(x, up_weight, up_bias, down_weight, down_bias):
    hidden, _ = ops.relu(ops.linear(x, up_weight, up_bias)[0])
    return ops.linear(hidden, down_weight, down_bias)[0]


register(
    Exercise(
        "feed_forward",
        lesson=3,
        task="One forward pass of the feed-forward layer: a linear map up, ReLU, a linear map down.",
        shapes={
            "x": "[B, T, H]",
            "up_weight": "[I, H]",
            "up_bias": "[I]",
            "down_weight": "[H, I]",
            "down_bias": "[H]",
        },
        outputs={"y": "[B, T, H]"},
        cases=feed_forward_cases,
        reference=feed_forward,
        solution=solutions.feed_forward,
        hints=("There are three steps: up, ReLU, down.", "Both maps are x Wᵀ + b; ReLU is between them."),
        mistakes=(
            mistake(
                "no activation between the two maps",
                "This is what comes out when there is no ReLU between the two maps.",
                "Two linear maps in a row are one linear map. Only the ReLU makes the wide layer worth anything.",
                ("np.maximum(hidden, 0)", "hidden"),
            ),
            mistake(
                "the activation is at the end",
                "This is what comes out when ReLU is applied after the second map.",
                "ReLU is between the maps. The output of the layer must be able to be negative.",
                ("activated @ down_weight.T + down_bias", "np.maximum(hidden @ down_weight.T + down_bias, 0)"),
            ),
            mistake(
                "the activation comes first",
                "This is what comes out when ReLU is applied to x, before the first map.",
                "ReLU is between the maps.",
                ("hidden = x @", "hidden = np.maximum(x, 0) @"),
                ("np.maximum(hidden, 0)", "hidden"),
            ),
            mistake(
                "the second bias is forgotten",
                "This is what comes out when the bias of the second map is not added.",
                "Both maps have a bias.",
                ("down_weight.T + down_bias", "down_weight.T"),
            ),
            mistake(
                "the first bias is forgotten",
                "This is what comes out when the bias of the first map is not added.",
                "Both maps have a bias.",
                ("up_weight.T + up_bias", "up_weight.T"),
            ),
        ),
        library=FeedForward.forward,
    )
)
