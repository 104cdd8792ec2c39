"""Attention entropy: how widely a layer looks around, measured on a few rows while the model learns.

Nothing here changes the run: dropout is off while it looks, and the state of the random numbers is left alone. The
other numbers from inside (gradient norm by layer, update-to-weight ratio) come from the training step itself, which
reports them when it is watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.training.evaluate import quietly

ROWS = 4
NOT_INPUTS = ("labels", "pair_labels")


def attention_entropies(model: Model, inputs: Mapping[str, Any]) -> dict[str, float]:
    """By layer, for the first rows of a batch; 1 looks everywhere alike, 0 at one token."""
    few = {name: value[:ROWS] for name, value in inputs.items() if value is not None and name not in NOT_INPUTS}
    with quietly(model):
        cache = model.run(check_inputs(model.config, **few))
        cache.encode()
        names = [f"layers.{i}" for i in range(model.config.num_hidden_layers)]
        weights = (cache[f"{name}.attention.weights"] for name in names)
        return {name: entropy(_float32(model, array)) for name, array in zip(names, weights, strict=True)}


def entropy(weights: np.ndarray) -> float:
    """The mean entropy of attention rows [..., T, T] over that of an even spread.

    A query that sees one key or none has no choice and does not count.
    """
    seen = (weights > 0).sum(-1)
    found = -(weights * np.log(np.maximum(weights, 1e-30))).sum(-1)
    choice = seen > 1
    return float((found[choice] / np.log(seen[choice])).mean()) if choice.any() else 0.0


def _float32(model: Model, array: Any) -> np.ndarray:
    return np.asarray(model.engine.to_numpy(array), np.float32)
