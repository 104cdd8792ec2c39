"""Exercises of attention: softmax, heads, masked attention, entropy."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.insight import attention_entropy
from glassbert.layers.attention import heads_first
from glassbert.learn.exercise import Exercise, mistake, register
from glassbert.learn.solutions import blocks as solutions
from glassbert.learn.topics.blocks import ORDINARY, random
from glassbert.ops.attention import AttentionPattern, split_heads


def softmax_cases():
    return {
        ORDINARY: {"x": random(2, 3, 5)},
        "square": {"x": random(4, 4)},
        "large scores": {"x": 1000.0 * random(2, 3, 4)},
    }


register(
    Exercise(
        "softmax",
        lesson=4,
        task="Weights that are positive and add up to 1 along the last axis. Scores may be as large as 1000.",
        shapes={"x": "[..., T]"},
        outputs={"y": "[..., T]"},
        cases=softmax_cases,
        reference=lambda x: ops.softmax(x)[0],
        solution=solutions.softmax,
        hints=(
            "exp of the scores, divided by the sum of the row.",
            "exp(1000) is infinite. Subtracting the same number from all scores of a row changes nothing.",
        ),
        mistakes=(
            mistake(
                "the maximum is not subtracted",
                "This is right for small scores and NaN for large ones: exp overflows.",
                "exp(x - c) / Σ exp(x - c) is the same for every c. Take the largest score of the row as c.",
                ("x - x.max(-1, keepdims=True)", "x"),
            ),
            mistake(
                "normalised over everything, not along the last axis",
                "This is what comes out when all entries together add up to 1.",
                "Every row is a distribution of its own: sum along the last axis with keepdims=True.",
                ("x.max(-1, keepdims=True)", "x.max()"),
                ("exponentials.sum(-1, keepdims=True)", "exponentials.sum()"),
            ),
            mistake(
                "normalised over everything, not along the last axis",
                "This is what comes out when all entries together add up to 1.",
                "Every row is a distribution of its own: sum along the last axis with keepdims=True.",
                ("exponentials.sum(-1, keepdims=True)", "exponentials.sum()"),
            ),
            mistake(
                "normalised along the wrong axis",
                "This is what comes out when the sum runs along the first axis.",
                "Rows must add up to 1, so the sum runs along the last axis.",
                ("exponentials.sum(-1, keepdims=True)", "exponentials.sum(0, keepdims=True)"),
            ),
            mistake(
                "normalised along the wrong axis",
                "This is what comes out when the sum runs along the last axis but one.",
                "Rows must add up to 1, so the sum runs along the last axis.",
                ("exponentials.sum(-1, keepdims=True)", "exponentials.sum(-2, keepdims=True)"),
            ),
            mistake(
                "not divided by the sum",
                "These are the exponentials. They are positive, but do not add up to 1.",
                "Divide by the sum of the row.",
                (" / exponentials.sum(-1, keepdims=True)", ""),
            ),
            mistake(
                "not divided by the sum",
                "These are the exponentials. They are positive, but do not add up to 1.",
                "Divide by the sum of the row.",
                ("x - x.max(-1, keepdims=True)", "x"),
                (" / exponentials.sum(-1, keepdims=True)", ""),
            ),
            mistake(
                "one maximum for all rows",
                "This subtracts the largest score of the whole array. Rows far below it become 0 / 0.",
                "Take the maximum of each row: x.max(-1, keepdims=True).",
                ("x.max(-1, keepdims=True)", "x.max()"),
            ),
        ),
        library=ops.softmax,
        digits=8,
    )
)

register(
    Exercise(
        "split_heads",
        lesson=5,
        task="Cut the H features of each token into heads of d = H / heads. Head h has features h·d to (h + 1)·d.",
        shapes={"x": "[B, T, H]", "heads": "a whole number that divides H"},
        outputs={"y": "[B, heads, T, d]"},
        cases=lambda: {
            ORDINARY: {"x": random(2, 3, 8), "heads": 4},
            "as many heads as tokens": {"x": random(1, 4, 8), "heads": 4},
        },
        reference=lambda x, heads: heads_first(x.reshape(*x.shape[:2], heads, -1)),
        solution=solutions.split_heads,
        hints=(
            "First cut the last axis: [B, T, H] becomes [B, T, heads, d].",
            "Then exchange the axes of tokens and heads. A reshape cannot exchange axes.",
        ),
        mistakes=(
            mistake(
                "reshaped without exchanging axes",
                "This has the right shape, but a head holds parts of several tokens: a reshape alone.",
                "reshape keeps the order in memory. Cut the last axis first, then exchange two axes with transpose.",
                ("x.reshape(batch, length, heads, size // heads)", "x.reshape(batch, heads, length, size // heads)"),
                ("parts.transpose(0, 2, 1, 3)", "parts"),
            ),
            mistake(
                "neighbouring features go to different heads",
                "This distributes the features in turn: feature i goes to head i modulo heads.",
                "Head h has the features h·d to (h + 1)·d, which lie side by side: reshape to [.., heads, d].",
                ("x.reshape(batch, length, heads, size // heads)", "x.reshape(batch, length, size // heads, heads)"),
                ("parts.transpose(0, 2, 1, 3)", "parts.transpose(0, 3, 1, 2)"),
            ),
            mistake(
                "the axes are not exchanged",
                "This is [B, T, heads, d]: cut rightly, but tokens still stand before heads.",
                "Exchange axes 1 and 2, so that each head sees all tokens.",
                ("parts.transpose(0, 2, 1, 3)", "parts"),
            ),
            mistake(
                "features and tokens exchanged",
                "This is [B, heads, d, T]: the last two axes are exchanged.",
                "The order is batch, heads, tokens, features.",
                ("parts.transpose(0, 2, 1, 3)", "parts.transpose(0, 2, 3, 1)"),
            ),
        ),
        library=split_heads,
    )
)


def attention_cases():
    shape = (2, 2, 4, 3)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]])
    q, k, v = (random(*shape, seed=s) for s in (1, 2, 3))
    return {
        "no padding": {"q": q, "k": k, "v": v, "mask": np.ones((2, 4), int)},
        "padding": {"q": q, "k": k, "v": v, "mask": mask},
        "large scores": {"q": 60.0 * q, "k": 60.0 * k, "v": v, "mask": mask},
    }


def attention(q, k, v, mask):
    return ops.attention(q, k, v, AttentionPattern(keys=mask))[0]


register(
    Exercise(
        "attention",
        lesson=5,
        task="softmax(q kᵀ / √d) v. Keys whose mask is 0 get the weight 0; the others add up to 1.",
        shapes={"q": "[B, heads, T, d]", "k": "[B, heads, T, d]", "v": "[B, heads, T, d]", "mask": "[B, T], 1 or 0"},
        outputs={"context": "[B, heads, T, d]"},
        cases=attention_cases,
        reference=attention,
        solution=solutions.attention,
        hints=(
            "Four steps: scores, mask, softmax over the keys, weighted sum of the values.",
            "scores[b, h, i, j] belongs to query i and key j. The mask is about keys: mask[:, None, None, :].",
            "A masked key gets a score of -1e30 before the softmax; then its weight is exactly 0.",
        ),
        mistakes=(
            mistake(
                "1/√d is missing",
                "This is what comes out when the scores are not divided by √d.",
                "A dot product of d terms grows with √d. Without the division the softmax becomes sharp.",
                ("scores / math.sqrt(q.shape[-1])", "scores"),
            ),
            mistake(
                "divided by d, not by √d",
                "This is what comes out when the scores are divided by d instead of √d.",
                "The spread of a sum of d terms grows with √d.",
                ("scores / math.sqrt(q.shape[-1])", "scores / q.shape[-1]"),
            ),
            mistake(
                "divided by √T, not by √d",
                "This is what comes out when the scores are divided by the root of the length.",
                "d is the size of a head, the last axis of q.",
                ("math.sqrt(q.shape[-1])", "math.sqrt(q.shape[-2])"),
            ),
            mistake(
                "masked after the softmax",
                "This is what comes out when weights are set to 0 after the softmax: they no longer add up to 1.",
                "Mask the scores, before the softmax, with a large negative number.",
                ("np.where(mask[:, None, None, :] != 0, scores, -1e30)", "scores"),
                ("weights.sum(-1, keepdims=True)", "weights.sum(-1, keepdims=True) * mask[:, None, None, :]"),
            ),
            mistake(
                "masked with 0, not with a large negative number",
                "This is what comes out when masked scores become 0: exp(0) is 1, so padding gets a weight.",
                "A weight of 0 needs a score of minus infinity, or -1e30.",
                ("scores, -1e30)", "scores, 0.0)"),
            ),
            mistake(
                "the mask is inverted",
                "This is what comes out when real tokens are hidden and padding is seen.",
                "1 marks a real token. Scores stay where the mask is 1.",
                ("!= 0, scores", "== 0, scores"),
            ),
            mistake(
                "the mask is inverted",
                "This is what comes out when real tokens are hidden and padding is seen.",
                "1 marks a real token. What is added to the scores must be 0 there: (1 - mask) * -1e9.",
                ("np.where(mask[:, None, None, :] != 0, scores, -1e30)", "scores + mask[:, None, None, :] * -1e9"),
            ),
            mistake(
                "the mask hides queries, not keys",
                "This is what comes out when the mask is laid over the queries.",
                "The last axis of the scores counts keys: mask[:, None, None, :].",
                ("mask[:, None, None, :]", "mask[:, None, :, None]"),
            ),
            mistake(
                "the mask is forgotten",
                "This is right without padding. With padding, the padding is seen.",
                "Use the mask: a padded key gets the weight 0.",
                ("np.where(mask[:, None, None, :] != 0, scores, -1e30)", "scores"),
            ),
            mistake(
                "softmax over the queries, not over the keys",
                "This is what comes out when the weights of a key add up to 1 over the queries.",
                "Each query distributes its attention over the keys: the sum runs along the last axis.",
                ("scores.max(-1, keepdims=True)", "scores.max(-2, keepdims=True)"),
                ("weights.sum(-1, keepdims=True)", "weights.sum(-2, keepdims=True)"),
            ),
            mistake(
                "softmax over the queries, not over the keys",
                "This is what comes out when the weights of a key add up to 1 over the queries.",
                "Each query distributes its attention over the keys: the sum runs along the last axis.",
                (
                    "np.where(mask[:, None, None, :] != 0, scores, -1e30)",
                    "scores + (1 - mask[:, None, None, :]) * -1e9",
                ),
                ("scores.max(-1, keepdims=True)", "scores.max(-2, keepdims=True)"),
                ("weights.sum(-1, keepdims=True)", "weights.sum(-2, keepdims=True)"),
            ),
            mistake(
                "queries and keys exchanged",
                "This is what comes out when keys ask and queries answer: scores = k qᵀ.",
                "Row i of the scores belongs to query i: q kᵀ.",
                ("q @ k.swapaxes(-1, -2)", "k @ q.swapaxes(-1, -2)"),
            ),
            mistake(
                "the maximum is not subtracted",
                "This is right for small scores and NaN for large ones: exp overflows.",
                "Subtract the largest score of each row before exp.",
                ("np.exp(scores - scores.max(-1, keepdims=True))", "np.exp(scores)"),
            ),
            mistake(
                "the keys are averaged, not the values",
                "This is weights · k.",
                "The weights come from queries and keys; what is averaged are the values.",
                ("weights @ v", "weights @ k"),
            ),
        ),
        library=ops.attention,
        digits=8,
    )
)


def entropy_cases():
    weights = ops.softmax(2.0 * random(2, 3, 5))[0]
    one_key = np.zeros((1, 2, 4))
    one_key[..., 1] = 1.0
    return {
        ORDINARY: {"weights": weights},
        "all weight on one key": {"weights": one_key},
        "equal weights": {"weights": np.full((1, 2, 4), 0.25)},
    }


register(
    Exercise(
        "attention_entropy",
        lesson=6,
        task="The entropy of each query's weights, in nats. It is 0 when all weight lies on one key.",
        shapes={"weights": "[..., T, T], rows add up to 1"},
        outputs={"entropy": "[..., T]"},
        cases=entropy_cases,
        reference=lambda weights: attention_entropy(weights),
        solution=solutions.attention_entropy,
        hints=(
            "H = -Σ a log a, along the last axis.",
            "log 0 is minus infinity, and 0 · log 0 must count as 0: limit the weights from below inside the log.",
        ),
        mistakes=(
            mistake(
                "logarithm in base 2",
                "This is the entropy in bits: the logarithm has base 2.",
                "Nats use the natural logarithm, np.log.",
                ("np.log(", "np.log2("),
            ),
            mistake(
                "the sign is wrong",
                "This is the negative of the entropy.",
                "The logarithm of a weight is negative; the minus sign makes the entropy positive.",
                ("-(weights * logs)", "(weights * logs)"),
            ),
            mistake(
                "0 · log 0 is NaN",
                "This is right, but NaN where a weight is 0.",
                "np.log(np.maximum(weights, 1e-30)) keeps the logarithm finite; times 0 it is 0.",
                ("np.log(np.maximum(weights, 1e-30))", "np.log(weights)"),
            ),
            mistake(
                "the sum runs over the queries",
                "This is what comes out when the sum runs over the queries.",
                "Each query has an entropy of its own: sum along the last axis.",
                (".sum(-1)", ".sum(-2)"),
            ),
            mistake(
                "divided by the entropy of equal weights",
                "This is the entropy as a share of log T.",
                "The exercise asks for nats.",
                (".sum(-1)", ".sum(-1) / np.log(weights.shape[-1])"),
            ),
            mistake(
                "the mean instead of the sum",
                "This is what comes out when the terms are averaged instead of added.",
                "Entropy is a sum over the keys.",
                (".sum(-1)", ".mean(-1)"),
            ),
        ),
        library=attention_entropy,
        digits=8,
    )
)
