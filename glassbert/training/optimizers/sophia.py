"""Sophia-G: steps divided by the curvature of the loss, at most lr per number.

    m = β₁ m + (1 - β₁) g
    h = β₂ h + (1 - β₂) ĥ                  every k steps; ĥ estimates the diagonal of the Hessian
    p = p - lr · (clip(m / max(γ h, ε), ±1) + λ p)

ĥ is the square of a gradient for labels sampled from the model's own predictions (`glassbert.training.curvature`). The
training step computes it, with one more forward and backward pass every k steps. γ sets how many entries are clipped:
if all are, the step is a sign as in Lion.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from glassbert.arrays import FlatGradients
from glassbert.engines.threads import run_together
from glassbert.training.optimizers.base import Buffers, Optimizer, Span


class Factors(NamedTuple):
    beta: Any
    gain: Any
    gamma: Any
    epsilon: Any
    rate: Any
    shrink: Any


class Sophia(Optimizer):
    """Two buffers: the mean gradient and the curvature."""

    name = "sophia"
    buffers = ("mean", "curvature")
    no_update = Factors(beta=1.0, gain=0.0, gamma=None, epsilon=None, rate=0.0, shrink=1.0)

    def __init__(
        self,
        model: Any,
        learning_rate: float = 5e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        gamma: float = 0.03,
        epsilon: float = 1e-12,
        every: int = 10,
        weight_decay: float = 0.1,
        clip: float | None = 1.0,
    ):
        self.betas = betas
        self.gamma = gamma
        self.epsilon = epsilon
        self.every = every
        super().__init__(model, learning_rate, weight_decay, clip)
        self.curvature_every = every

    def factors(self, xp: Any, step: Any, learning_rate: Any, scale: Any) -> Factors:
        beta, shrink = self.betas[0], 1.0 - learning_rate * self.weight_decay
        return Factors(beta, (1.0 - beta) * scale, self.gamma, self.epsilon, learning_rate, shrink)

    def move_chunk(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, t: np.ndarray) -> None:
        mean, curvature = buffers
        np.multiply(g, f.gain, out=t)
        mean *= f.beta
        mean += t
        np.multiply(curvature, f.gamma, out=t)
        np.maximum(t, f.epsilon, out=t)
        np.divide(mean, t, out=t)
        np.clip(t, -1.0, 1.0, out=t)
        t *= f.rate
        if decayed:
            p *= f.shrink
        p -= t

    def moved(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        mean, curvature = buffers
        mean = f.beta * mean + f.gain * g
        step = xp.minimum(xp.maximum(mean / xp.maximum(f.gamma * curvature, f.epsilon), -1.0), 1.0)
        return (p * f.shrink if decayed else p) - f.rate * step, [mean, curvature]

    # ---- the curvature --------------------------------------------------------------------------------------------

    def observe(self, gradients: FlatGradients) -> None:
        if not math.isfinite(self.gradient_norm(gradients)):
            return
        spans, threads = self._spans(self.layout.shapes), self.engine.threads
        run_together(functools.partial(self._update_curvature, gradients), [spans[i::threads] for i in range(threads)])

    def _update_curvature(self, gradients: FlatGradients, spans: list[Span]) -> None:
        curvature, beta = self.state["curvature"], self.betas[1]
        for name, start, stop in spans:
            g, h = (array[name].reshape(-1)[start:stop] for array in (gradients.buffer, curvature))
            h *= beta
            h += (1.0 - beta) * (g * g)

    def observed(self, state: dict[str, Any], gradients: Buffers) -> dict[str, Any]:
        xp, beta = self.engine.xp, self.betas[1]
        finite, curvature = xp.isfinite(self._squares(gradients)), dict(state["curvature"])
        for name in self._rates.group_of:
            h = beta * curvature[name] + (1.0 - beta) * xp.square(gradients[name].astype(xp.float32))
            curvature[name] = xp.where(finite, h, curvature[name])
        return {**state, "curvature": curvature}
