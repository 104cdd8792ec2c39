"""What a training step reports. On MLX everything here is lazy: `float(result.loss)` waits for the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Watched:
    """Sums of squares by parameter, in the order of `names`: of a step's gradient, its update, and the weights."""

    names: tuple[str, ...]
    gradient: Any  # [parameters]
    update: Any
    weight: Any

    def gradient_norms(self) -> dict[str, float]:
        """The norm of the gradient of every place: embeddings, layers.0, layers.1, ..., head."""
        return {place: float(np.sqrt(total)) for place, total in self._by_place(self.gradient).items()}

    def update_ratios(self) -> dict[str, float]:
        """How far the weights of every place moved, over how large they are."""
        weight = self._by_place(self.weight)
        return {
            p: float(np.sqrt(total / weight[p])) if weight[p] else 0.0
            for p, total in self._by_place(self.update).items()
        }

    def _by_place(self, squares: Any) -> dict[str, float]:
        totals: dict[str, float] = {}
        for name, square in zip(self.names, np.array(squares, np.float64), strict=True):
            totals[place_of(name)] = totals.get(place_of(name), 0.0) + float(square)
        return totals


def place_of(name: str) -> str:
    """layers.3.ffn.up.weight is in layers.3, embeddings.token in embeddings."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "layers" else parts[0]


@dataclass(frozen=True)
class StepResult:
    """The loss over the whole batch, the norm of its gradient before clipping, and whether nothing was moved.

    `losses` has the loss of every objective, unweighted. A step taken with `step.watch = True` also fills `metrics`
    ("mlm_accuracy") and `watched`.
    """

    loss: Any
    gradient_norm: Any
    skipped: Any  # the loss or the norm was not finite: parameters, buffers and counters are as before
    losses: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    watched: Watched | None = None
