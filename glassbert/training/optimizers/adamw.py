"""AdamW: steps along the mean gradient, divided by the root of its mean square.

    m = β₁ m + (1 - β₁) g                 the mean
    v = β₂ v + (1 - β₂) g²                the mean square
    p = p - lr · (m̂ / (√v̂ + ε) + λ p)     m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ): bias correction of early steps

The decay λ applies to weights and embeddings, not to norms and biases. Before the update, the gradient is scaled down
if its norm over all parameters exceeds `clip`.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from glassbert.engines.numpy_kernels import loops_for
from glassbert.training.optimizers.base import Optimizer, bias_correction


class Factors(NamedTuple):
    beta1: Any
    gain1: Any
    beta2: Any
    gain2: Any  # its square is the weight of g²
    rate: Any
    epsilon: Any
    shrink: Any


class AdamW(Optimizer):
    """Two buffers: the mean gradient and its mean square. Derivation: docs/derivations/12-adamw.md (12.5), (12.6)."""

    name = "adamw"
    buffers = ("mean", "square")
    cuda = """
        new_mean = beta1 * mean + gain1 * seen;
        new_square = beta2 * square + gain2 * seen * (gain2 * seen);
        new_p = kept - rate * new_mean / (sqrtf(new_square) + epsilon);
    """
    no_update: ClassVar[tuple[Any, ...]] = Factors(
        beta1=1.0, gain1=0.0, beta2=1.0, gain2=0.0, rate=0.0, epsilon=1.0, shrink=1.0
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
        """Derivation: docs/derivations/12-adamw.md (12.7)."""
        beta1, beta2 = self.betas
        # √v̂ + ε = (√v + ε √c₂) / √c₂: the corrections become part of two scalars
        correction1, correction2 = bias_correction(xp, beta1, step), xp.sqrt(bias_correction(xp, beta2, step))
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
        """Derivation: docs/derivations/12-adamw.md (12.1), (12.2), (12.3)."""
        mean, square = buffers
        loops = loops_for(p, g, mean, square)
        if loops is not None:
            shrink = f.shrink if decayed else type(f.shrink)(1.0)
            loops.adamw(p, g, mean, square, f.beta1, f.gain1, f.beta2, f.gain2, f.rate, f.epsilon, shrink)
            return
        np.multiply(g, f.gain1, out=t)
        mean *= f.beta1
        mean += t
        np.multiply(g, f.gain2, out=t)
        t *= t
        square *= f.beta2
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
        mean = f.beta1 * mean + f.gain1 * g
        square = f.beta2 * square + xp.square(f.gain2 * g)
        return (p * f.shrink if decayed else p) - (f.rate * mean) / (xp.sqrt(square) + f.epsilon), [mean, square]
