"""Drawing the next token from the scores of a model.

p = softmax(scores / temperature)
top-k    only the k most probable tokens
top-p    only the fewest tokens whose probabilities add up to at least p
token ~ p over the tokens that are left
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from glassbert.errors import InputError

ROUNDING = 1e-12  # of a sum of probabilities


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. With `top_k=1` the most probable one is taken."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not (_is_number(self.temperature) and 0 < self.temperature < math.inf):
            raise InputError(
                f"temperature must be above 0, got {self.temperature!r}; for the most probable token give top_k=1 "
                "(--top-k 1)"
            )
        if self.top_k is not None and not (
            isinstance(self.top_k, int) and not isinstance(self.top_k, bool) and self.top_k >= 1
        ):
            raise InputError(f"top_k must be a whole number of at least 1, got {self.top_k!r}")
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise InputError(f"top_p must be above 0 and at most 1, got {self.top_p!r}")

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Scores [B, V] to the probabilities that tokens are drawn with, in float64."""
        scaled = scores.astype(np.float64)
        scaled = (scaled - scaled.max(-1, keepdims=True)) / self.temperature
        order = np.argsort(-scaled, axis=-1, kind="stable")  # [B, V], the most probable first
        ranked = np.exp(np.take_along_axis(scaled, order, -1))
        ranked /= ranked.sum(-1, keepdims=True)
        if self.top_k is not None:
            ranked[:, self.top_k :] = 0.0
            ranked /= ranked.sum(-1, keepdims=True)
        if self.top_p is not None:
            before = np.cumsum(ranked, -1) - ranked  # of more probable tokens
            ranked[before >= self.top_p - ROUNDING] = 0.0
            ranked /= ranked.sum(-1, keepdims=True)
        result = np.empty_like(ranked)
        np.put_along_axis(result, order, ranked, -1)
        return result

    def draw(self, scores: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        """One token for every row [B]; a row has a random generator of its own."""
        chances = self.probabilities(scores)
        return np.array([rng.choice(len(p), p=p) for rng, p in zip(rngs, chances, strict=True)])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
