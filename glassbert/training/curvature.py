"""Sampled labels for estimates of the curvature of the loss, which some optimizers (Sophia) need.

The Gauss-Newton-Bartlett estimate: sample labels ŷ from the model's predictions and compute the gradient ĝ of the mean
loss with these labels. The gradient of log p(ŷ) has mean zero, so its squares estimate the curvature:

    diag(H) ≈ n · ĝ ⊙ ĝ          n: the number of sampled labels

For a sum of objectives with weights wₜ the step computes  Σₜ √(wₜ nₜ) ĝₜ, whose square has the right mean: labels of
different objectives are sampled independently, so the mixed terms have mean zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import TrainingError
from glassbert.ops import IGNORED
from glassbert.training.objectives import SampleTargets


def target_sampler(engine: Any, seed: Any) -> SampleTargets:
    """A function that replaces targets by sampled ones; `seed` is that of a NumPy generator, or an MLX key."""
    samplers = _on_mlx(engine.xp, seed) if engine.compiles else _on_numpy(np.random.default_rng(seed))

    def sample(loss_name: str, output: Array, targets: Array) -> Array:
        if loss_name not in samplers:
            raise TrainingError(
                f"labels cannot be sampled for the loss {loss_name!r}, so its curvature cannot be estimated; "
                "choose an optimizer that does not need it, such as AdamW"
            )
        flat = output.reshape(-1, output.shape[-1]) if loss_name == "cross_entropy" else output
        return engine.xp.where(targets == IGNORED, targets, samplers[loss_name](flat).astype(targets.dtype))

    return sample


def _on_numpy(rng: np.random.Generator) -> dict[str, Any]:
    def choose(logits: np.ndarray) -> np.ndarray:
        probabilities = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
        cumulative = np.cumsum(probabilities, -1)  # [N, V]
        wanted = rng.random(len(logits)) * cumulative[:, -1]
        return (cumulative < wanted[:, None]).sum(-1)

    return {
        "cross_entropy": choose,
        "binary_cross_entropy": lambda z: rng.random(z.shape) < 0.5 * (1.0 + np.tanh(0.5 * z)),
        "mean_squared_error": lambda z: z + rng.standard_normal(z.shape) * 0.5**0.5,  # -log p of N(z, 1/2)
        "ordinal": lambda z: np.cumprod(rng.random(z.shape) < 0.5 * (1.0 + np.tanh(0.5 * z)), -1).sum(-1),
    }


def _on_mlx(mx: Any, key: Any) -> dict[str, Any]:
    def leading_ones(steps: Any) -> Any:
        """The number of leading ones, the rank."""
        return mx.cumprod(steps.astype(mx.int32), -1).sum(-1)

    return {
        "cross_entropy": lambda z: mx.random.categorical(z.astype(mx.float32), key=key),
        "binary_cross_entropy": lambda z: mx.random.bernoulli(mx.sigmoid(z.astype(mx.float32)), key=key),
        "mean_squared_error": lambda z: z + mx.random.normal(z.shape, key=key) * 0.5**0.5,
        "ordinal": lambda z: leading_ones(mx.random.bernoulli(mx.sigmoid(z.astype(mx.float32)), key=key)),
    }
