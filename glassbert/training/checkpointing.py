"""The saved state of a run: checkpoints to resume from, and snapshots of the weights to look at later.

    checkpoints/step-00001200/config.json, model.safetensors   the model, as `glassbert.load` opens it
    checkpoints/step-00001200/training.safetensors             optimizer buffers and the moving average
    checkpoints/step-00001200/state.json                       counters, clock, positions in the data and in the log
    checkpoints/step-00001200/checksums.json                   sizes and checksums of these files
    snapshots/step-00000120/config.json, model.safetensors     the model only; snapshots are never removed

A folder is written under a temporary name (`.writing-...`) and renamed when it is complete. If a process is killed
while saving, only the temporary folder is left over, and the next save removes it. If a file of the last checkpoint has
changed on disk, a resumed run takes the checkpoint before it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from glassbert.errors import GlassBertError, TrainingError
from glassbert.files import CHECKSUMS, adding_files, explain_write_errors, read_json, verify_checksums
from glassbert.models.model import Model
from glassbert.training.run_folder import DAMAGED, STEP_FOLDER, WRITING, RunFolder

STATE = "state.json"
TRAINING = "training.safetensors"
SNAPSHOTS = "snapshots"
FORMAT = 1


@dataclass
class RunState:
    """Counters of a run after `step` steps, as a checkpoint's state.json has them."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    begun: float | None = None  # seconds on the clock at the first step
    taken: dict[int, int] = field(default_factory=dict)  # batches used so far by row length: the position in the data
    skipped: int = 0
    skipped_in_a_row: int = 0
    best_loss: float | None = None
    best_step: int | None = None
    evaluations_without_gain: int = 0
    log_position: int = 0

    @property
    def length(self) -> int | None:
        """The row length of the last step; a curriculum trains short rows first."""
        return max((length for length, count in self.taken.items() if count), default=None)

    def reset_best(self) -> None:
        self.best_loss = self.best_step = None
        self.evaluations_without_gain = 0

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        try:
            state = cls(**{f.name: values[f.name] for f in dataclasses.fields(cls)})
            state.taken = {int(length): int(count) for length, count in state.taken.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TrainingError(f"the {STATE} of a checkpoint is incomplete: {error}") from error
        return state


class Weights(Protocol):
    """A model, or another object that saves its weights to a folder and loads them from there."""

    def save(self, folder: Path) -> None: ...

    def load_checkpoint(self, folder: Path) -> None: ...


class Saved(NamedTuple):
    """The content of a checkpoint without the model's weights."""

    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


def write_checkpoint(
    run: RunFolder, step: int, model: Weights, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> Path:
    """Save the state after `step` and return its folder. On failure earlier checkpoints are unchanged."""
    folder = run.checkpoint(step)
    run.require_own()
    with explain_write_errors(run.checkpoints):
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        remove_incomplete(run.checkpoints)
    temporary = run.checkpoints / f"{WRITING}{folder.name}"
    try:
        model.save(temporary)
        with explain_write_errors(temporary):
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary / TRAINING)
            sizes = {path.name: path.stat().st_size for path in temporary.iterdir() if path.name != CHECKSUMS}
            content = {"format": FORMAT, "step": step, "files": sizes, **state}
            (temporary / STATE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            with adding_files(temporary, (TRAINING, STATE)):
                pass
            for path in (temporary / TRAINING, temporary / STATE, temporary):
                flush(path)
            replace_folder(temporary, folder)  # a resumed run reaches the same step again, with the same content
            flush(run.checkpoints)
    except (GlassBertError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        earlier = f"the checkpoint of step {run.steps()[-1]} is complete" if run.steps() else "there is no earlier one"
        raise TrainingError(
            f"the checkpoint of step {step} could not be saved: {error}; {earlier}. Free disk space or allow writing, "
            f"then continue with: glassbert resume {shlex.quote(str(run.path))}"
        ) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def read_checkpoint(run: RunFolder, step: int, model: Weights) -> Saved:
    """Load the weights of a step into `model` and return the rest of the checkpoint."""
    folder = run.checkpoint(step)
    verify_checksums(folder, TrainingError, (TRAINING, STATE))
    state = read_state(folder)
    model.load_checkpoint(folder)
    try:
        return Saved(load_file(folder / TRAINING), state)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{folder / TRAINING} cannot be read: {error}") from error


def read_state(folder: Path) -> dict[str, Any]:
    """The state.json of a checkpoint, after checking that all files have the sizes it lists."""
    state = read_json(folder / STATE, TrainingError)
    try:
        sizes = {str(name): int(size) for name, size in state["files"].items()}
        step = int(state["step"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise TrainingError(f"{folder / STATE} is damaged: {error!r} is missing or has a wrong type") from error
    if state.get("format") != FORMAT:
        raise TrainingError(f"{folder} has format {state.get('format')!r}, but this GlassBERT reads format {FORMAT}")
    if folder.name != f"step-{step:08d}":
        raise TrainingError(f"{folder} contains step {step}; it was renamed or belongs to another run")
    for name, size in sizes.items():
        path = folder / name
        if not os.path.isfile(path) or os.path.getsize(path) != size:  # False also for a name that no file can have
            raise TrainingError(
                f"{path} is damaged or missing ({size:,} bytes were written); remove {folder} to resume from an "
                f"earlier checkpoint"
            )
    return state


def last_intact(run: RunFolder) -> tuple[int | None, list[str]]:
    """The last step whose checkpoint is as it was written, and what is wrong with the later ones.

    None if there is no checkpoint; if all are damaged, the first error is raised.
    """
    problems: list[str] = []
    for step in reversed(run.steps()):
        folder = run.checkpoint(step)
        try:
            verify_checksums(folder, TrainingError)
            read_state(folder)
            return step, problems
        except TrainingError as error:
            problems.append(str(error))
    if problems:
        raise TrainingError(f"no checkpoint of {run.path} can be used: {problems[0]}")
    return None, []


def set_aside_after(run: RunFolder, step: int | None) -> None:
    """Rename the checkpoints after `step`, which are damaged, so that the resumed run writes them again."""
    for later in run.steps():
        if step is not None and later > step:
            folder = run.checkpoint(later)
            aside = folder.with_name(f"{DAMAGED}{folder.name}")
            with explain_write_errors(aside):
                shutil.rmtree(aside, ignore_errors=True)
                os.replace(folder, aside)


def prune(run: RunFolder, keep: int, best: int | None) -> None:
    """Remove all checkpoints except the last `keep` and the best one."""
    steps = run.steps()
    for step in steps[: max(0, len(steps) - keep)]:
        if step != best:
            with suppress(OSError):
                remove_folder(run.checkpoint(step))


def remove_incomplete(parent: Path) -> None:
    """Remove what killed processes left in a folder of checkpoints or snapshots."""
    for incomplete in parent.glob(WRITING + "*"):
        shutil.rmtree(incomplete, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Rename a folder, then remove it, so that a partly removed one never has its name."""
    renamed = folder.with_name(f"{WRITING}old-{folder.name}")
    shutil.rmtree(renamed, ignore_errors=True)
    os.replace(folder, renamed)
    shutil.rmtree(renamed)


def replace_folder(new: Path, folder: Path) -> None:
    """Give a new folder its name, in the place of an older one."""
    with suppress(FileNotFoundError):
        remove_folder(folder)
    os.replace(new, folder)


def flush(path: Path) -> None:
    """Sync a file or folder to disk; some file systems do not support this for folders."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- snapshots ------------------------------------------------------------------------------------------------------


def snapshot_due(count: int, before: float, after: float) -> bool:
    """Whether a step that moved the progress from `before` to `after` reached the progress of a snapshot.

    Most changes happen early, so `count` snapshots are taken at 0, 1/2ⁿ⁻¹, ..., 1/4 and 1/2 of the run.
    """
    return any(before < 0.5**halvings <= after for halvings in range(1, count))


def write_snapshot(run: RunFolder, step: int, model: Model) -> Path:
    """Save the current model under a temporary name, then rename it."""
    run.require_own()
    folder = run.path / SNAPSHOTS / f"step-{step:08d}"
    temporary = folder.parent / f"{WRITING}{folder.name}"
    with explain_write_errors(folder):
        remove_incomplete(folder.parent)
        model.save(temporary)
        replace_folder(temporary, folder)
    return folder


def find_snapshots(run: RunFolder) -> dict[int, Path]:
    """The snapshots by step, in order."""
    folder = run.path / SNAPSHOTS
    found = [(STEP_FOLDER.fullmatch(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    return dict(sorted((int(name[1]), path) for name, path in found if name))


def drop_later_snapshots(run: RunFolder, step: int) -> None:
    """Remove snapshots after `step`: a run resumed from there takes them again."""
    for taken, folder in find_snapshots(run).items():
        if taken > step:
            with explain_write_errors(folder):
                remove_folder(folder)
