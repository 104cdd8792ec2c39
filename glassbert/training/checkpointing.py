"""Checkpoints of a run: the whole state, written aside and renamed into place.

    step-00001200/config.json, model.safetensors    the model, as `glassbert.load` opens it
    step-00001200/training.safetensors              optimizer buffers and the moving average
    step-00001200/state.json                        counters, position in the data, clock, position in the log

A folder named step-... was complete on disk before it got that name, so whoever sees the name can read it: a process
killed while it saves leaves a folder of another name, which the next save sweeps away.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from glassbert.errors import GlassBertError, TrainingError
from glassbert.files import explain_write_errors
from glassbert.training.run_folder import WRITING, RunFolder

STATE = "state.json"
TRAINING = "training.safetensors"
FORMAT = 1


class Weights(Protocol):
    """A model, or whatever else has weights in a folder."""

    def save(self, folder: Path) -> None: ...

    def load_checkpoint(self, folder: Path) -> None: ...


class Saved(NamedTuple):
    """What a checkpoint held besides the model's weights."""

    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


def write_checkpoint(
    run: RunFolder, step: int, model: Weights, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> Path:
    """Save the state after `step`. If that fails the earlier checkpoints are as they were."""
    place = run.checkpoint(step)
    with explain_write_errors(run.checkpoints):
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        for cut_off in run.checkpoints.glob(WRITING + "*"):
            shutil.rmtree(cut_off, ignore_errors=True)
    aside = run.checkpoints / f"{WRITING}{place.name}"
    try:
        model.save(aside)
        with explain_write_errors(aside):
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, aside / TRAINING)
            sizes = {path.name: path.stat().st_size for path in aside.iterdir() if path.is_file()}
            content = {"format": FORMAT, "step": step, "files": sizes, **state}
            (aside / STATE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            for path in (aside / TRAINING, aside / STATE, aside):
                flush(path)
            if place.exists():  # the same step of the same run: a run that was resumed repeats itself exactly
                shutil.rmtree(place)
            os.replace(aside, place)
            flush(run.checkpoints)
    except (GlassBertError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        kept = f"the checkpoint of step {run.steps()[-1]} is whole" if run.steps() else "there is no earlier one"
        raise TrainingError(
            f"the checkpoint of step {step} could not be saved: {error}; {kept}. Make room or permit writing, "
            f"then go on with: glassbert resume {run.path}"
        ) from error
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return place


def read_checkpoint(run: RunFolder, step: int, model: Weights) -> Saved:
    """Give `model` the weights of a step, and return the rest."""
    place = run.checkpoint(step)
    state = read_state(place)
    model.load_checkpoint(place)
    try:
        return Saved(load_file(place / TRAINING), state)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{place / TRAINING} cannot be read: {error}") from error


def read_state(place: Path) -> dict[str, Any]:
    """The state of a checkpoint, once its files are found to be as long as they were written."""
    try:
        state = json.loads((place / STATE).read_text(encoding="utf-8"))
        sizes = dict(state["files"])
        step = int(state["step"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{place / STATE} cannot be used: {error}") from error
    if state.get("format") != FORMAT:
        raise TrainingError(f"{place} has format {state.get('format')!r}, and this GlassBERT reads {FORMAT}")
    if place.name != f"step-{step:08d}":
        raise TrainingError(f"{place} says that it is step {step}; it was renamed or belongs to another run")
    for name, size in sizes.items():
        path = place / name
        if not path.is_file() or path.stat().st_size != size:
            raise TrainingError(
                f"{path} is not as it was written ({size:,} bytes); remove {place} to go on from an earlier checkpoint"
            )
    return state


def prune(run: RunFolder, keep: int, best: int | None) -> None:
    """Remove all but the last `keep` checkpoints and the best one."""
    steps = run.steps()
    for step in steps[: max(0, len(steps) - keep)]:
        if step != best:
            place = run.checkpoint(step)
            doomed = run.checkpoints / f"{WRITING}old-{place.name}"
            with suppress(OSError):
                os.replace(place, doomed)  # first the name, so that no half-removed folder has the name of a whole one
                shutil.rmtree(doomed)


def flush(path: Path) -> None:
    """Ask the system to bring a file or folder to the disk. Not every file system lets folders be asked."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
