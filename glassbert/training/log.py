"""The log of a run: one JSON object a line, each with the kind of thing that happened and the step.

A checkpoint remembers how long the log was. A resumed run cuts it there, so that the log reads as if the run had never
been interrupted. Other places that want to know (TensorBoard, Weights & Biases) get the same numbers.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from glassbert.errors import TrainingError
from glassbert.files import explain_write_errors

FLUSH_EVERY = 2.0  # seconds


class Sink(Protocol):
    """Somewhere else that numbers go."""

    def numbers(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class RunLog:
    """Appends lines to log.jsonl. `position` is how many bytes of it are on disk for sure after `settle`."""

    def __init__(self, path: Path, position: int = 0, sinks: Sequence[Sink] = ()):
        self.sinks = sinks
        self.path = path
        self._flushed = 0.0
        with explain_write_errors(path):
            self._file = open(path, "ab")  # noqa: SIM115 (closed in close)
            if self._file.tell() < position:
                raise TrainingError(f"{path} is shorter than its checkpoint says; something else has changed it")
            self._file.truncate(position)
            self._file.seek(0, os.SEEK_END)

    def write(self, kind: str, step: int, seconds: float, **values: Any) -> None:
        line = {"kind": kind, "step": step, "seconds": round(seconds, 3), **values}
        with explain_write_errors(self.path):
            self._file.write(json.dumps(_plain(line), ensure_ascii=False).encode() + b"\n")
            if seconds - self._flushed > FLUSH_EVERY:
                self._file.flush()
                self._flushed = seconds
        numbers = _numbers(kind, values)
        for sink in self.sinks if numbers else ():
            sink.numbers(step, numbers)

    def settle(self) -> int:
        """Bring everything to the disk; returns the position to cut at when the run is resumed from here."""
        with explain_write_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        self._file.close()
        for sink in self.sinks:
            sink.close()


class NoLog(RunLog):
    """For the workers beside the first, which write nothing."""

    def __init__(self) -> None:
        self.sinks = ()

    def write(self, kind: str, step: int, seconds: float, **values: Any) -> None:
        pass

    def settle(self) -> int:
        return 0

    def close(self) -> None:
        pass


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log. A last line that is still being written is left out."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value


def _numbers(prefix: str, values: dict[str, Any]) -> dict[str, float]:
    """Nested numbers under names with slashes, as TensorBoard groups them."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update(_numbers(f"{prefix}/{name}", value))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}/{name}"] = float(value)
    return found
