"""AdamW: a step in the direction of the mean gradient, measured in units of its usual size.

    m = β₁ m + (1 - β₁) g                 the mean
    v = β₂ v + (1 - β₂) g²                the mean square
    p = p - lr · (m̂ / (√v̂ + ε) + λ p)     m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ): early means are too small

The decay λ shrinks weights and embeddings; norms and biases are left alone. Before all that the gradient is scaled down
where its norm over all parameters exceeds `clip`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.engines.parameters import FlatArrays, FlatGradients
from glassbert.engines.threads import run_together

CHUNK = 131_072  # elements: small enough for the cache, long enough that threads rarely meet at the interpreter's lock


class AdamW:
    """Moments of all parameters, and the step. On NumPy it walks the flat buffers; on MLX it is a pure function."""

    def __init__(
        self,
        model: Any,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        clip: float | None = 1.0,
    ):
        self.learning_rate = learning_rate
        self.betas = betas
        self.epsilon = epsilon
        self.weight_decay = weight_decay
        self.clip = clip
        self.steps = 0
        self.engine = model.engine
        self.decayed = {name: len(shape) > 1 for name, shape in model.layout.shapes.items()}
        self.mean = self.engine.parameters(model.layout)
        self.square = self.engine.parameters(model.layout)

    @property
    def settings(self) -> tuple[Any, ...]:
        """Everything but the learning rate, which changes from step to step."""
        return self.betas, self.epsilon, self.weight_decay, self.clip

    def update(self, parameters: FlatArrays, gradients: FlatGradients) -> float:
        """Move the parameters of a NumPy model in place; returns the norm of the gradient before clipping."""
        self.steps += 1
        spans = self._spans(parameters)
        shares = [spans[i :: self.engine.threads] for i in range(self.engine.threads)]
        pieces = [part[i : i + CHUNK] for part in gradients.parts_that_count() for i in range(0, len(part), CHUNK)]
        squares = run_together(_sum_of_squares, [pieces[i :: self.engine.threads] for i in range(self.engine.threads)])
        norm = float(np.sqrt(sum(squares)))
        scale = 1.0 if self.clip is None or norm <= self.clip else self.clip / norm
        run_together(functools.partial(self._walk, parameters.flat, gradients.flat, scale), shares)
        return norm

    def _spans(self, parameters: FlatArrays) -> list[tuple[int, int, bool]]:
        """The flat buffer in chunks, each wholly decayed or not."""
        spans = []
        for name in parameters:
            span = parameters.layout.span(name)
            for start in range(span.start, span.stop, CHUNK):
                spans.append((start, min(start + CHUNK, span.stop), self.decayed[name]))
        return spans

    def _walk(self, p: np.ndarray, g: np.ndarray, scale: float, spans: list[tuple[int, int, bool]]) -> None:
        beta1, beta2 = self.betas
        kind = p.dtype.type
        correction1, correction2 = 1.0 - beta1**self.steps, 1.0 - beta2**self.steps
        keep1, keep2 = kind(beta1), kind(beta2)
        new1, new2 = kind((1.0 - beta1) * scale), kind(np.sqrt(1.0 - beta2) * scale)
        # √v̂ + ε = (√v + ε √c₂) / √c₂: the corrections move into two scalars
        rate = kind(self.learning_rate * np.sqrt(correction2) / correction1)
        epsilon = kind(self.epsilon * np.sqrt(correction2))
        shrink = kind(1.0 - self.learning_rate * self.weight_decay)
        scratch = np.empty(CHUNK, p.dtype)
        for start, stop, decayed in spans:
            part, gradient = p[start:stop], g[start:stop]
            mean, square = self.mean.flat[start:stop], self.square.flat[start:stop]
            t = scratch[: stop - start]
            np.multiply(gradient, new1, out=t)
            mean *= keep1
            mean += t
            np.multiply(gradient, new2, out=t)
            t *= t
            square *= keep2
            square += t
            np.sqrt(square, out=t)
            t += epsilon
            np.divide(mean, t, out=t)
            t *= rate
            if decayed:
                part *= shrink
            part -= t

    def step_arrays(
        self,
        parameters: Mapping[str, Any],
        gradients: Mapping[str, Any],
        mean: Mapping[str, Any],
        square: Mapping[str, Any],
        step: Any,
        learning_rate: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]:
        """The step as a pure function of MLX arrays, to be compiled: new parameters, means, squares, and the norm."""
        xp = self.engine.xp
        beta1, beta2 = self.betas
        squares = [xp.square(g.astype(xp.float32)).sum() for g in gradients.values()]
        norm = xp.sqrt(xp.stack(squares).sum())
        scale = xp.minimum(1.0, self.clip / (norm + 1e-12)) if self.clip is not None else xp.array(1.0)
        # Every factor is a scalar array, so that the whole update of a parameter compiles to one pass over memory.
        correction1, correction2 = 1.0 - beta1**step, 1.0 - beta2**step
        rate = learning_rate * xp.sqrt(correction2) / correction1
        epsilon = self.epsilon * xp.sqrt(correction2)
        keep1, keep2 = xp.array(beta1), xp.array(beta2)
        new1, new2, shrink = (
            (1.0 - beta1) * scale,
            (1.0 - beta2) * scale * scale,
            1.0 - learning_rate * self.weight_decay,
        )
        new_p, new_m, new_v = {}, {}, {}
        for name, p in parameters.items():
            g = xp.depends([gradients[name]], [norm])[0].astype(xp.float32)  # no float32 copy is kept
            m = new_m[name] = keep1 * mean[name] + new1 * g
            v = new_v[name] = keep2 * square[name] + new2 * (g * g)
            new_p[name] = (p * shrink if self.decayed[name] else p) - (rate * m) / (xp.sqrt(v) + epsilon)
        return new_p, new_m, new_v, norm


def _sum_of_squares(parts: list[np.ndarray]) -> float:
    return sum(float(np.dot(part, part)) for part in parts)
