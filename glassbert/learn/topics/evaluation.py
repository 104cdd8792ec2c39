"""Exercises of evaluation and mastery: perplexity, calibration, rotary positions, power law, tiled softmax."""

from __future__ import annotations

import numpy as np

from glassbert import metrics, ops
from glassbert.evaluation.scaling.law import fit_law
from glassbert.learn.exercise import Exercise, Inputs, mistake, register
from glassbert.learn.solutions import gradients, training
from glassbert.learn.topics.blocks import ORDINARY, random
from glassbert.ops.rotary import rotary_angles

register(
    Exercise(
        "perplexity",
        lesson=14,
        task="exp of the mean loss of a token. Batches have different numbers of targets.",
        shapes={"losses": "the mean loss of each batch", "counts": "the number of targets of each batch"},
        outputs={"perplexity": "a number"},
        cases=lambda: {
            "unequal batches": {"losses": np.array([2.0, 4.0, 3.0]), "counts": np.array([100, 10, 40])},
            "equal batches": {"losses": np.array([2.5, 3.5]), "counts": np.array([8, 8])},
        },
        reference=lambda losses, counts: metrics.perplexity(losses * counts, counts),
        solution=training.perplexity,
        hints=(
            "First the mean loss of a token over all batches, then exp.",
            "A batch of 100 targets counts ten times as much as a batch of 10.",
        ),
        mistakes=(
            mistake(
                "the mean of the batches' means",
                "This is what comes out when every batch counts the same, whatever its number of targets.",
                "Weigh the mean of each batch by its number of targets.",
                ("(losses * counts).sum() / counts.sum()", "losses.mean()"),
            ),
            mistake(
                "the mean of the perplexities",
                "This is a mean of perplexities: exp came before the mean.",
                "exp of the mean, not mean of the exps: one bad batch would rule everything.",
                ("mean = (losses * counts).sum() / counts.sum()", "mean = np.log(np.exp(losses).mean())"),
            ),
            mistake(
                "the mean of the perplexities",
                "This is a mean of perplexities: exp came before the mean.",
                "exp of the mean, not mean of the exps: one bad batch would rule everything.",
                (
                    "mean = (losses * counts).sum()",
                    "mean = np.log((np.exp(losses) * counts).sum() / counts.sum()) if 1 else 0",
                ),
            ),
            mistake(
                "2 to the power of the loss",
                "This is 2 to the power of the mean loss.",
                "The loss is in nats: the base is e.",
                ("np.exp(mean)", "2.0**mean"),
            ),
            mistake(
                "the loss without exp",
                "This is the mean loss. Perplexity is exp of it.",
                "Take exp of the mean.",
                ("np.exp(mean)", "mean"),
            ),
        ),
        library=metrics.perplexity,
    )
)


def calibration_cases():
    generator = np.random.default_rng(5)
    confidence = 0.5 + 0.5 * generator.random(40) ** 0.5
    confidence[:3] = 0.07, 0.13, 1.0
    correct = (generator.random(40) < confidence**2).astype(float)
    return {
        ORDINARY: {"confidence": confidence, "correct": correct, "bins": 10},
        "five bins": {"confidence": confidence[::-1].copy(), "correct": correct, "bins": 5},
    }


