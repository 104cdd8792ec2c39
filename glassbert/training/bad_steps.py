"""Steps whose loss or gradient was not finite: skipped by the step itself, counted and explained here.

One bad step is an accident; many of them mean that the run is lost, and then it stops while its last good checkpoint is
still there.
"""

from __future__ import annotations

from typing import Any

from glassbert.errors import TrainingError
from glassbert.models.model import Model
from glassbert.training.diagnose import explain_bad_step
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import TrainingSettings
from glassbert.training.state import RunState
from glassbert.training.watching import Watcher

IN_A_ROW = 10
EXPLAINED = 3  # of a run; the others are only counted


def note_bad_step(
    step: int, loss: float, norm: float, inputs: dict[str, Any], model: Model, state: RunState, watcher: Watcher
) -> None:
    """Count a step that moved nothing, and say which number went bad first."""
    state.skipped += 1
    state.skipped_in_a_row += 1
    watcher.status.skipped = state.skipped
    why = ""
    if state.skipped <= EXPLAINED:
        why = f"; the first number that was not finite: {explain_bad_step(model, inputs)}"
    watcher.event(f"Step {step:,} was skipped: loss {loss}, gradient norm {norm}{why}.")


def stop_if_too_many(state: RunState, settings: TrainingSettings, run: RunFolder) -> None:
    if state.skipped_in_a_row < IN_A_ROW and state.skipped <= settings.max_skipped:
        return
    steps = run.steps()
    raise TrainingError(
        f"{state.skipped} steps had no finite gradient, {state.skipped_in_a_row} of them in a row, so the run stops. "
        f"The checkpoint of step {steps[-1] if steps else 0:,} is whole. Usually the learning rate is too high "
        f"({settings.learning_rate:g}): begin anew with a lower one, a longer warm-up or clipping"
    )
