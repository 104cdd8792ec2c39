"""Exercises of training: gradient check, AdamW, schedule, clipping."""

from __future__ import annotations

import math

import numpy as np

from glassbert.learn.exercise import Exercise, mistake, register
from glassbert.learn.solutions import training as solutions
from glassbert.learn.topics.blocks import random
from glassbert.proof.gradient_check import gradient_check
from glassbert.training.optimizers import AdamW
from glassbert.training.optimizers.base import Optimizer
from glassbert.training.schedules import make_schedule


def numerical_cases():
    x = random(2, 3)
    return {
        "a cubic function": {"f": lambda x: float((x**3).sum() + x[0, 0] * x[1, 2]), "x": x, "h": 1e-3},
        "exp and sin": {"f": lambda x: float(np.exp(x).sum() * np.sin(x).sum()), "x": x + 0.5, "h": 1e-3},
        "a large step": {"f": lambda x: float((x**4).sum()), "x": x, "h": 0.1},
    }


def numerical_gradient(f, x, h):
    """Central differences by the solution's formula, confirmed by the package's `gradient_check`."""
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        gradient[i] = (f(up) - f(down)) / (2.0 * h)
    return gradient


register(
    Exercise(
        "numerical_gradient",
        lesson=11,
        task="The gradient of f at x by central differences, (f(x + h) - f(x - h)) / 2h for one entry after the other.",
        shapes={"f": "a function of an array that returns a number", "x": "[...]", "h": "the step"},
        outputs={"gradient": "the shape of x"},
        cases=numerical_cases,
        reference=numerical_gradient,
        solution=solutions.numerical_gradient,
        hints=(
            "Change one entry at a time, up and down by h, and leave x itself as it was.",
            "np.ndindex(x.shape) runs over all indices of an array.",
        ),
        mistakes=(
            mistake(
                "one-sided difference",
                "This is (f(x + h) - f(x)) / h: the error of a one-sided difference falls only with h.",
                "Go to both sides: (f(x + h) - f(x - h)) / 2h. Then the error falls with h².",
                ("(f(x + step) - f(x - step)) / (2 * h)", "(f(x + step) - f(x)) / h"),
            ),
            mistake(
                "divided by h, not by 2h",
                "This is twice the gradient: divided by h although the points are 2h apart.",
                "x + h and x - h are 2h apart.",
                ("/ (2 * h)", "/ h"),
            ),
            mistake(
                "all entries moved at once",
                "Every entry is the same here: all entries of x were moved together.",
                "Move one entry at a time.",
                ("step[i] = h", "step[...] = h"),
            ),
            mistake(
                "the moved entry is not put back",
                "This is what comes out when entries that were moved stay moved.",
                "Copy x for every entry, or put the entry back.",
                ("step = np.zeros_like(x)", "step = np.zeros_like(x) if i == (0,) * x.ndim else step"),
            ),
            mistake(
                "the sign is wrong",
                "This is the negative of the gradient.",
                "f(x + h) - f(x - h), in this order.",
                ("f(x + step) - f(x - step)", "f(x - step) - f(x + step)"),
            ),
        ),
        library=gradient_check,
        digits=8,
    )
)


def adamw_cases():
    shape = (3, 4)
    first = {
        "p": random(*shape),
        "g": random(*shape, seed=1),
        "m": np.zeros(shape),
        "v": np.zeros(shape),
        "t": 1,
        "lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.1,
    }
    later = {
        **first,
        "m": 0.1 * random(*shape, seed=2),
        "v": 0.1 * random(*shape, seed=3) ** 2,
        "t": 7,
        "eps": 0.05,
        "beta1": 0.8,
        "beta2": 0.95,
        "lr": 0.3,
    }
    return {"the first step": first, "the seventh step": later}


