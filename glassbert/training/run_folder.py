"""The folder of a run: where everything is, and that only one process writes there.

RUN/settings.json              what was asked for; with the corpus, all that repeating the run needs
RUN/log.jsonl                  what happened, a line each
RUN/checkpoints/step-00001200/ the whole state of the run at a step
RUN/snapshots/step-00000120/   the weights at a few moments, where that was asked for
RUN/model/                     the finished model with its tokenizer
RUN/report.html                what to look at
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from glassbert.errors import TrainingError
from glassbert.files import explain_write_errors, write_json

STEP_FOLDER = re.compile(r"step-(\d{8,})")
PRETRAINING, FINETUNING = "pretraining", "finetuning"
WRITING = ".writing-"  # a checkpoint on its way to the disk, or one whose writer was killed


class RunFolder:
    """Paths, lock and settings of a run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.settings_file = self.path / "settings.json"
        self.log_file = self.path / "log.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.report = self.path / "report.html"
        self.lock_file = self.path / ".lock"

    @property
    def name(self) -> str:
        return self.path.name

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        folder = cls(path)
        if not folder.path.is_dir():
            raise TrainingError(f"there is no run {folder.path}; `glassbert runs` lists those there are")
        if not folder.settings_file.exists():
            raise TrainingError(f"{folder.path} is no run: it has no settings.json")
        return folder

    def read_settings(self) -> dict[str, Any]:
        try:
            content = json.loads(self.settings_file.read_text(encoding="utf-8"))
            if not isinstance(content["settings"], dict):
                raise TypeError("settings must be an object")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{self.settings_file} cannot be used: {error}") from error
        return content

    def begin(self, content: dict[str, Any]) -> None:
        """Write the settings of a new run. A folder that already holds a run is left as it is."""
        if self.settings_file.exists():
            raise TrainingError(
                f"{self.path} already holds a run. Go on with it: glassbert resume {self.path}; "
                f"or choose another folder with --run"
            )
        with explain_write_errors(self.path):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(self.settings_file, content)

    def undo(self) -> None:
        """Take back a run that has not begun: afterwards the folder may be used again."""
        for folder in ("checkpoints", "snapshots", "tokenizer", "tensorboard", "wandb"):
            shutil.rmtree(self.path / folder, ignore_errors=True)
        for file in (self.report, self.settings_file):
            file.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process. The system lets go of the lock when the process ends, however it ends."""
        with explain_write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.lock_file, "a+", encoding="utf-8")  # noqa: SIM115 (held until the end)
        with file:
            if not _lock(file):
                file.seek(0)
                owner = file.read().strip()
                raise TrainingError(
                    f"another process{f' ({owner})' if owner else ''} is writing to {self.path}; "
                    f"wait for it, stop it, or choose another folder with --run"
                )
            file.truncate(0)
            file.write(f"process {os.getpid()}\n")
            file.flush()
            yield

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in order. A name without .writing- is a whole checkpoint."""
        if not self.checkpoints.is_dir():
            return []
        found = (STEP_FOLDER.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def require_space(self, needed: int) -> None:
        with explain_write_errors(self.path):
            free = shutil.disk_usage(self.path).free
        if free < needed:
            raise TrainingError(
                f"the disk of {self.path} has {free / 2**20:,.0f} MiB free, and the run's checkpoints need "
                f"{needed / 2**20:,.0f}; free some space, lower --keep, or choose another folder with --run"
            )


def kind_of_run(path: str | Path) -> str:
    """What the run in a folder does; "" where there is none. Only a pretraining does not write it down."""
    try:
        return json.loads((Path(path) / "settings.json").read_text(encoding="utf-8")).get("kind", PRETRAINING)
    except (OSError, ValueError, AttributeError):
        return ""


def new_run_folder(runs: str | Path, name: str) -> RunFolder:
    """RUNS/NAME-DATE-TIME, with a number behind it where that is taken."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1, 1_000):
        folder = RunFolder(Path(runs) / (stem if number == 1 else f"{stem}-{number}"))
        if not folder.path.exists():
            return folder
    raise TrainingError(f"there are too many runs named {stem} in {runs}")


def _lock(file: IO[str]) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
