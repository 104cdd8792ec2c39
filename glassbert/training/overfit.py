"""Overfitting one batch: the first thing a model must be able to do.

A model with correct gradients learns a single batch by heart. One with a wrong sign, a lost gradient or a leaking mask
does not, however long it tries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassbert.models.model import Model
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep


def overfit_one_batch(
    model: Model, ids: np.ndarray, labels: np.ndarray, mask: np.ndarray, steps: int = 300, learning_rate: float = 1e-3
) -> Iterator[float]:
    """Train on the same batch again and again, yielding the loss of every step."""
    step = TrainingStep(model, AdamW(model, learning_rate, weight_decay=0.0))
    for done in range(steps):
        step.optimizer.learning_rate = learning_rate * min(1.0, (done + 1) / 20)  # a short warm-up: post-norm needs it
        yield float(step(ids, labels, mask).loss)
