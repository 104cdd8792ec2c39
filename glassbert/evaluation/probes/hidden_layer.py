"""The probe with one hidden layer: what a little computation more can read out of the vectors.

    h = relu(V x̂ + c)      z = W h + b      loss = mean(log Σ exp z - z_label)

Made of the operations that the models are made of, and trained by AdamW with a learning rate that falls to zero. No
minimum is promised here; how much the last pass over the words still changed the loss is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from glassbert.arrays import FlatArrays, FlatGradients, Gradients, Layout
from glassbert.engines import get_engine
from glassbert.engines.kernels import Operations, backward
from glassbert.engines.numpy_kernels import KERNELS
from glassbert.evaluation.probes.features import Features
from glassbert.training.optimizers.adamw import AdamW

OPS = Operations(KERNELS)
HIDDEN = 128
EPOCHS = 8
BATCH = 512
RATE = 2e-3
SETTLED = 0.02  # the last pass may change the loss by this share


@dataclass(frozen=True)
class HiddenProbe:
    """Parameters of both maps, the scaling of the features, and the mean loss of every pass over the words."""

    parameters: Mapping[str, np.ndarray]
    mean: np.ndarray
    factor: np.ndarray
    losses: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Passes over the words."""
        return len(self.losses)

    @property
    def gain(self) -> float:
        """How much the last pass lowered the loss."""
        return self.losses[-2] - self.losses[-1] if len(self.losses) > 1 else math.inf

    @property
    def converged(self) -> bool:
        return abs(self.gain) <= SETTLED * self.losses[0]

    def scores(self, features: Features) -> np.ndarray:
        """[rows, classes]"""
        scaled = ((features.rows(part) - self.mean) * self.factor for part in features.parts())
        return np.concatenate([forward(x, self.parameters)[0] for x in scaled])


def fit_hidden(
    features: Features, labels: np.ndarray, classes: int, *, hidden: int = HIDDEN, epochs: int = EPOCHS, seed: int = 0
) -> HiddenProbe:
    kind = features.dtype
    mean, factor = features.scaling.mean.astype(kind), (1 / features.scaling.deviation).astype(kind)
    engine = get_engine("numpy", str(kind), 1)
    shapes = {"hidden.weight": (hidden, features.width), "hidden.bias": (hidden,),
              "output.weight": (classes, hidden), "output.bias": (classes,)}  # fmt: skip
    layout = Layout(shapes)
    parameters, gradients = FlatArrays(layout, kind), FlatGradients(layout, kind)
    generator = np.random.default_rng(seed)
    for name, shape in shapes.items():
        if len(shape) == 2:
            parameters[name] = generator.standard_normal(shape) * math.sqrt(2 / shape[1])
    parameters["output.weight"] *= 0.1
    optimizer = AdamW(SimpleNamespace(engine=engine, layout=layout), RATE, clip=None)
    batches = -(-len(features) // BATCH)
    losses = []
    for epoch in range(epochs):
        order = generator.permutation(len(features))
        total = 0.0
        for batch in range(batches):
            rows = order[batch * BATCH : (batch + 1) * BATCH]
            x = (features.rows(rows) - mean) * factor
            done = (epoch * batches + batch) / (epochs * batches)
            optimizer.learning_rate = RATE * min(1.0, 10 * done + 0.1) * (1 + math.cos(math.pi * done)) / 2
            total += len(rows) * gradient_step(x, labels[rows], parameters, gradients, optimizer)
        losses.append(total / len(features))
    return HiddenProbe(dict(parameters), mean, factor, tuple(losses))


def gradient_step(
    x: np.ndarray, labels: np.ndarray, parameters: FlatArrays, gradients: FlatGradients, optimizer: AdamW
) -> float:
    gradients.clear()
    loss = loss_and_gradients(x, labels, parameters, gradients)
    gradients.fill_missing()
    optimizer.update(parameters, gradients)
    return loss


def forward(x: np.ndarray, parameters: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[Any]]:
    """Scores [rows, classes], and the states for the backward."""
    hidden, first = OPS.linear(x, parameters["hidden.weight"], parameters["hidden.bias"])
    active, second = OPS.relu(hidden)
    scores, third = OPS.linear(active, parameters["output.weight"], parameters["output.bias"])
    return scores, [first, second, third]


def loss_and_gradients(
    x: np.ndarray, labels: np.ndarray, parameters: Mapping[str, np.ndarray], gradients: Gradients
) -> float:
    scores, (first, second, third) = forward(x, parameters)
    loss, state = OPS.cross_entropy(scores, labels)
    dactive, dw, db = backward(backward(1.0, state), third)
    gradients.add("output.weight", dw)
    gradients.add("output.bias", db)
    _, dw, db = backward(backward(dactive, second), first)
    gradients.add("hidden.weight", dw)
    gradients.add("hidden.bias", db)
    return float(loss)
