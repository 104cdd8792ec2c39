"""Exercises of the backward: linear map, activations, embedding, cross-entropy, residual."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.arrays import scatter_rows
from glassbert.layers.block import PostNormBlock
from glassbert.learn.exercise import Exercise, Inputs, mistake, register
from glassbert.learn.solutions import gradients as solutions
from glassbert.learn.topics.blocks import ORDINARY, activation_cases, linear_cases, random
from glassbert.learn.topics.masking import loss_cases


def with_gradient(cases: dict[str, Inputs], of: str, name: str = "dy") -> dict[str, Inputs]:
    """The cases of a forward with the gradient of its output, which has the shape of the argument `of`."""
    return {case: {name: random(*np.shape(inputs[of]), seed=9), **inputs} for case, inputs in cases.items()}


def linear_backward_cases():
    cases = {}
    for name, inputs in linear_cases().items():
        x, weight = inputs["x"], inputs["weight"]
        cases[name] = {"dy": random(*x.shape[:2], len(weight), seed=9), "x": x, "weight": weight}
    return cases


register(
    Exercise(
        "linear_backward",
        lesson=10,
        task="y = x Wᵀ + b has the gradient dy. Return the gradients of x, W and b.",
        shapes={"dy": "[B, T, O]", "x": "[B, T, I]", "weight": "[O, I]"},
        outputs={"dx": "[B, T, I]", "dweight": "[O, I]", "dbias": "[O]"},
        cases=linear_backward_cases,
        reference=lambda dy, x, weight: ops.linear_backward(dy, (x, weight, True)),
        solution=solutions.linear_backward,
        state=lambda x, weight: (x, weight, True),
        hints=(
            "Let the shapes lead: dx must be [.., I] and can only be made of dy [.., O] and W [O, I].",
            "Every row of the batch used the same W and b: their gradients are sums over all rows.",
            "dx = dy W, dW = dyᵀ x over the rows, db = the sum of dy over the rows.",
        ),
        mistakes=(
            mistake(
                "the gradient of the bias is the mean over the rows",
                "This is what comes out when dbias averages over the rows instead of adding them.",
                "b was added to every row, so the gradients of all rows add up. Only the loss divides.",
                ("dy_rows.sum(0)", "dy_rows.mean(0)"),
            ),
            mistake(
                "the gradient of the weight is transposed",
                "dweight is transposed: [I, O] instead of [O, I].",
                "A gradient has the shape of what it belongs to: dW = dyᵀ x.",
                ("dy_rows.T @ x_rows", "x_rows.T @ dy_rows"),
            ),
            mistake(
                "the gradient of the weight is a mean over the rows",
                "This is what comes out when dweight is divided by the number of rows.",
                "Gradients of all rows add up. Only the loss divides.",
                ("dy_rows.T @ x_rows", "dy_rows.T @ x_rows / len(x_rows)"),
            ),
            mistake(
                "the weight is transposed in dx",
                "This is what happens when dx multiplies by Wᵀ instead of W.",
                "dy is [.., O] and W is [O, I]: dy W has the shape of x.",
                ("dy @ weight", "dy @ weight.T"),
            ),
            mistake(
                "the bias is summed over the batch only",
                "dbias still has the axis of the tokens: it was summed over the batch alone.",
                "Sum over all axes but the last: rows and tokens.",
                ("dy_rows.sum(0)", "dy.sum(0)"),
            ),
            mistake(
                "the gradient of one row of the batch",
                "This is the gradient of the first row of the batch alone.",
                "All rows used the same weight: add them up.",
                ("dy_rows.T @ x_rows", "dy[0].T @ x[0]"),
            ),
        ),
        library=ops.linear_backward,
    )
)

register(
    Exercise(
        "relu_backward",
        lesson=10,
        task="The gradient of x, where y = max(x, 0) has the gradient dy. At 0 itself the slope counts as 0.",
        shapes={"dy": "any shape", "x": "the input of the forward"},
        outputs={"dx": "the shape of x"},
        cases=lambda: with_gradient(activation_cases(), "x"),
        reference=lambda dy, x: ops.relu_backward(dy, ops.relu(x)[0]),
        solution=solutions.relu_backward,
        state=lambda x: ops.relu(x)[1],
        hints=("The slope is 1 above zero and 0 below.", "The sign of x decides, not the sign of dy."),
        mistakes=(
            mistake(
                "the slope asks for the sign of the gradient",
                "This is what comes out when dy > 0 decides instead of x > 0.",
                "Whether a value passed the forward depends on x.",
                ("x > 0", "dy > 0"),
            ),
            mistake(
                "the gradient passes everywhere",
                "This is dy unchanged.",
                "Where x was negative, y is 0 whatever x does: no gradient.",
                ("dy * (x > 0)", "dy * 1.0"),
            ),
            mistake(
                "the value instead of the slope",
                "This is dy · relu(x): the value where the slope belongs.",
                "The slope of ReLU is 1 above zero, not x.",
                ("(x > 0)", "np.maximum(x, 0)"),
            ),
            mistake(
                "the slope at zero is 1",
                "This is right but at 0, where the slope counts as 0.",
                "x > 0, not x >= 0.",
                ("x > 0", "x >= 0"),
            ),
            mistake(
                "the slope without the chain rule",
                "This is the slope alone; dy is missing.",
                "The chain rule: the slope is multiplied by the gradient that arrives.",
                ("dy * (x > 0)", "(x > 0) * 1.0"),
            ),
            mistake(
                "the gate is inverted",
                "The gradient passes where x is negative.",
                "It passes where x > 0.",
                ("x > 0", "x <= 0"),
            ),
        ),
        library=ops.relu_backward,
    )
)

register(
    Exercise(
        "gelu_backward",
        lesson=10,
        task="The gradient of x, where y = x · Φ(x) has the gradient dy. φ(x) = exp(-x²/2) / √(2π) is the slope of Φ.",
        shapes={"dy": "any shape", "x": "the input of the forward"},
        outputs={"dx": "the shape of x"},
        cases=lambda: with_gradient(activation_cases(), "x"),
        reference=lambda dy, x: ops.gelu_backward(dy, ops.gelu(x)[1]),
        solution=solutions.gelu_backward,
        state=lambda x: ops.gelu(x)[1],
        hints=("y is a product of x and Φ(x): use the product rule.", "(x Φ)' = Φ + x φ."),
        mistakes=(
            mistake(
                "the term x·φ(x) is missing",
                "This is dy · Φ(x): the second term of the product rule is missing.",
                "(x Φ)' = 1 · Φ + x · φ.",
                ("cdf + x * density", "cdf"),
            ),
            mistake(
                "the term Φ(x) is missing",
                "This is dy · x φ(x): the first term of the product rule is missing.",
                "(x Φ)' = 1 · Φ + x · φ.",
                ("cdf + x * density", "x * density"),
            ),
            mistake(
                "the density without its factor",
                "This is what comes out when the density is exp(-x²/2) without 1/√(2π).",
                "A density has the area 1 below it: divide by √(2π).",
                (" / math.sqrt(2.0 * math.pi)", ""),
            ),
            mistake(
                "the factor x is missing",
                "This is dy · (Φ + φ): the factor x before φ is missing.",
                "(x Φ)' = Φ + x φ.",
                ("x * density)", "density)"),
            ),
            mistake(
                "the half in the exponent is missing",
                "This is what comes out with exp(-x²) instead of exp(-x²/2).",
                "φ(x) = exp(-x²/2) / √(2π).",
                ("-0.5 * x * x", "-x * x"),
            ),
            mistake(
                "the tanh approximation",
                "This is the slope of the approximation with tanh.",
                "The exercise asks for the exact GELU: Φ + x φ.",
                (
                    "return dy * (cdf + x * density)",
                    "t = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))\n"
                    "    s = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x**2)\n"
                    "    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * s)",
                ),
            ),
        ),
        library=ops.gelu_backward,
        digits=8,
    )
)


def embedding_backward_cases():
    return {
        "repeated ids": {"dy": random(2, 3, 4), "ids": np.array([[3, 1, 3], [0, 2, 1]]), "vocab_size": 7},
        "no id twice": {"dy": random(1, 3, 4), "ids": np.array([[5, 2, 6]]), "vocab_size": 7},
    }


def embedding_backward(dy, ids, vocab_size):
    index, rows = ops.embedding_backward(dy, (ids, None))
    table = np.zeros((vocab_size, dy.shape[-1]))
    return scatter_rows(table, index, rows)


register(
    Exercise(
        "embedding_backward",
        lesson=10,
        task="The gradient of the table, where y = table[ids] has the gradient dy.",
        shapes={"dy": "[B, T, H]", "ids": "[B, T]", "vocab_size": "V"},
        outputs={"dtable": "[V, H]"},
        cases=embedding_backward_cases,
        reference=embedding_backward,
        solution=solutions.embedding_backward,
        hints=(
            "Begin with zeros. Every position gives its gradient to the row that it looked up.",
            "A word that occurs twice has two gradients, and they add up. table[ids] += dy adds only one of them.",
            "np.add.at(table, ids, rows) adds all of them.",
        ),
        mistakes=(
            mistake(
                "a repeated id keeps only its last gradient",
                "This is what comes out when a word that occurs twice keeps only its last gradient.",
                "dtable[ids] = dy and dtable[ids] += dy both write once per row. Use np.add.at, or a loop.",
                ("np.add.at(dtable, ids.reshape(-1), rows)", "dtable[ids.reshape(-1)] = rows"),
            ),
            mistake(
                "a repeated id averages its gradients",
                "This is what comes out when the gradients of a repeated word are averaged.",
                "They add up: the word influenced the loss twice.",
                (
                    "    return dtable",
                    "    return dtable / np.maximum(np.bincount(ids.reshape(-1), minlength=vocab_size), 1)[:, None]",
                ),
            ),
            mistake(
                "a repeated id keeps only its first gradient",
                "This is what comes out when a word that occurs twice keeps only its first gradient.",
                "Add the gradients of all occurrences.",
                ("np.add.at(dtable, ids.reshape(-1), rows)", "dtable[ids.reshape(-1)[::-1]] = rows[::-1]"),
            ),
            mistake(
                "the gradient of one row of the batch",
                "This is the gradient of the first row of the batch alone.",
                "Every row of the batch looked words up in the same table.",
                ("np.add.at(dtable, ids.reshape(-1), rows)", "np.add.at(dtable, ids[0], dy[0])"),
            ),
        ),
        library=ops.embedding_backward,
    )
)


register(
    Exercise(
        "cross_entropy_backward",
        lesson=10,
        task="The gradient of the logits of the mean cross-entropy. Rows with -100 have none.",
        shapes={"logits": "[N, V]", "targets": "[N], ids or -100"},
        outputs={"dlogits": "[N, V]"},
        cases=loss_cases,
        reference=lambda logits, targets: ops.cross_entropy_backward(1.0, ops.cross_entropy(logits, targets)[1]),
        solution=solutions.cross_entropy_backward,
        hints=(
            "The gradient is the predicted distribution less the true one.",
            "dz = (softmax(z) - onehot(target)) / count, and 0 for rows without a target.",
        ),
        mistakes=(
            mistake(
                "not divided by the number of targets",
                "This is the gradient of the sum, not of the mean.",
                "The loss is a mean over the targets: divide by their number.",
                ("(probabilities - onehot) / count", "(probabilities - onehot)"),
            ),
            mistake(
                "divided by all rows, not by the targets",
                "This is divided by the number of rows, also those without a target.",
                "Divide by the number of rows whose target is not -100.",
                ("max(valid.sum(), 1)", "len(targets)"),
            ),
            mistake(
                "ignored rows have a gradient",
                "Rows without a target have a gradient here.",
                "They do not count in the loss: their gradient is 0.",
                ("dlogits * valid[:, None]", "dlogits"),
            ),
            mistake(
                "the true distribution is not subtracted",
                "This is softmax(z) / count: the 1 at the target is not subtracted.",
                "dz = (softmax(z) - onehot(target)) / count.",
                ("(probabilities - onehot)", "probabilities"),
            ),
            mistake(
                "the sign is wrong",
                "This is the negative of the gradient.",
                "Predicted less true, in this order.",
                ("probabilities - onehot", "onehot - probabilities"),
            ),
            mistake(
                "logits instead of probabilities",
                "This is (z - onehot) / count: the softmax is missing.",
                "The predicted distribution is softmax(z).",
                ("(probabilities - onehot)", "(logits - onehot)"),
            ),
            mistake(
                "the maximum is not subtracted",
                "This is right for small logits and NaN for large ones: exp overflows.",
                "Subtract the largest logit of each row before exp.",
                ("logits - logits.max(-1, keepdims=True)", "logits"),
            ),
        ),
        library=ops.cross_entropy_backward,
        digits=8,
    )
)


def residual_cases():
    matrix = random(5, 5)
    return {
        ORDINARY: {"dy": random(2, 3, 5), "branch_backward": lambda dy: dy @ matrix},
        "a branch without a gradient": {"dy": random(2, 3, 5, seed=1), "branch_backward": lambda dy: 0.0 * dy},
    }


register(
    Exercise(
        "residual_backward",
        lesson=10,
        task="y = x + branch(x) has the gradient dy. branch_backward(dy) gives the gradient through the branch.",
        shapes={"dy": "[B, T, H]", "branch_backward": "a function [B, T, H] -> [B, T, H]"},
        outputs={"dx": "[B, T, H]"},
        cases=residual_cases,
        reference=lambda dy, branch_backward: dy + branch_backward(dy),
        solution=solutions.residual_backward,
        hints=("x went two ways to y.", "Where a value went two ways, its gradients add up."),
        mistakes=(
            mistake(
                "only the branch has a gradient",
                "This is the gradient through the branch alone.",
                "x also went to y directly, and that way passes dy unchanged.",
                ("dy + branch_backward(dy)", "branch_backward(dy)"),
            ),
            mistake(
                "only the direct way has a gradient",
                "This is dy: the gradient of the direct way alone.",
                "x also went through the branch: add branch_backward(dy).",
                ("dy + branch_backward(dy)", "1.0 * dy"),
            ),
            mistake(
                "the two gradients are averaged",
                "This is half of the right answer: the two gradients were averaged.",
                "Gradients of several ways add up.",
                ("dy + branch_backward(dy)", "0.5 * (dy + branch_backward(dy))"),
            ),
            mistake(
                "the two gradients are multiplied",
                "This is the product of the two gradients.",
                "Along one way slopes are multiplied; gradients of several ways add up.",
                ("dy + branch_backward(dy)", "dy * branch_backward(dy)"),
            ),
            mistake(
                "the branch gets the whole gradient of x",
                "This is what comes out when branch_backward is called on a sum.",
                "The branch gets dy, no more.",
                ("dy + branch_backward(dy)", "dy + branch_backward(dy + branch_backward(dy))"),
            ),
        ),
        library=PostNormBlock.backward,
    )
)
