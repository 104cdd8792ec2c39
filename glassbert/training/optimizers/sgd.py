"""SGD with momentum: a step against the gradient, with some of the last step's speed.

    m = μ m + g
    p = p - lr · (m + λ p)

The baseline of the lesson: one rate for all parameters, however different their gradients are in size. That is what the
other optimizers improve on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from glassbert.training.optimizers.base import Optimizer


class Factors(NamedTuple):
    keep: Any
    scale: Any
    rate: Any
    shrink: Any


class SGD(Optimizer):
    """One buffer: the speed."""

    name = "sgd"
    buffers = ("speed",)
    standing_still = Factors(keep=1.0, scale=0.0, rate=0.0, shrink=1.0)

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
        speed *= f.keep
        speed += t
        np.multiply(speed, f.rate, out=t)
        if decayed:
            p *= f.shrink
        p -= t

    def moved(self, p: Any, g: Any, buffers: Any, f: Factors, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        speed = f.keep * buffers[0] + f.scale * g
        return (p * f.shrink if decayed else p) - f.rate * speed, [speed]
