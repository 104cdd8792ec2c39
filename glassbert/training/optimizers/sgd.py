"""SGD with momentum: steps against a decaying sum of gradients.

    m = μ m + g
    p = p - lr · (m + λ p)

A baseline: one rate for all parameters, whatever the size of their gradients. The other optimizers improve on this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from glassbert.training.optimizers.base import Optimizer


class Factors(NamedTuple):
    momentum: Any
    scale: Any
    rate: Any
    shrink: Any


class SGD(Optimizer):
    """One buffer, named "speed": the decaying sum m."""

    name = "sgd"
    buffers = ("speed",)
    no_update = Factors(momentum=1.0, scale=0.0, rate=0.0, shrink=1.0)

    def __init__(
        self,
        model: Any,
        learning_rate: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        clip: float | None = 1.0,
    ):
        self.momentum = momentum
        super().__init__(model, learning_rate, weight_decay, clip)

    def factors(self, xp: Any, step: Any, learning_rate: Any, scale: Any) -> Factors:
        return Factors(self.momentum, scale, learning_rate, 1.0 - learning_rate * self.weight_decay)

    def move_chunk(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, t: np.ndarray) -> None:
        (speed,) = buffers
        np.multiply(g, f.scale, out=t)
        speed *= f.momentum
        speed += t
        np.multiply(speed, f.rate, out=t)
        if decayed:
            p *= f.shrink
        p -= t

    def moved(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        speed = f.momentum * buffers[0] + f.scale * g
        return (p * f.shrink if decayed else p) - f.rate * speed, [speed]