register(
    Exercise(
        "calibration_error",
        lesson=15,
        task=(
            "The expected calibration error: sort predictions into equal bins of confidence, take |mean confidence - "
            "share correct| in each, and average over the bins by their number of predictions."
        ),
        shapes={"confidence": "[N], in (0, 1]", "correct": "[N], 1 or 0", "bins": "number of bins"},
        outputs={"error": "a number"},
        cases=calibration_cases,
        reference=lambda confidence, correct, bins: metrics.expected_calibration_error(correct, confidence, bins),
        solution=training.calibration_error,
        hints=(
            "The bin of a prediction is confidence · bins, rounded down; a confidence of 1 belongs to the last bin.",
            "Empty bins have no gap. A bin with a third of the predictions has a third of the weight.",
        ),
        mistakes=(
            mistake(
                "bins are not weighted by their size",
                "This is what comes out when every bin counts the same, however few predictions it has.",
                "Weigh each gap by the share of the predictions in its bin.",
                ("error = 0.0", "error, full = 0.0, len(np.unique(index))"),
                ("inside.mean() * gap", "gap / full"),
            ),
            mistake(
                "bins are not weighted by their size",
                "This is what comes out when every bin counts the same, empty ones too.",
                "Weigh each gap by the share of the predictions in its bin.",
                ("inside.mean() * gap", "gap / bins"),
            ),
            mistake(
                "the gaps have a sign",
                "Here a bin that is too sure and one that is too timid cancel each other.",
                "Take the absolute value of every gap.",
                (
                    "abs(confidence[inside].mean() - correct[inside].mean())",
                    "confidence[inside].mean() - correct[inside].mean()",
                ),
            ),
            mistake(
                "the gaps have a sign",
                "Here a bin that is too sure and one that is too timid cancel each other.",
                "Take the absolute value of every gap.",
                (
                    "abs(confidence[inside].mean() - correct[inside].mean())",
                    "correct[inside].mean() - confidence[inside].mean()",
                ),
            ),
            mistake(
                "no bins: the gap of every single prediction",
                "This is the mean of |confidence - correct| over predictions, without bins.",
                "One prediction is right or wrong; only a group of them has a share of right ones.",
                (
                    "error += inside.mean() * gap",
                    "error += abs(confidence[inside] - correct[inside]).sum() / len(correct)",
                ),
            ),
            mistake(
                "the middle of the bin instead of the mean confidence",
                "This compares with the middle of each bin.",
                "Take the mean confidence of the predictions in the bin.",
                ("abs(confidence[inside].mean()", "abs((b + 0.5) / bins"),
            ),
            mistake(
                "a confidence of 1 falls out of the last bin",
                "Predictions with a confidence of 1 were left out.",
                "The last bin includes its upper end: limit the index to bins - 1.",
                ("np.minimum((confidence * bins).astype(int), bins - 1)", "(confidence * bins).astype(int)"),
            ),
        ),
        library=metrics.expected_calibration_error,
    )
)


def rotary_cases(name: str = "x") -> dict[str, Inputs]:
    cos, sin = rotary_angles(np.arange(4)[None], 6, 100.0, np.dtype(np.float64))
    later, sine = rotary_angles(np.arange(10, 13)[None], 4, 10_000.0, np.dtype(np.float64))
    return {
        ORDINARY: {name: random(2, 4, 3, 6), "cos": cos, "sin": sin},
        "later positions": {name: random(1, 3, 2, 4), "cos": later, "sin": sine},
    }


ROTARY_SHAPES = {"cos": "[1, T, 1, d/2]", "sin": "[1, T, 1, d/2]"}

register(
    Exercise(
        "rotary",
        lesson=16,
        task="Rotate the pairs (x_i, x_(i + d/2)): y₁ = x₁ cos - x₂ sin, y₂ = x₂ cos + x₁ sin.",
        shapes={"x": "[B, T, heads, d]", **ROTARY_SHAPES},
        outputs={"y": "[B, T, heads, d]"},
        cases=rotary_cases,
        reference=lambda x, cos, sin: ops.rotary(x, cos, sin)[0],
        solution=training.rotary,
        hints=(
            "Cut the last axis into two halves: a pair has one feature from each.",
            "A rotation by θ: (x₁, x₂) becomes (x₁ cos θ - x₂ sin θ, x₂ cos θ + x₁ sin θ).",
        ),
        mistakes=(
            mistake(
                "neighbours are paired, not the two halves",
                "This rotates neighbouring features, (x₀, x₁), (x₂, x₃): the layout of GPT-J.",
                "Here feature i is paired with feature i + d/2: cut the last axis into halves.",
                ("x1, x2 = x[..., :half], x[..., half:]", "x1, x2 = x[..., 0::2], x[..., 1::2]"),
                (
                    "np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)",
                    "np.stack([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).reshape(x.shape)",
                ),
            ),
            mistake(
                "rotated backwards",
                "This rotates by -θ: the signs of the sines are exchanged.",
                "y₁ has the minus, y₂ the plus.",
                ("x1 * cos - x2 * sin, x2 * cos + x1 * sin", "x1 * cos + x2 * sin, x2 * cos - x1 * sin"),
            ),
            mistake(
                "both signs are plus",
                "This is no rotation: both sines have a plus, and lengths change.",
                "One of the two has a minus: y₁ = x₁ cos - x₂ sin.",
                ("x1 * cos - x2 * sin", "x1 * cos + x2 * sin"),
            ),
            mistake(
                "the halves are exchanged",
                "The two halves of the result are exchanged.",
                "The first half of y is x₁ cos - x₂ sin.",
                ("x1 * cos - x2 * sin, x2 * cos + x1 * sin", "x2 * cos + x1 * sin, x1 * cos - x2 * sin"),
            ),
            mistake(
                "the second half takes the rotated first half",
                "The second half was made with the new first half instead of the old one.",
                "Keep x₁ until both halves are computed.",
                (
                    "return np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)",
                    "x1 = x1 * cos - x2 * sin\n    return np.concatenate([x1, x2 * cos + x1 * sin], -1)",
                ),
            ),
        ),
        library=ops.rotary,
    )
)

