"""Lion: only the sign of the gradient's mean counts, so every number moves by the same amount.

    u = sign(β₁ m + (1 - β₁) g)           the direction: more of the new gradient than the memory takes in
    p = p - lr · (u + λ p)
    m = β₂ m + (1 - β₂) g

It remembers half of what AdamW does. A sign is a large step for a number that hardly matters, so its learning rate is
three to ten times smaller than AdamW's, and its decay as much larger.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from glassbert.training.optimizers.base import Optimizer


class Factors(NamedTuple):
    keep1: Any
    new1: Any
    keep2: Any
    new2: Any
    rate: Any
    shrink: Any


class Lion(Optimizer):
    """One buffer: the mean gradient."""

    name = "lion"
    buffers = ("mean",)
    standing_still = Factors(keep1=None, new1=0.0, keep2=1.0, new2=0.0, rate=0.0, shrink=1.0)

    def __init__(
        self,
        model: Any,
        learning_rate: float = 3e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.1,
        clip: float | None = 1.0,
    ):
        self.betas = betas
        super().__init__(model, learning_rate, weight_decay, clip)

    def factors(self, xp: Any, step: Any, learning_rate: Any, scale: Any) -> Factors:
        (beta1, beta2), shrink = self.betas, 1.0 - learning_rate * self.weight_decay
        return Factors(beta1, (1.0 - beta1) * scale, beta2, (1.0 - beta2) * scale, learning_rate, shrink)

    def move_chunk(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, t: np.ndarray) -> None:
        (mean,) = buffers
        if decayed:
            p *= f.shrink
        np.multiply(mean, f.keep1, out=t)
        t += f.new1 * g
        np.sign(t, out=t)
        t *= f.rate
        p -= t
        np.multiply(g, f.new2, out=t)
        mean *= f.keep2
        mean += t

    def moved(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        (mean,) = buffers
        direction = xp.sign(f.keep1 * mean + f.new1 * g)
        return (p * f.shrink if decayed else p) - f.rate * direction, [f.keep2 * mean + f.new2 * g]
