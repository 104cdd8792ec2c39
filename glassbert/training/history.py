"""What a run's folder tells of it: settings, receipt, result, and the curves of its log by kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassbert.errors import TrainingError
from glassbert.training.log import read_log
from glassbert.training.run_folder import PRETRAINING, RunFolder, kind_of_run

RESULT = "result.json"


@dataclass
class History:
    """A run as it can be read from disk, finished or not."""

    run: RunFolder
    receipt: dict[str, Any]
    result: dict[str, Any] | None
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, run: RunFolder) -> History:
        lines: dict[str, list[dict[str, Any]]] = {}
        for line in read_log(run.log_file):
            lines.setdefault(line["kind"], []).append(line)
        return cls(run, run.read_settings(), read_result(run), lines)

    @property
    def settings(self) -> dict[str, Any]:
        return self.receipt["settings"]

    def kind(self, name: str) -> list[dict[str, Any]]:
        return self.lines.get(name, [])

    def curve(self, kind: str, value: str, over: str = "step") -> tuple[list[float], list[float]]:
        """Points of a curve; values that are not finite are text in the log and are left out."""
        found = [(line[over], line[value]) for line in self.kind(kind) if isinstance(line.get(value), (int, float))]
        return [x for x, _ in found], [y for _, y in found]

    @property
    def state(self) -> str:
        if self.result is not None:
            return "finished" if self.result["stopped"] == "finished" else "stopped early"
        return "unfinished"

    @property
    def held_out(self) -> tuple[float, float] | None:
        """The held-out loss and accuracy: of the finished model, or the last ones measured."""
        if self.result is not None:
            return self.result["loss"], self.result["accuracy"]
        last = self.kind("evaluation")
        return (last[-1]["loss"], last[-1]["accuracy"]) if last else None

    @property
    def last(self) -> dict[str, Any]:
        """The last line that counts steps and tokens."""
        return max((self.kind(kind)[-1] for kind in ("train", "evaluation") if self.kind(kind)),
                   key=lambda line: line["step"], default={"step": 0, "tokens": 0, "seconds": 0.0})  # fmt: skip


def read_result(run: RunFolder) -> dict[str, Any] | None:
    """The result of a finished run, or None."""
    try:
        return json.loads((run.path / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def find_runs(folder: str | Path) -> Iterator[History]:
    """The pretraining runs in a folder of runs, the oldest first; whatever else lies there is passed over."""
    folder = Path(folder)
    if not folder.is_dir():
        raise TrainingError(f"there is no folder {folder}; `glassbert pretrain` puts its runs into runs/")
    found = []
    for path in folder.iterdir():
        if kind_of_run(path) == PRETRAINING:
            try:
                found.append(History.read(RunFolder(path)))
            except (TrainingError, KeyError):
                continue
    yield from sorted(found, key=lambda history: str(history.receipt.get("begun", "")))
