"""TensorBoard and Weights & Biases: the numbers of the log, where other people like to look at them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glassbert.errors import TrainingError
from glassbert.training.log import Sink

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class TensorBoard:
    """Event files in RUN/tensorboard, through tensorboardX, which needs neither TensorFlow nor PyTorch."""

    def __init__(self, folder: Path):
        self._writer = import_module("tensorboardX").SummaryWriter(str(folder))

    def numbers(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the same name in a project of Weights & Biases."""

    def __init__(self, project: str, name: str, folder: Path, settings: dict[str, Any]):
        wandb = import_module("wandb")
        try:
            self._run = wandb.init(
                project=project, name=name, id=name, dir=str(folder), config=settings, resume="allow",
                settings=wandb.Settings(console="off"),  # or it copies every frame of the live display
            )  # fmt: skip
        except wandb.Error as error:
            raise TrainingError(
                f"Weights & Biases did not start: {error} With WANDB_MODE=offline the numbers stay in {folder}, "
                f"and `wandb sync` sends them later."
            ) from error

    def numbers(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


def require_sinks(settings: Any) -> None:
    """An error where a run asks for what is not installed, before anything is made for it."""
    for name, package in PACKAGES.items():
        if getattr(settings, name) and find_spec(package) is None:
            raise TrainingError(f'--{name} needs {package}: pip install "glassbert[{name}]"')


def sinks_for(settings: Any, folder: Path, name: str) -> list[Sink]:
    sinks: list[Sink] = []
    if settings.tensorboard:
        sinks.append(TensorBoard(folder / "tensorboard"))
    if settings.wandb:
        sinks.append(WeightsAndBiases(settings.wandb, name, folder, settings.to_dict()))
    return sinks
