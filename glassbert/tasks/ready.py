"""Ready task descriptions: data in `ready.toml`, opened by name from a folder of files.

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
from glassbert.tasks.plain_text import read_lines
from glassbert.tasks.series import Series


@dataclass(frozen=True)
class ReadyTask:
    """Where a task's files are and how they are read; see `ready.toml`."""

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
            raise InputError(f"{self.name} is a time series: open it with open_series")
        return TaskData.of(Path(folder) / self._file(split), **self.read)

    def open_series(self, folder: str | Path) -> Series:
        if self.head != "series":
            raise InputError(f"{self.name} is no time series: open it with open")
        return Series.of(Path(folder) / self._file("train"), **self.read)

    def names_of_labels(self, folder: str | Path, labels: LabelMap) -> list[str]:
        """What labels are called for people: the task's own names, else the labels themselves."""
        names = read_lines(Path(folder) / self.label_file) if self.label_file else self.label_names
        if not names:
            return list(labels.names)
        if len(names) < len(labels):
            raise InputError(f"{self.name} has {len(names)} names for {len(labels)} labels")
        return [names[int(label)] if self.label_file else names[place] for place, label in enumerate(labels.names)]

    def _file(self, split: str) -> str:
        file = {"train": self.train, "dev": self.dev}.get(split)
        if file is None:
            have = "train and dev" if self.dev else "train alone; hold out a part of it with train_dev_split"
            raise InputError(f"{self.name} has no {split!r} file: it has {have}")
        return file


@cache
def ready_tasks() -> dict[str, ReadyTask]:
    """All of them by name, in the order of the table."""
    text = resources.files("glassbert.tasks").joinpath("ready.toml").read_text(encoding="utf-8")
    return {name: ReadyTask(name, **entry) for name, entry in tomllib.loads(text).items()}


def ready_task(name: str) -> ReadyTask:
    try:
        return ready_tasks()[name]
    except KeyError:
        raise ConfigError(f"there is no ready task {name!r}; there are {', '.join(ready_tasks())}") from None
