"""The linear probe: multinomial logistic regression, solved to its minimum.

    z = W x̂ + b        x̂ = (x - mean) / deviation        loss = mean(log Σ exp z - z_label) + ½ λ (|W|² + |b|²)

    dz = softmax(z) - one_hot(label)      dW = mean dz x̂ᵀ + λ W      db = mean dz + λ b

The loss is convex. Features are not copied: W and b are converted into weights for the raw x, and the gradient is
converted back. Scores are [classes, rows], so that sums over classes run along long rows. The preconditioner is the H⁻¹
of a model that predicts the class frequencies f for every word: the variance of the features times f (1 - f).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.minimise import Minimum, minimise

L2 = 1e-4
CHOICES = (1e-4, 1e-3, 1e-2)  # of λ
# nats. Parts of speech from 204,577 words and one layer of the packaged Mini: 93.63 % right at 4e-3 after 42 steps,
# 93.65 % at 5e-4 after 73, with an interval of ± 0.4.
TOLERANCE = 4e-3
BASELINE_TOLERANCE = 1e-2  # for control tasks and random weights


@dataclass(frozen=True)
class LinearProbe:
    """Weights [classes, features] and biases [classes] for raw features."""

    weight: np.ndarray
    bias: np.ndarray
    minimum: Minimum

    def scores(self, features: Features) -> np.ndarray:
        """[rows, classes]"""
        return np.concatenate([features.rows(part) @ self.weight.T + self.bias for part in features.parts()])


def fit_linear(
    features: Features, labels: np.ndarray, classes: int, l2: float = L2, tolerance: float = TOLERANCE
) -> LinearProbe:
    """Fit labels [rows], each below `classes`."""
    problem = Problem(features, labels, classes, l2)
    minimum = minimise(
        problem.function, np.zeros(classes * (features.width + 1)), problem.precondition, tolerance=tolerance
    )
    weight, bias = (array.astype(features.dtype) for array in problem.raw(minimum.x))
    return LinearProbe(weight, bias, minimum)


def choose_l2(features: Features, labels: np.ndarray, classes: int, held_out: np.ndarray) -> float:
    """The λ with the best accuracy on the held-out rows; the middle choice if no rows are held out."""
    if not held_out.any() or held_out.all():
        return CHOICES[len(CHOICES) // 2]
    train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def accuracy(l2: float) -> float:
        probe = fit_linear(features.select(train), labels[train], classes, l2)
        return float((probe.scores(features.select(test)).argmax(1) == labels[test]).mean())

    return max(CHOICES, key=accuracy)


class Problem:
    """The loss as a function of the flat vector (W, b)."""

    def __init__(self, features: Features, labels: np.ndarray, classes: int, l2: float):
        self.features, self.labels, self.classes, self.l2 = features, labels, classes, l2
        self.mean, self.deviation = features.scaling.mean, features.scaling.deviation
        variances, self.axes = features.principal_axes
        self.curvature = (
            np.outer(class_variances(labels, classes), np.append(variances, 1.0)) + l2
        )  # [classes, features + 1]

    def split(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return parameters[: -self.classes].reshape(self.classes, -1), parameters[-self.classes :]

    def raw(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W and b for raw features."""
        w, b = self.split(parameters)
        w = w / self.deviation
        return w, b - w @ self.mean

    def function(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        features = self.features
        w, b = self.raw(parameters)
        weights, bias = features.split(w.astype(features.dtype)), b.astype(features.dtype)[:, None]
        loss, dw, db = 0.0, np.zeros(w.shape), np.zeros(len(b))
        dweights = features.split(dw)  # views of dw
        for part in features.parts():
            rows = [block[part] for block in features.blocks]
            # BLAS multiplies by the narrow matrix on the right faster, even with the transposition after it.
            z = sum(block @ weight.T for weight, block in zip(weights, rows, strict=True))  # [rows, classes]
            z = np.ascontiguousarray(z.T)  # [classes, rows]
            z += bias
            loss += softmax_in_place(z, self.labels[part])
            for dweight, block in zip(dweights, rows, strict=True):
                dweight += z @ block
            db += z.sum(1)
        count = len(features)
        dw = (dw - np.outer(db, self.mean)) / (count * self.deviation)
        gradient = np.concatenate([dw.ravel(), db / count]) + self.l2 * parameters
        return loss / count + self.l2 / 2 * float(parameters @ parameters), gradient

    def precondition(self, gradient: np.ndarray) -> np.ndarray:
        dw, db = self.split(gradient)
        along = (dw @ self.axes) / self.curvature[:, :-1]
        return np.concatenate([(along @ self.axes.T).ravel(), db / self.curvature[:, -1]])


def class_variances(labels: np.ndarray, classes: int) -> np.ndarray:
    """f (1 - f) for the frequency f of each class, at least 1 / rows."""
    frequency = np.bincount(labels, minlength=classes) / len(labels)
    return np.maximum(frequency * (1 - frequency), 1 / len(labels))


def softmax_in_place(z: np.ndarray, labels: np.ndarray) -> float:
    """Replace scores [classes, rows] by their gradient, softmax minus one-hot; returns the summed loss."""
    columns = np.arange(z.shape[1])
    z -= z.max(0)
    right = z[labels, columns]
    np.exp(z, out=z)
    total = z.sum(0)
    z /= total
    z[labels, columns] -= 1
    return float((np.log(total) - right).sum(dtype=np.float64))
