"""Variants of a model: a snapshot of its training, heads switched off, some steps of an optimizer on one text.

A view names a variant, so every panel of the glass can show it, and two variants can be compared like two models.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.engines.numpy_engine import NumpyEngine
from glassbert.errors import InputError
from glassbert.insight.dynamics import saved_steps
from glassbert.insight.inputs import LoadedModel
from glassbert.insight.pruning import without_heads
from glassbert.learn.glass.inputs import Step, View
from glassbert.models.model import Model
from glassbert.training.optimizers import OPTIMIZERS
from glassbert.training.step import TrainingStep


def plain_model(model: Model, dtype: str | None = None) -> Model:
    """The same weights on NumPy with the plain operations, in the given precision or its own."""
    own = model.engine.dtype_name
    dtype = dtype or (own if own in ("float32", "float64") else "float32")
    engine = NumpyEngine(dtype, 1, "plain")
    if model.engine.name == "numpy" and dtype == own:
        same = copy.copy(model)  # shares the weights
        same.engine = engine
        same.training = False
        return same
    new = copy.copy(model)
    new.engine, new.training = engine, False
    new.parameters = engine.parameters(model.layout)
    for name, values in model.parameters.items():
        new.parameters[name] = np.asarray(model.engine.to_numpy(values))
    return new


def snapshot_steps(loaded: LoadedModel) -> dict[int, Path]:
    """The training steps whose weights a run kept, with their folders."""
    return {} if loaded.run is None else saved_steps(loaded.run)


def with_weights(loaded: LoadedModel, view: View) -> Model:
    """The model of a view before any step of an optimizer: perhaps a snapshot, perhaps without some heads."""
    model = plain_model(loaded.model)
    if view.snapshot is not None:
        found = snapshot_steps(loaded)
        if view.snapshot not in found:
            known = ", ".join(str(step) for step in found) or "none"
            raise InputError(f"{loaded.name} has no snapshot of step {view.snapshot}; there are {known}")
        model = plain_model(load(found[view.snapshot], engine="numpy"))
    return without_heads(model, view.silenced) if view.silenced else model


def after_steps(model: Model, ids: np.ndarray, labels: Mapping[str, Any], step: Step) -> Model:
    """A copy of the model after some steps on one text. The model itself does not change."""
    moved = copy.copy(model)
    moved.parameters = model.engine.parameters(model.layout)  # type: ignore[assignment]
    for name, values in model.parameters.items():
        moved.parameters[name] = values
    optimizer = OPTIMIZERS[step.optimizer](moved, step.learning_rate)
    run = TrainingStep(moved, optimizer)
    for _ in range(step.count):
        run(ids, **labels)
    return moved
