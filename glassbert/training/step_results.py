"""What a training step reports, and what is done when its loss or gradient is not finite.

On MLX every value is lazy: `float(result.loss)` waits for the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import TrainingError

if TYPE_CHECKING:
    from glassbert.models.model import Model
    from glassbert.training.checkpointing import RunState
    from glassbert.training.monitor import Monitor
    from glassbert.training.run_folder import RunFolder
    from glassbert.training.settings import TrainingSettings
    from glassbert.training.step import TrainingStep

MAX_SKIPPED_IN_A_ROW = 10
EXPLAINED = 3  # skipped steps of a run whose cause is searched; later ones are only counted


@dataclass(frozen=True)
class ParameterNorms:
    """Sums of squares of a step's gradient, its update and the weights: one value per parameter, ordered as `names`."""

    names: tuple[str, ...]
    gradient: Any  # [parameters]
    update: Any
    weight: Any

    def gradient_norms(self) -> dict[str, float]:
        """The gradient norm of each module: embeddings, layers.0, layers.1, ..., head."""
        return {module: float(np.sqrt(total)) for module, total in self._by_module(self.gradient).items()}

    def update_ratios(self) -> dict[str, float]:
        """The norm of each module's update over the norm of its weights."""
        weight = self._by_module(self.weight)
        return {
            module: float(np.sqrt(total / weight[module])) if weight[module] else 0.0
            for module, total in self._by_module(self.update).items()
        }

    def _by_module(self, squares: Any) -> dict[str, float]:
        totals: dict[str, float] = {}
        for name, square in zip(self.names, np.array(squares, np.float64), strict=True):
            totals[module_of(name)] = totals.get(module_of(name), 0.0) + float(square)
        return totals


def module_of(name: str) -> str:
    """The module of a parameter: layers.3 for layers.3.ffn.up.weight, embeddings for embeddings.token."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "layers" else parts[0]


@dataclass(frozen=True)
class StepResult:
    """The loss of the whole batch, the gradient norm before clipping, and whether the update was skipped.

    `losses` has the unweighted loss of every objective. A step with `step.detailed = True` also fills `metrics`
    ("mlm_accuracy") and `norms`.
    """

    loss: Any
    gradient_norm: Any
    skipped: Any  # the loss or the norm was not finite: parameters, buffers and counters are unchanged
    losses: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    norms: ParameterNorms | None = None


# ---- steps that are not finite --------------------------------------------------------------------------------------


def count_bad_step(
    step: int, loss: float, norm: float, inputs: dict[str, Any], by: TrainingStep, state: RunState, monitor: Monitor
) -> None:
    """Count a skipped step and log it; for the first ones, with the first value that is not finite."""
    state.skipped += 1
    state.skipped_in_a_row += 1
    monitor.status.skipped = state.skipped
    cause = ""
    if state.skipped <= EXPLAINED:
        cause = f"; the first number that was not finite: {explain_bad_step(by.model, inputs, by)}"
    monitor.event(f"Step {step:,} was skipped: loss {loss}, gradient norm {norm}{cause}.")


def stop_if_too_many(state: RunState, settings: TrainingSettings, run: RunFolder) -> None:
    """Raise after 10 skipped steps in a row or `max_skipped` in total, while the last checkpoint is still good."""
    if state.skipped_in_a_row < MAX_SKIPPED_IN_A_ROW and state.skipped <= settings.max_skipped:
        return
    steps = run.steps()
    raise TrainingError(
        f"{state.skipped} steps had no finite gradient, {state.skipped_in_a_row} of them in a row, so the run stops. "
        f"The checkpoint of step {steps[-1] if steps else 0:,} is complete. Usually the learning rate is too high "
        f"({settings.learning_rate:g}): start a new run with a lower --learning-rate, a longer --warmup or a smaller "
        f"--clip"
    )


def explain_bad_step(model: Model, inputs: Mapping[str, Any], step: TrainingStep | None = None) -> str:
    """Name the first value of a batch that is not finite, with the loss of a step or of the head. Nothing changes.

    The batch is computed again with all intermediate values kept. They are checked in the order of computation:
    parameters, activations from the embeddings to the loss, gradients from the loss back to the embeddings.
    """
    name = _first_not_finite(model, model.parameters.items())
    if name:
        return f"the parameter {name}"
    training, seed = model.training, model.dropout_seed
    try:
        model.dropout_seed -= 1  # a pass in training advances the seed: use the masks of the bad step again
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # np.errstate does not apply to other threads
            loss, cache = model.loss(**inputs, trace=True) if step is None else step.trace(inputs)
            name = _first_not_finite(model, ((name, cache[name]) for name in cache))
            if name:
                return f"the activation {name}{_largest_before(model, cache, name)}"
            if not np.isfinite(float(loss)):
                return "the loss, though every activation is finite"
            gradients = model.backward(cache) if step is None else step.backward(cache)
            name = _first_not_finite(model, ((n, gradients[n]) for n in reversed(list(gradients))))
    finally:
        model.training, model.dropout_seed = training, seed
    if name:
        return f"the gradient of {name}"
    return "none found when the batch was computed again: the gradient norm overflowed, or the error was random"


def _first_not_finite(model: Model, values: Iterable[tuple[str, Any]]) -> str | None:
    for name, value in values:
        for array in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(array, "shape") and hasattr(array, "dtype"):
                numbers = model.engine.to_numpy(array)
                if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
                    return name
    return None


def _largest_before(model: Model, cache: Mapping[str, Any], bad: str) -> str:
    """The largest absolute number of the value before the bad one, which is large before an overflow."""
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
