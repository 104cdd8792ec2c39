"""Predefined tasks: `ready.toml` describes the files of public datasets and how to read them.

task = ready_task("sst2")
train, dev = task.open("data"), task.open("data", "dev")
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from glassbert.errors import ConfigError, InputError
from glassbert.tasks.data import TaskData
from glassbert.tasks.labels import LabelMap
from glassbert.tasks.series import Series
from glassbert.tasks.table import read_lines


@dataclass(frozen=True)
class ReadyTask:
    """The files of a task and how to read them; see `ready.toml`."""

    name: str
    title: str
    train: str
    head: str
    metric: str
    read: dict[str, Any]
    dev: str | None = None
    label_names: list[str] = field(default_factory=list)
    label_file: str | None = None

    def open(self, folder: str | Path, split: str = "train") -> TaskData:
        """The examples of "train" or "dev"."""
        if self.head == "series":
            raise InputError(f"{self.name} is a time series: use open_series")
        return TaskData.of(Path(folder) / self._file(split), **self.read)

    def open_series(self, folder: str | Path) -> Series:
        """The series of a forecasting task."""
        if self.head != "series":
            raise InputError(f"{self.name} is not a time series: use open")
        return Series.of(Path(folder) / self._file("train"), **self.read)

    def names_of_labels(self, folder: str | Path, labels: LabelMap) -> list[str]:
        """Readable names of the labels: those of the task, else the labels themselves."""
        names = read_lines(Path(folder) / self.label_file) if self.label_file else self.label_names
        if not names:
            return list(labels.names)
        if len(names) < len(labels):
            raise InputError(f"{self.name} has {len(names)} names for {len(labels)} labels")
        return [names[int(label)] if self.label_file else names[index] for index, label in enumerate(labels.names)]

    def _file(self, split: str) -> str:
        file = {"train": self.train, "dev": self.dev}.get(split)
        if file is None:
            files = "train and dev" if self.dev else "only train; hold out a part of it with train_dev_split"
            raise InputError(f"{self.name} has no {split!r} file: it has {files}")
        return file


@cache
def ready_tasks() -> dict[str, ReadyTask]:
    """All predefined tasks by name, in the order of `ready.toml`."""
    text = resources.files("glassbert.tasks").joinpath("ready.toml").read_text(encoding="utf-8")
    return {name: ReadyTask(name, **entry) for name, entry in tomllib.loads(text).items()}


def ready_task(name: str) -> ReadyTask:
    """The predefined task of this name."""
    try:
        return ready_tasks()[name]
    except KeyError:
        raise ConfigError(f"there is no ready task {name!r}; choose one of {', '.join(ready_tasks())}") from None