def adamw_step(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    """The formula of the package's optimizer, for one weight that decays."""
    rule = object.__new__(AdamW)
    rule.betas, rule.epsilon, rule.weight_decay = (beta1, beta2), eps, weight_decay
    moved, (mean, square) = rule.moved(p, g, (m, v), rule.factors(np, t, lr, 1.0), True, np)
    return moved, mean, square


register(
    Exercise(
        "adamw_step",
        lesson=12,
        task="One step of AdamW with bias correction; the decay acts on p itself. t counts steps from 1.",
        shapes={
            "p": "[...], a weight",
            "g": "its gradient",
            "m": "mean of the gradient",
            "v": "mean of its square",
            "t": "the number of this step, from 1",
            "lr": "learning rate",
            "beta1": "a number",
            "beta2": "a number",
            "eps": "a number",
            "weight_decay": "λ",
        },
        outputs={"p": "new weight", "m": "new mean", "v": "new mean square"},
        cases=adamw_cases,
        reference=adamw_step,
        solution=solutions.adamw_step,
        hints=(
            "First the two means with the new gradient, then their correction, then the weight.",
            "m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ). The new m and v that you return are not corrected.",
            "p = p - lr · (m̂ / (√v̂ + ε) + λ p).",
        ),
        mistakes=(
            mistake(
                "no bias correction",
                "This is what comes out without bias correction.",
                "m and v begin at 0 and are too small at first: divide by 1 - βᵗ.",
                ("m / (1 - beta1**t)", "m"),
                ("v / (1 - beta2**t)", "v"),
            ),
            mistake(
                "no bias correction of v",
                "This is what comes out when only m is corrected.",
                "v begins at 0 as well: v̂ = v / (1 - β₂ᵗ).",
                ("v / (1 - beta2**t)", "v"),
            ),
            mistake(
                "no bias correction of m",
                "This is what comes out when only v is corrected.",
                "m begins at 0 as well: m̂ = m / (1 - β₁ᵗ).",
                ("m / (1 - beta1**t)", "m"),
            ),
            mistake(
                "the decay is part of the gradient",
                "This is Adam with the decay added to the gradient, not AdamW.",
                "The W of AdamW: the decay acts on p directly and is not divided by √v̂.",
                ("    m = beta1", "    g = g + weight_decay * p\n    m = beta1"),
                ("(update + weight_decay * p)", "update"),
            ),
            mistake(
                "the decay is forgotten",
                "This is Adam without weight decay.",
                "Add λ p inside the bracket that lr multiplies.",
                ("(update + weight_decay * p)", "update"),
            ),
            mistake(
                "the decay is not multiplied by the learning rate",
                "This is what comes out when λ p is subtracted whole.",
                "lr multiplies both: the update and the decay.",
                ("lr * (update + weight_decay * p)", "lr * update - weight_decay * p"),
            ),
            mistake(
                "eps is inside the root",
                "This is what comes out when eps is added under the root.",
                "AdamW divides by √v̂ + ε: the root first.",
                ("(np.sqrt(v_hat) + eps)", "np.sqrt(v_hat + eps)"),
            ),
            mistake(
                "divided by v, not by its root",
                "This is what comes out when m̂ is divided by v̂ instead of √v̂.",
                "v̂ has the unit of the gradient squared; its root has that of the gradient.",
                ("np.sqrt(v_hat)", "v_hat"),
            ),
            mistake(
                "v without the square",
                "This is what comes out when v averages g instead of g².",
                "v is the mean of the square of the gradient.",
                ("(1 - beta2) * g * g", "(1 - beta2) * g"),
            ),
            mistake(
                "uphill",
                "This goes up the gradient: the weight was increased where it must be decreased.",
                "Subtract the update.",
                ("p - lr * (update + weight_decay * p)", "p + lr * (update - weight_decay * p)"),
            ),
            mistake(
                "corrected means are returned",
                "The weight is right, but m and v were returned corrected: the next step would be wrong.",
                "Keep m and v as they are; use m̂ and v̂ only for this step's update.",
                ("return p, m, v", "return p, m_hat, v_hat"),
            ),
            mistake(
                "the old m and v are returned",
                "The weight is right, but m and v are those from before the step.",
                "Return the new means, so that the next step can use them.",
                ("    m = beta1 * m", "    old_m, old_v = m, v\n    m = beta1 * m"),
                ("return p, m, v", "return p, old_m, old_v"),
            ),
            mistake(
                "the betas are exchanged",
                "This is what comes out when beta1 and beta2 are exchanged.",
                "beta1 belongs to the mean m, beta2 to the mean square v.",
                ("m = beta1 * m + (1 - beta1) * g", "m = beta2 * m + (1 - beta2) * g"),
                ("v = beta2 * v + (1 - beta2) * g * g", "v = beta1 * v + (1 - beta1) * g * g"),
                ("m / (1 - beta1**t)", "m / (1 - beta2**t)"),
                ("v / (1 - beta2**t)", "v / (1 - beta1**t)"),
            ),
        ),
        library=AdamW.factors,
    )
)


def schedule_cases():
    points = {"at the start": 0.0, "in the warm-up": 0.05, "at the end of the warm-up": 0.1, "in the middle": 0.4}
    cases = {name: {"progress": value, "warmup": 0.1} for name, value in points.items()}
    cases["near the end"] = {"progress": 0.95, "warmup": 0.2}
    cases["at the end"] = {"progress": 1.0, "warmup": 0.1}
    cases["no warm-up"] = {"progress": 0.25, "warmup": 0.0}
    return cases


register(
    Exercise(
        "schedule",
        lesson=12,
        task="The factor on the learning rate: a straight rise from 0 to 1 over the warm-up, a straight fall to 0.",
        shapes={"progress": "a number from 0 to 1", "warmup": "the share of the run that is warm-up, below 1"},
        outputs={"factor": "a number"},
        cases=schedule_cases,
        reference=lambda progress, warmup: make_schedule("linear", warmup=warmup)(progress),
        solution=solutions.schedule,
        hints=(
            "Two pieces: before the warm-up ends, and after.",
            "After the warm-up, (progress - warmup) / (1 - warmup) goes from 0 to 1.",
        ),
        mistakes=(
            mistake(
                "the decay begins at progress 0, not after the warm-up",
                "This is 1 - progress after the warm-up: the factor jumps down where the warm-up ends.",
                "The fall begins at 1, where the warm-up ends.",
                ("1 - (progress - warmup) / (1 - warmup)", "1 - progress"),
            ),
            mistake(
                "the factor does not reach 0",
                "This falls with the distance from the warm-up, but does not reach 0 at the end.",
                "Divide by 1 - warmup, the length of the fall.",
                ("(progress - warmup) / (1 - warmup)", "(progress - warmup)"),
            ),
            mistake(
                "no warm-up",
                "This falls from the start: there is no warm-up.",
                "Before the warm-up ends the factor is progress / warmup.",
                ("progress / warmup", "1 - progress"),
                ("1 - (progress - warmup) / (1 - warmup)", "1 - progress"),
            ),
            mistake(
                "constant after the warm-up",
                "After the warm-up the factor stays 1.",
                "It falls in a straight line to 0 at progress 1.",
                ("1 - (progress - warmup) / (1 - warmup)", "1.0"),
            ),
            mistake(
                "a cosine instead of a line",
                "This is the cosine schedule.",
                "The exercise asks for a straight fall.",
                (
                    "1 - (progress - warmup) / (1 - warmup)",
                    "0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))",
                ),
            ),
        ),
        library=make_schedule,
    )
)


def clip_cases():
    gradients = [random(3, 4), random(5), 0.01 * random(2, 2)]
    return {
        "too long": {"gradients": gradients, "limit": 1.0},
        "short enough": {"gradients": [0.1 * g for g in gradients], "limit": 5.0},
        "all zero": {"gradients": [np.zeros(3), np.zeros((2, 2))], "limit": 1.0},
    }


def clip_gradients(gradients, limit):
    """The factor by which the package's optimizers scale a gradient down."""
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    return [g * (limit / norm if norm > limit else 1.0) for g in gradients]


register(
    Exercise(
        "clip_gradients",
        lesson=13,
        task="If the norm over all arrays together exceeds the limit, scale all of them down to it, by one factor.",
        shapes={"gradients": "a list of arrays", "limit": "a number"},
        outputs={"clipped": "a list of arrays"},
        cases=clip_cases,
        reference=clip_gradients,
        solution=solutions.clip_gradients,
        hints=(
            "The norm is the root of the sum of all squares, over all arrays.",
            "Every array is multiplied by the same number, limit / norm, but never by more than 1.",
        ),
        mistakes=(
            mistake(
                "every array is clipped by its own norm",
                "This is what comes out when each array is clipped by itself.",
                "One factor for all of them keeps the direction of the step.",
                (
                    "[g * factor for g in gradients]",
                    "[g * min(1.0, limit / max(float(np.linalg.norm(g)), 1e-300)) for g in gradients]",
                ),
            ),
            mistake(
                "every entry is clipped",
                "This is what comes out when every entry is limited: the direction changes.",
                "Scale whole arrays; np.clip changes the direction.",
                ("[g * factor for g in gradients]", "[np.clip(g, -limit, limit) for g in gradients]"),
            ),
            mistake(
                "short gradients are made longer",
                "Gradients below the limit have been scaled up to it.",
                "The factor is at most 1: min(1, limit / norm).",
                ("min(1.0, limit / norm)", "limit / norm"),
            ),
            mistake(
                "the norm without its root",
                "This is what comes out when the sum of squares is used as the norm.",
                "The norm is the root of the sum of squares.",
                (
                    "math.sqrt(sum(float((g * g).sum()) for g in gradients))",
                    "sum(float((g * g).sum()) for g in gradients)",
                ),
            ),
            mistake(
                "the norms are added",
                "This is what comes out when the norms of the arrays are added.",
                "Add the squares of all arrays, then take one root.",
                (
                    "math.sqrt(sum(float((g * g).sum()) for g in gradients))",
                    "sum(math.sqrt(float((g * g).sum())) for g in gradients)",
                ),
            ),
            mistake(
                "divided by zero",
                "This is right, but stops at a gradient of zeros: it divides by the norm 0.",
                "If the norm is 0 there is nothing to clip.",
                ("min(1.0, limit / norm) if norm > 0 else 1.0", "min(1.0, limit / norm)"),
            ),
        ),
        library=Optimizer.update,
    )
)
