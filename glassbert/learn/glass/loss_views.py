"""Losses as the glass shows them."""

from __future__ import annotations

import numpy as np

from glassbert.learn.glass.described import Described, LazyArrays, back, describes, formulas, rows, without_formulas
from glassbert.learn.glass.recorder import Node


@describes("cross_entropy")
def _cross_entropy(node: Node) -> Described:
    logits, targets = rows(node.arguments[0]), np.asarray(node.arguments[1])
    probabilities, aim, valid, count = node.state
    picked = np.where(valid, targets, 0)
    columns = np.arange(logits.shape[-1])
    arrays = LazyArrays(
        {
            "logits": logits, "targets": picked, "share": valid / count, "probabilities": probabilities,
            "maximum": lambda a: a["logits"].max(-1),
            "exponentials": lambda a: np.exp(a["logits"] - a["maximum"][:, None]),
            "total": lambda a: a["exponentials"].sum(-1),
            "log_total": lambda a: np.log(a["total"]) + a["maximum"],
            "aim": aim if aim.ndim == 2 else lambda a: (columns == aim[:, None]).astype(logits.dtype),
            "mass": aim.sum(-1) if aim.ndim == 2 else None, "loss": np.asarray(node.output),
            "dlogits": back(node, 0),
        }
    )  # fmt: skip
    whole_aim = aim.ndim == 2
    sums = formulas(
        "loss[] = share[m] aim[m,v] log_total[m] - share[m] aim[m,v] logits[m,v]"
        if whole_aim
        else "loss[] = share[m] log_total[m] - share[m] logits[m,targets(m)]",
        "total[m] = exponentials[m,v]",
        "dlogits[m,v] = share[m] mass[m] probabilities[m,v] - share[m] aim[m,v]"
        if whole_aim
        else "dlogits[m,v] = share[m] probabilities[m,v] - share[m] aim[m,v]",
        arrays=arrays,
    )
    expressions = {
        "exponentials": "exp(logits[m,v] - maximum[m])",
        "probabilities": "exponentials[m,v] / total[m]",
        "log_total": "log(total[m]) + maximum[m]",
    }
    return Described(
        "loss = mean over masked words of  log Σ exp(z) − z[target]",
        "dz = (softmax(z) − onehot(target)) / number of masked words",
        arrays, sums, expressions,
        forward=("logits", "exponentials", "total", "log_total", "probabilities", "loss"),
        backward=("probabilities", "aim", "dlogits"), operand={"logits": 0}, gradient={"dlogits": 0}, result="loss",
    )  # fmt: skip


@describes("binary_cross_entropy")
def _binary_cross_entropy(node: Node) -> Described:
    logits, positive, factor, valid, count = node.state
    if factor is not None:
        return without_formulas(node)
    arrays = LazyArrays(
        {
            "z": rows(logits), "target": rows(positive), "share": rows(valid / count),
            "yes": lambda a: 0.5 * (1.0 + np.tanh(0.5 * a["z"])), "loss": np.asarray(node.output), "dz": back(node, 0),
            "each": lambda a: np.maximum(a["z"], 0) - a["z"] * a["target"] + np.log1p(np.exp(-np.abs(a["z"]))),
        }
    )  # fmt: skip
    sums = formulas(
        "loss[] = share[t,o] each[t,o]", "dz[t,o] = share[t,o] yes[t,o] - share[t,o] target[t,o]", arrays=arrays
    )
    expressions = {
        "yes": "sigmoid(z[t,o])",
        "each": "log(1 + exp(z[t,o])) - z[t,o] * target[t,o]",
    }
    return Described(
        "loss = mean of  log(1 + exp(z)) − z · target", "dz = (σ(z) − target) / number of labels",
        arrays, sums, expressions,
        forward=("z", "target", "each", "loss"), backward=("yes", "target", "dz"),
        operand={"z": 0}, gradient={"dz": 0}, result="loss",
    )  # fmt: skip


@describes("mean_squared_error")
def _mean_squared_error(node: Node) -> Described:
    difference, count = node.state
    arrays = LazyArrays(
        {
            "z": rows(node.arguments[0]), "target": rows(node.arguments[1]), "difference": rows(difference),
            "share": np.array(1.0 / count), "twice": np.array(2.0 / count), "loss": np.asarray(node.output),
            "dz": back(node, 0),
        }
    )  # fmt: skip
    sums = formulas(
        "difference[t,o] = z[t,o] - target[t,o]",
        "loss[] = share[] difference[t,o] difference[t,o]",
        "dz[t,o] = twice[] difference[t,o]",
        arrays=arrays,
    )
    return Described(
        "loss = mean of (z − target)²", "dz = 2 (z − target) / number of labels", arrays, sums,
        forward=("z", "target", "difference", "loss"), backward=("difference", "dz"),
        operand={"z": 0}, gradient={"dz": 0}, result="loss",
    )  # fmt: skip
