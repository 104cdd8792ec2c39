"""Snapshots: the weights of a run at a few moments, kept to see how the model grew.

    RUN/snapshots/step-00000120/config.json, model.safetensors

Checkpoints exist to go on from, are large and are removed when newer ones come. Snapshots hold nothing but the model
and stay. Most of what changes in a run changes early, so n of them are taken at its beginning and after 1/2ⁿ⁻¹, ...,
1/4 and 1/2 of it; the finished model comes last. They change nothing in the run. A run that goes on from an earlier
checkpoint drops those taken since, as it cuts its log, and takes them again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from glassbert.files import explain_write_errors
from glassbert.models.model import Model
from glassbert.training.run_folder import STEP_FOLDER, WRITING, RunFolder

FOLDER = "snapshots"


def snapshot_due(count: int, before: float, after: float) -> bool:
    """Whether a step that moved the progress from `before` to `after` passed one of the moments."""
    return any(before < 0.5**halvings <= after for halvings in range(1, count))


def write_snapshot(run: RunFolder, step: int, model: Model) -> Path:
    """The model as it is now, in a folder that gets its name once it is complete."""
    place = run.path / FOLDER / f"step-{step:08d}"
    aside = place.parent / f"{WRITING}{place.name}"
    with explain_write_errors(place):
        shutil.rmtree(aside, ignore_errors=True)
        model.save(aside)
        if place.exists():
            shutil.rmtree(place)
        os.replace(aside, place)
    return place


def find_snapshots(run: RunFolder) -> dict[int, Path]:
    """The snapshots by their step, in order."""
    folder = run.path / FOLDER
    found = [(STEP_FOLDER.fullmatch(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    return dict(sorted((int(name[1]), path) for name, path in found if name))


def drop_later_snapshots(run: RunFolder, step: int) -> None:
    for taken, place in find_snapshots(run).items():
        if taken > step:
            shutil.rmtree(place, ignore_errors=True)
