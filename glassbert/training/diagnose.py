"""Which number went bad first? A batch whose loss or gradient is not finite, looked at value by value.

The batch is computed again with every intermediate value kept, in the order of the computation: parameters, activations
from the embeddings to the loss, then the gradients from the loss back. The first name with a number that is not finite
is the answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glassbert.models.model import Model


def explain_bad_step(model: Model, inputs: Mapping[str, Any]) -> str:
    """A sentence that names the first value that is not finite. The model is left as it was."""
    name = _first_bad(model, model.parameters.items())
    if name:
        return f"the parameter {name}"
    training, seed = model.training, model.dropout_seed
    try:
        model.dropout_seed -= 1  # a pass in training draws new masks: draw those of the bad step once more
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # np.errstate would not reach the other threads
            loss, cache = model.loss(**inputs, trace=True)
            name = _first_bad(model, ((name, cache[name]) for name in cache))
            if name:
                return f"the activation {name}{_size_before(model, cache, name)}"
            if not np.isfinite(float(loss)):
                return "the loss, though every activation is finite"
            gradients = model.backward(cache)
            name = _first_bad(model, ((n, gradients[n]) for n in reversed(list(gradients))))
    finally:
        model.training, model.dropout_seed = training, seed
    if name:
        return f"the gradient of {name}"
    return "nothing that a second computation could find: the overflow was in the norm of the gradient, or in chance"


def _first_bad(model: Model, values: Iterable[tuple[str, Any]]) -> str | None:
    for name, value in values:
        for array in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(array, "shape") and hasattr(array, "dtype"):
                numbers = model.engine.to_numpy(array)
                if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
                    return name
    return None


def _size_before(model: Model, cache: Mapping[str, Any], bad: str) -> str:
    """The largest number of the value before the bad one: an overflow announces itself."""
    before: tuple[str, float] | None = None
    for name in cache:
        if name == bad:
            break
        value = cache[name]
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            numbers = model.engine.to_numpy(value)
            if numbers.dtype.kind == "f" and numbers.size:
                before = name, float(np.abs(numbers).max())
    return f" (before it {before[0]} reached {before[1]:.3g})" if before else ""
