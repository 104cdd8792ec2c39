"""Sophia-G: large steps where the loss is flat, small ones where it is curved, and never more than lr.

    m = β₁ m + (1 - β₁) g
    h = β₂ h + (1 - β₂) ĥ                  every k steps; ĥ estimates the diagonal of the Hessian
    p = p - lr · (clip(m / max(γ h, ε), ±1) + λ p)

ĥ is the square of a gradient of labels that the model draws from its own predictions (`glassbert.training.curvature`);
the training step computes it, which costs one more forward and backward pass every k steps. γ decides how many entries
are clipped: where the clip acts everywhere, the step is a sign, as Lion's.
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
    keep: Any
    new: Any
    gamma: Any
    epsilon: Any
    rate: Any
    shrink: Any


class Sophia(Optimizer):
    """Two buffers: the mean gradient and the curvature."""

    name = "sophia"
    buffers = ("mean", "curvature")
    standing_still = Factors(keep=1.0, new=0.0, gamma=None, epsilon=None, rate=0.0, shrink=1.0)

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
        np.multiply(g, f.new, out=t)
        mean *= f.keep
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
        mean = f.keep * mean + f.new * g
        step = xp.minimum(xp.maximum(mean / xp.maximum(f.gamma * curvature, f.epsilon), -1.0), 1.0)
        return (p * f.shrink if decayed else p) - f.rate * step, [mean, curvature]

    # ---- the curvature --------------------------------------------------------------------------------------------

    def observe(self, gradients: FlatGradients) -> None:
        if not math.isfinite(self.gradient_norm(gradients)):
            return
        spans, threads = self._spans(self.layout.shapes), self.engine.threads
        run_together(functools.partial(self._remember, gradients), [spans[i::threads] for i in range(threads)])

    def _remember(self, gradients: FlatGradients, spans: list[Span]) -> None:
        curvature, keep = self.state["curvature"], self.betas[1]
        for name, start, stop in spans:
            g, h = (array[name].reshape(-1)[start:stop] for array in (gradients.buffer, curvature))
            h *= keep
            h += (1.0 - keep) * (g * g)

    def observed(self, state: dict[str, Any], gradients: Buffers) -> dict[str, Any]:
        xp, keep = self.engine.xp, self.betas[1]
        fine, curvature = xp.isfinite(self._squares(gradients)), dict(state["curvature"])
        for name in self._rates.group_of:
            h = keep * curvature[name] + (1.0 - keep) * xp.square(gradients[name].astype(xp.float32))
            curvature[name] = xp.where(fine, h, curvature[name])
        return {**state, "curvature": curvature}
