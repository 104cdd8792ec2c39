"""Finished trainings of an unfinished run, so that a resumed run does not repeat them.

    RUN/trainings/NAME.safetensors     the weights; the training curve is in its metadata

A training depends only on the series, the settings and its name. One that was interrupted begins again and ends with
the same weights.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from glassbert.files import atomic_write
from glassbert.forecasting.fit import FitResult, copy_parameters, set_parameters
from glassbert.models.model import Model


class StoredTrainings:
    """Trainings by name; without a folder nothing is stored."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder

    def restore(self, name: str, model: Model) -> FitResult | None:
        """Set the weights of a finished training and return its result; None if there is none."""
        path = self._path(name)
        if path is None or not path.exists():
            return None
        try:
            with safe_open(path, "np") as file:
                content = json.loads(file.metadata()["result"])
                weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
            if {key: array.shape for key, array in weights.items()} != _shapes(model):
                return None
            curve = tuple((int(step), float(error)) for step, error in content["curve"])
            result = FitResult(content["step"], content["error"], curve)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            return None
        set_parameters(model, weights)
        return result

    def store(self, name: str, model: Model, result: FitResult) -> None:
        path = self._path(name)
        if path is None:
            return
        content = {"step": result.step, "error": result.error, "curve": result.curve}
        with atomic_write(path, "wb") as file:
            file.write(save(copy_parameters(model), {"result": json.dumps(content)}))

    def remove(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{re.sub('[^a-z0-9]+', '-', name)}.safetensors"


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(model.engine.to_numpy(array)) for name, array in model.parameters.items()}
