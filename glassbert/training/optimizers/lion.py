"""Lion: steps along the sign of the mean gradient, so every number changes by the same amount.

    u = sign(β₁ m + (1 - β₁) g)           the direction: β₁ < β₂ gives the new gradient more weight than in m
    p = p - lr · (u + λ p)
    m = β₂ m + (1 - β₂) g

It has half the buffers of AdamW. Numbers with a tiny gradient take full steps too, so the learning rate is three to ten
times smaller than AdamW's, and the decay larger by the same factor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from glassbert.training.optimizers.base import Optimizer


class Factors(NamedTuple):
    beta1: Any
    gain1: Any
    beta2: Any
    gain2: Any
    rate: Any
    shrink: Any


class Lion(Optimizer):
    """One buffer: the mean gradient."""

    name = "lion"
    buffers = ("mean",)
    no_update = Factors(beta1=None, gain1=0.0, beta2=1.0, gain2=0.0, rate=0.0, shrink=1.0)

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
        np.multiply(mean, f.beta1, out=t)
        t += f.gain1 * g
        np.sign(t, out=t)
        t *= f.rate
        p -= t
        np.multiply(g, f.gain2, out=t)
        mean *= f.beta2
        mean += t

    def moved(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        (mean,) = buffers
        direction = xp.sign(f.beta1 * mean + f.gain1 * g)
        return (p * f.shrink if decayed else p) - f.rate * direction, [f.beta2 * mean + f.gain2 * g]
