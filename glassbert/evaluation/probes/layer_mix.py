"""The linear probe on a learned mix of layers: one weight per layer, positive, with sum 1.

    x = Σ_l s_l x̂_l      s = softmax(a)      z = W x + b

    dW = mean dz xᵀ      ds_l = mean (Wᵀ dz) · x̂_l      da = s (ds - s · ds)

Every layer is standardised, so that the weights are comparable. (The usual factor of the sum is part of W.) The weights
are learned together with W on a sample of rows, starting from equal weights. For fixed weights the problem is convex,
and W is fitted again on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.minimise import Minimum, minimise
from glassbert.evaluation.probes.softmax_regression import (
    L2,
    TOLERANCE,
    LinearProbe,
    class_variances,
    fit_linear,
    softmax_in_place,
)

SHARES_ROWS = 40_000  # rows for learning the weights of the layers


@dataclass(frozen=True)
class MixProbe:
    """`shares` [layers] sum to 1. The mix of raw layers is Σ factors · layer - shift; `linear` classifies it."""

    shares: np.ndarray
    factors: np.ndarray  # [layers, width]: share / deviation
    shift: np.ndarray  # [width]: Σ share · mean / deviation
    linear: LinearProbe
    found: Minimum  # of the search for the shares

    @property
    def minimum(self) -> Minimum:
        return self.linear.minimum

    def scores(self, features: Features) -> np.ndarray:
        """[rows, classes]"""
        return self.linear.scores(mixed(features, self.factors, self.shift))


def fit_mix(
    features: Features, labels: np.ndarray, classes: int, l2: float = L2, tolerance: float = TOLERANCE
) -> MixProbe:
    """Fit labels [rows], each below `classes`."""
    some = np.arange(0, len(features), -(-len(features) // SHARES_ROWS))
    problem = MixProblem(features.select(some), labels[some], classes, l2)
    found = minimise(problem.function, np.zeros(problem.size), problem.precondition, tolerance=tolerance)
    shares = problem.split(found.x)[0]
    factors, shift = (array.astype(problem.dtype) for array in problem.factors(shares))
    linear = fit_linear(mixed(features, factors, shift), labels, classes, l2, tolerance)
    return MixProbe(shares, factors, shift, linear, found)


def mixed(features: Features, factors: np.ndarray, shift: np.ndarray) -> Features:
    """The mix as features of one layer."""
    return Features((np.concatenate([mix(features, part, factors, shift) for part in features.parts()]),))


def mix(features: Features, part: slice, factors: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """[rows, width of a layer]"""
    total = features.layer(0).rows(part) * factors[0]
    for number in range(1, features.layers):
        total += features.layer(number).rows(part) * factors[number]
    total -= shift
    return total


class MixProblem:
    """The loss as a function of the flat vector (a, W, b)."""

    def __init__(self, features: Features, labels: np.ndarray, classes: int, l2: float):
        self.features, self.labels, self.classes, self.l2 = features, labels, classes, l2
        self.dtype = features.dtype
        self.width = features.width // features.layers
        shape = (features.layers, self.width)
        self.mean, self.deviation = (v.reshape(shape) for v in (features.scaling.mean, features.scaling.deviation))
        variances, self.axes = features.layer(features.layers // 2).principal_axes
        self.curvature = np.outer(class_variances(labels, classes), np.append(variances, 1.0)) + l2
        self.size = features.layers + classes * (self.width + 1)

    def split(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shares, W and b."""
        layers = self.features.layers
        a, w, b = np.split(parameters, [layers, len(parameters) - self.classes])
        powers = np.exp(a - a.max())
        return powers / powers.sum(), w.reshape(self.classes, -1), b

    def factors(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        factors = shares[:, None] / self.deviation
        return factors, (factors * self.mean).sum(0)

    def function(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        layers = self.features.layers
        shares, w, b = self.split(parameters)
        factors, shift = (array.astype(self.dtype) for array in self.factors(shares))
        weight, bias = w.astype(self.dtype), b.astype(self.dtype)[:, None]
        loss, dw, db = 0.0, np.zeros(w.shape), np.zeros(len(b))
        dfactors, dx_sum = np.zeros(factors.shape), np.zeros(self.width)
        for part in self.features.parts():
            x = mix(self.features, part, factors, shift)  # [rows, width]
            z = weight @ x.T  # [classes, rows]
            z += bias
            loss += softmax_in_place(z, self.labels[part])
            dw += z @ x
            db += z.sum(1)
            dx = z.T @ weight  # [rows, width]
            dx_sum += dx.sum(0)
            for number in range(layers):
                dfactors[number] += np.einsum("nw,nw->w", dx, self.features.layer(number).rows(part))
        count = len(self.features)
        dshares = ((dfactors - dx_sum * self.mean) / self.deviation).sum(1) / count
        da = shares * (dshares - shares @ dshares)
        gradient = np.concatenate([da, dw.ravel() / count, db / count]) + self.l2 * parameters
        return loss / count + self.l2 / 2 * float(parameters @ parameters), gradient

    def precondition(self, gradient: np.ndarray) -> np.ndarray:
        layers = self.features.layers
        dw = gradient[layers : -self.classes].reshape(self.classes, -1)
        along = (dw @ self.axes) / self.curvature[:, :-1]
        db = gradient[-self.classes :] / self.curvature[:, -1]
        return np.concatenate([gradient[:layers], (along @ self.axes.T).ravel(), db])
