"""Where a fine-tuning stands, what it learns from, and the files that remember both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from safetensors.numpy import load_file, save_file

from glassbert.errors import TrainingError
from glassbert.models.model import Model
from glassbert.training.optimizers.base import check_fit
from glassbert.training.run_folder import RunFolder

WEIGHTS = "weights.safetensors"


class Learnable(Protocol):
    """What there is to learn from: units with a length, a batch of which is a dict of inputs."""

    @property
    def lengths(self) -> np.ndarray: ...

    @property
    def group(self) -> int: ...

    def inputs(self, units: np.ndarray, multiple: int = 1) -> dict[str, np.ndarray]: ...


@dataclass
class TuningState:
    """Where a seed stands."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # of this epoch, the next to be taken
    examples: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int | None = None
    best_epoch: float = 0.0
    evaluations: int = 0
    evaluations_without_gain: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    stopped: str = ""  # "finished" or "early"; nothing while it goes on
    log_position: int = 0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TuningState:
        try:
            return cls(**{f.name: values[f.name] for f in dataclasses.fields(cls)})
        except (KeyError, TypeError) as error:
            raise TrainingError(f"a checkpoint's state is incomplete: {error}") from error


class Tuned(NamedTuple):
    """How one seed ended: `stopped` is "finished", "early" or "interrupted"."""

    stopped: str
    best: float | None
    epoch: float  # after which the best weights were
    epochs: float  # how many were made
    steps: int
    examples: int
    seconds: float


class SeedFolder(RunFolder):
    """A run's folder as one of its seeds sees it: checkpoints are in RUN/seed-0."""

    def __init__(self, path: str | Path, seed: int = 0):
        super().__init__(path)
        self.checkpoints = self.path / f"seed-{seed}"


class ParameterFile:
    """A model's parameters as a checkpoint keeps them, under our own names, whatever kind of model it is."""

    def __init__(self, model: Model):
        self.model = model

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        to_numpy = self.model.engine.to_numpy
        arrays = {name: np.ascontiguousarray(to_numpy(array)) for name, array in self.model.parameters.items()}
        save_file(arrays, folder / WEIGHTS)

    def load_checkpoint(self, folder: Path) -> None:
        arrays = load_file(folder / WEIGHTS)
        wanted = {name: tuple(array.shape) for name, array in self.model.parameters.items()}
        check_fit("the checkpoint", wanted, arrays)
        for name in wanted:
            self.model.parameters[name] = self.model.engine.array(arrays[name])
