"""How curved is the loss? An estimate from the model's own opinion, for optimizers that want to know (Sophia).

The Gauss-Newton-Bartlett estimate: draw labels ŷ from what the model itself predicts and take the gradient ĝ of the
mean loss as if they were true. The gradient of log p(ŷ) has mean zero, so the squares do not see the direction of
learning, only how sharply the loss bends:

    diag(H) ≈ n · ĝ ⊙ ĝ          n: how many labels were drawn

For a sum of objectives with weights wₜ the step hands over  Σₜ √(wₜ nₜ) ĝₜ, whose square has the right mean: labels of
different objectives are drawn independently, so the mixed terms have mean zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import TrainingError
from glassbert.ops import IGNORED
from glassbert.training.objectives import Draw


def drawing(engine: Any, seed: Any) -> Draw:
    """A function that exchanges targets for sampled ones; `seed` is a number on NumPy and a key on MLX."""
    table = _on_mlx(engine.xp, seed) if engine.compiles else _on_numpy(np.random.default_rng(seed))

    def draw(loss_name: str, output: Array, targets: Array) -> Array:
        if loss_name not in table:
            raise TrainingError(
                f"no answers can be drawn for the loss {loss_name!r}, so the curvature is unknown; "
                "choose an optimizer that does not ask for it, such as AdamW"
            )
        flat = output.reshape(-1, output.shape[-1]) if loss_name == "cross_entropy" else output
        return engine.xp.where(targets == IGNORED, targets, table[loss_name](flat).astype(targets.dtype))

    return draw


def _on_numpy(rng: np.random.Generator) -> dict[str, Any]:
    def choose(logits: np.ndarray) -> np.ndarray:
        chances = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
        reached = np.cumsum(chances, -1)  # [N, V]
        wanted = rng.random(len(logits)) * reached[:, -1]
        return (reached < wanted[:, None]).sum(-1)

    return {
        "cross_entropy": choose,
        "binary_cross_entropy": lambda z: rng.random(z.shape) < 0.5 * (1.0 + np.tanh(0.5 * z)),
        "mean_squared_error": lambda z: z + rng.standard_normal(z.shape) * 0.5**0.5,  # (z - y)² is a Gaussian's -log p
        "ordinal": lambda z: np.cumprod(rng.random(z.shape) < 0.5 * (1.0 + np.tanh(0.5 * z)), -1).sum(-1),
    }


def _on_mlx(mx: Any, key: Any) -> dict[str, Any]:
    def passed(steps: Any) -> Any:
        """How many steps were passed before the first that was not."""
        return mx.cumprod(steps.astype(mx.int32), -1).sum(-1)

    return {
        "cross_entropy": lambda z: mx.random.categorical(z.astype(mx.float32), key=key),
        "binary_cross_entropy": lambda z: mx.random.bernoulli(mx.sigmoid(z.astype(mx.float32)), key=key),
        "mean_squared_error": lambda z: z + mx.random.normal(z.shape, key=key) * 0.5**0.5,
        "ordinal": lambda z: passed(mx.random.bernoulli(mx.sigmoid(z.astype(mx.float32)), key=key)),
    }