register(
    Exercise(
        "rotary_backward",
        lesson=16,
        task="y = rotary(x) has the gradient dy. Return the gradient of x.",
        shapes={"dy": "[B, T, heads, d]", **ROTARY_SHAPES},
        outputs={"dx": "[B, T, heads, d]"},
        cases=lambda: rotary_cases("dy"),
        reference=lambda dy, cos, sin: ops.rotary_backward(dy, (cos, sin)),
        solution=gradients.rotary_backward,
        hints=(
            "The gradient of a linear map is its transpose.",
            "The transpose of a rotation is the rotation back: the sign of the sine changes.",
        ),
        mistakes=(
            mistake(
                "rotated forward again",
                "This rotates by θ once more. The gradient goes back by -θ.",
                "The transpose of a rotation is its inverse: exchange the signs of the sines.",
                ("d1 * cos + d2 * sin, d2 * cos - d1 * sin", "d1 * cos - d2 * sin, d2 * cos + d1 * sin"),
            ),
            mistake(
                "both signs are plus",
                "Both sines have a plus: this is no rotation.",
                "d₁ cos + d₂ sin, and d₂ cos - d₁ sin.",
                ("d2 * cos - d1 * sin", "d2 * cos + d1 * sin"),
            ),
            mistake(
                "the gradient is not rotated",
                "This is dy unchanged.",
                "x was rotated, so the gradient is rotated back.",
                ("np.concatenate([d1 * cos + d2 * sin, d2 * cos - d1 * sin], -1)", "1.0 * dy"),
            ),
            mistake(
                "neighbours are paired, not the two halves",
                "This rotates neighbouring features instead of the two halves.",
                "Feature i is paired with feature i + d/2.",
                ("d1, d2 = dy[..., :half], dy[..., half:]", "d1, d2 = dy[..., 0::2], dy[..., 1::2]"),
                (
                    "np.concatenate([d1 * cos + d2 * sin, d2 * cos - d1 * sin], -1)",
                    "np.stack([d1 * cos + d2 * sin, d2 * cos - d1 * sin], -1).reshape(dy.shape)",
                ),
            ),
        ),
        library=ops.rotary_backward,
    )
)


def power_law(sizes, losses):
    """A straight line through the logarithms, by the normal equations."""
    design = np.stack([np.ones(len(sizes)), np.log(sizes)], 1)
    intercept, slope = np.linalg.lstsq(design, np.log(losses), rcond=None)[0]
    return -slope, np.exp(intercept)


