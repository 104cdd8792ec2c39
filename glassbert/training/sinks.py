"""TensorBoard and Weights & Biases: the numbers of the log, where other people like to look at them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from glassbert.errors import TrainingError
from glassbert.training.log import Sink


class TensorBoard:
    """Event files in RUN/tensorboard, through tensorboardX, which needs neither TensorFlow nor PyTorch."""

    def __init__(self, folder: Path):
        try:
            tensorboard = import_module("tensorboardX")
        except ImportError as error:
            raise TrainingError('--tensorboard needs tensorboardX: pip install "glassbert[tensorboard]"') from error
        self._writer = tensorboard.SummaryWriter(str(folder))

    def numbers(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the same name in a project of Weights & Biases."""

    def __init__(self, project: str, name: str, folder: Path, settings: dict[str, Any]):
        try:
            wandb = import_module("wandb")
        except ImportError as error:
            raise TrainingError('--wandb needs wandb: pip install "glassbert[wandb]"') from error
        self._run = wandb.init(project=project, name=name, id=name, dir=str(folder), config=settings, resume="allow")

    def numbers(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


def sinks_for(settings: Any, folder: Path, name: str) -> list[Sink]:
    sinks: list[Sink] = []
    if settings.tensorboard:
        sinks.append(TensorBoard(folder / "tensorboard"))
    if settings.wandb:
        sinks.append(WeightsAndBiases(settings.wandb, name, folder, settings.to_dict()))
    return sinks
