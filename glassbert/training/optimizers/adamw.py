"""AdamW: a step in the direction of the mean gradient, measured in units of its usual size.

    m = β₁ m + (1 - β₁) g                 the mean
    v = β₂ v + (1 - β₂) g²                the mean square
    p = p - lr · (m̂ / (√v̂ + ε) + λ p)     m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ): early means are too small

The decay λ shrinks weights and embeddings; norms and biases are left alone. Before all that the gradient is scaled down
where its norm over all parameters exceeds `clip`.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from glassbert.engines.numpy_kernels import loops_for
from glassbert.training.optimizers.base import Optimizer, early


class Factors(NamedTuple):
    keep1: Any
    new1: Any
    keep2: Any
    new2: Any  # its square weighs g²
    rate: Any
    epsilon: Any
    shrink: Any


class AdamW(Optimizer):
    """Moments of all parameters, and the step."""

    name = "adamw"
    buffers = ("mean", "square")
    standing_still: ClassVar[tuple[Any, ...]] = Factors(
        keep1=1.0, new1=0.0, keep2=1.0, new2=0.0, rate=0.0, epsilon=1.0, shrink=1.0
    )

    def __init__(
        self,
        model: Any,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        clip: float | None = 1.0,
    ):
        self.betas = betas
        self.epsilon = epsilon
        super().__init__(model, learning_rate, weight_decay, clip)

    def factors(self, xp: Any, step: Any, learning_rate: Any, scale: Any) -> Factors:
        beta1, beta2 = self.betas
        # √v̂ + ε = (√v + ε √c₂) / √c₂: the corrections move into two scalars
        correction1, correction2 = early(xp, beta1, step), xp.sqrt(early(xp, beta2, step))
        return Factors(
            beta1,
            (1.0 - beta1) * scale,
            beta2,
            (1.0 - beta2) ** 0.5 * scale,
            learning_rate * correction2 / correction1,
            self.epsilon * correction2,
            1.0 - learning_rate * self.weight_decay,
        )

    def move_chunk(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, t: np.ndarray) -> None:
        mean, square = buffers
        loops = loops_for(p, g, mean, square)
        if loops is not None:
            shrink = f.shrink if decayed else type(f.shrink)(1.0)
            loops.adamw(p, g, mean, square, f.keep1, f.new1, f.keep2, f.new2, f.rate, f.epsilon, shrink)
            return
        np.multiply(g, f.new1, out=t)
        mean *= f.keep1
        mean += t
        np.multiply(g, f.new2, out=t)
        t *= t
        square *= f.keep2
        square += t
        np.sqrt(square, out=t)
        t += f.epsilon
        np.divide(mean, t, out=t)
        t *= f.rate
        if decayed:
            p *= f.shrink
        p -= t

    def moved(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        mean, square = buffers
        mean = f.keep1 * mean + f.new1 * g
        square = f.keep2 * square + xp.square(f.new2 * g)
        return (p * f.shrink if decayed else p) - (f.rate * mean) / (xp.sqrt(square) + f.epsilon), [mean, square]