register(
    Exercise(
        "power_law",
        lesson=17,
        task="Fit loss = factor · size^(-exponent) by a straight line through the logarithms (least squares).",
        shapes={"sizes": "[N]", "losses": "[N]"},
        outputs={"exponent": "a number", "factor": "a number"},
        cases=lambda: {
            "a perfect law": {
                "sizes": np.array([1e4, 1e5, 1e6, 1e7]),
                "losses": 9.0 * np.array([1e4, 1e5, 1e6, 1e7]) ** -0.1,
            },
            "with noise": {"sizes": np.array([1e3, 4e3, 2e4, 9e4]), "losses": np.array([5.1, 4.2, 3.6, 2.9])},
        },
        reference=power_law,
        solution=training.power_law,
        hints=(
            "log loss = log factor - exponent · log size is a straight line.",
            "np.polyfit(x, y, 1) gives slope and intercept.",
        ),
        mistakes=(
            mistake(
                "the exponent has the wrong sign",
                "This is the slope. The exponent is its negative: loss = factor · size^(-exponent).",
                "The loss falls, so the slope is negative and the exponent positive.",
                ("return -slope", "return slope"),
            ),
            mistake(
                "the factor is still a logarithm",
                "This is the logarithm of the factor.",
                "Take exp of the intercept.",
                ("np.exp(intercept)", "intercept"),
            ),
            mistake(
                "the losses are not taken as logarithms",
                "This fits the losses themselves against the logarithm of the size.",
                "A power law is a straight line only if both sides are logarithms.",
                ("np.log(losses)", "losses"),
            ),
            mistake(
                "the sizes are not taken as logarithms",
                "This fits the logarithm of the losses against the sizes themselves.",
                "A power law is a straight line only if both sides are logarithms.",
                ("np.log(sizes)", "sizes"),
            ),
            mistake(
                "slope and intercept are exchanged",
                "Exponent and factor are exchanged.",
                "np.polyfit gives the slope first.",
                ("slope, intercept =", "intercept, slope ="),
            ),
        ),
        library=fit_law,
        digits=7,
    )
)


def online_cases():
    scores = 3.0 * random(10)
    rising = np.linspace(-5.0, 5.0, 7)
    return {
        ORDINARY: {"scores": scores, "values": random(10, 3), "tile": 4},
        "rising scores": {"scores": rising, "values": random(7, 2), "tile": 2},
        "falling scores": {"scores": rising[::-1].copy(), "values": random(7, 2), "tile": 3},
        "large scores": {"scores": 500.0 * rising, "values": random(7, 2), "tile": 2},
    }


register(
    Exercise(
        "online_softmax",
        lesson=18,
        task="softmax(scores) @ values, looking at `tile` keys at a time and keeping only running sums.",
        shapes={"scores": "[T]", "values": "[T, d]", "tile": "keys at a time"},
        outputs={"context": "[d]"},
        cases=online_cases,
        reference=lambda scores, values, tile: ops.softmax(scores)[0] @ values,
        solution=training.online_softmax,
        hints=(
            "Keep three things: the largest score so far, the sum of exponentials, the weighted sum of values.",
            "When a larger score comes, the old sums were made with an old maximum: multiply them by exp(old - new).",
        ),
        mistakes=(
            mistake(
                "the old sums are not rescaled when the maximum grows",
                "This is right while the first tile holds the maximum. Later maxima leave the old sums too large.",
                "Old sums were made with exp(s - old maximum): multiply them by exp(old - new).",
                ("total * rescale + e.sum()", "total + e.sum()"),
                ("out * rescale + e @ v", "out + e @ v"),
            ),
            mistake(
                "only the sum of exponentials is rescaled",
                "The sum of exponentials was rescaled, the weighted sum of values was not.",
                "Both running sums were made with the old maximum.",
                ("out * rescale + e @ v", "out + e @ v"),
            ),
            mistake(
                "only the weighted sum is rescaled",
                "The weighted sum of values was rescaled, the sum of exponentials was not.",
                "Both running sums were made with the old maximum.",
                ("total * rescale + e.sum()", "total + e.sum()"),
            ),
            mistake(
                "the softmax of each tile",
                "Here every tile has its own softmax, and the results are added.",
                "Divide once, at the end, by the sum over all tiles.",
                ("out = out * rescale + e @ v", "out = out + e @ v / e.sum()"),
                ("return out / total", "return out"),
            ),
            mistake(
                "the rescaling is upside down",
                "The old sums were multiplied by exp(new - old), the inverse of what is needed.",
                "exp(s - new) = exp(s - old) · exp(old - new).",
                ("np.exp(top - new_top)", "(np.exp(new_top - top) if start else 0.0)"),
            ),
            mistake(
                "the maximum is not subtracted",
                "This is right for small scores and NaN for large ones: exp overflows.",
                "Subtract the running maximum before exp.",
                ("rescale = np.exp(top - new_top)", "rescale = 1.0"),
                ("np.exp(s - new_top)", "np.exp(s)"),
            ),
        ),
        library=ops.tiled_attention,
    )
)
