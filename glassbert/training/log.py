"""The log of a run: log.jsonl with one JSON object per line, and optionally TensorBoard and Weights & Biases.

Every line has a kind, a step and seconds. A checkpoint stores the length of the log, and a resumed run truncates it to
that length, so the log of an interrupted run equals that of an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from glassbert.errors import TrainingError, needs
from glassbert.files import explain_write_errors, numbers

FLUSH_EVERY = 2.0  # seconds
LONGEST_LINE = 2**24  # bytes; a longer line is damaged
# The numbers that a line of a pretraining run has, by kind, besides its step.
NUMBERS = {
    "train": ("seconds", "tokens", "loss", "gradient_norm", "learning_rate"),
    "evaluation": ("seconds", "tokens", "progress", "loss", "accuracy"),
    "sample": ("progress",),
    "final": ("loss", "accuracy"),
    "event": ("seconds",),
}
NOT_FINITE = ("nan", "inf", "-inf")
SINK_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Sink(Protocol):
    """Another destination for the numbers of the log."""

    def numbers(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class RunLog:
    """Appends lines to log.jsonl, after truncating it to `position` bytes, and passes their numbers to `sinks`."""

    def __init__(self, path: Path, position: int = 0, sinks: Sequence[Sink] = ()):
        self.sinks = sinks
        self.path = path
        self._flushed = 0.0
        with explain_write_errors(path):
            self._file = open(path, "ab")  # noqa: SIM115 (closed in close)
            if self._file.tell() < position:
                raise TrainingError(
                    f"{path} is shorter than the {position} bytes in the checkpoint; another program has changed it"
                )
            self._file.truncate(position)
            self._file.seek(0, os.SEEK_END)

    def write(self, kind: str, step: int, seconds: float, **values: Any) -> None:
        line = {"kind": kind, "step": step, "seconds": round(seconds, 3), **values}
        with explain_write_errors(self.path):
            self._file.write(json.dumps(_json_value(line), ensure_ascii=False).encode() + b"\n")
            if seconds - self._flushed > FLUSH_EVERY:
                self._file.flush()
                self._flushed = seconds
        numbers = _flat_numbers(kind, values)
        for sink in self.sinks if numbers else ():
            sink.numbers(step, numbers)

    def sync(self) -> int:
        """Write everything to disk and return the length of the log in bytes, for a checkpoint."""
        with explain_write_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        self._file.close()
        for sink in self.sinks:
            sink.close()


class NoLog(RunLog):
    """Writes nothing; for all workers except worker 0."""

    def __init__(self) -> None:
        self.sinks = ()

    def write(self, kind: str, step: int, seconds: float, **values: Any) -> None:
        pass

    def sync(self) -> int:
        return 0

    def close(self) -> None:
        pass


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; an incomplete last line and damaged lines are left out."""
    try:
        if not path.is_file():
            return
        with open(path, "rb") as file:
            while line := file.readline(LONGEST_LINE):
                found = _line(line) if line.endswith(b"\n") else None
                if found is not None:
                    yield found
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror or error}") from error


def read_run_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of the log of a pretraining run that have all the numbers of their kind."""
    for line in read_log(path):
        line = numbers(line) if line["kind"] in ("evaluation", "final") else line
        wanted = ("step", *NUMBERS.get(line["kind"], ()))
        whole = all(_is_number(line.get(name)) for name in wanted)
        whole &= isinstance(line.get("parts", {}), dict) and isinstance(line.get("text", ""), str)
        if whole and (line["kind"] != "sample" or _answers(line.get("answers"))):
            yield line


def _line(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("kind"), str) else None


def _is_number(value: Any) -> bool:
    """Whether a value is a number that is no giant, or the name of NaN or an infinity."""
    if isinstance(value, str):
        return value in NOT_FINITE
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**62)


def _answers(value: Any) -> bool:
    """Whether a value is a list of words with their probabilities."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, list) and len(one) == 2 for one in value)


def _json_value(value: Any) -> Any:
    """Round floats to 6 digits; NaN and infinity become strings, since JSON has neither."""
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value


def _flat_numbers(prefix: str, values: dict[str, Any]) -> dict[str, float]:
    """Nested numbers under names joined with slashes, as TensorBoard groups them."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update(_flat_numbers(f"{prefix}/{name}", value))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}/{name}"] = float(value)
    return found


# ---- TensorBoard and Weights & Biases -------------------------------------------------------------------------------


class TensorBoard:
    """Writes event files to RUN/tensorboard with tensorboardX, which needs neither TensorFlow nor PyTorch."""

    def __init__(self, folder: Path):
        self._writer = import_module("tensorboardX").SummaryWriter(str(folder))

    def numbers(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Logs to a Weights & Biases project, in a run with the same name."""

    def __init__(self, project: str, name: str, folder: Path, settings: dict[str, Any]):
        wandb = import_module("wandb")
        try:
            self._run = wandb.init(
                project=project, name=name, id=name, dir=str(folder), config=settings, resume="allow",
                settings=wandb.Settings(console="off"),  # otherwise it records every frame of the live display
            )  # fmt: skip
        except wandb.Error as error:
            raise TrainingError(
                f"Weights & Biases did not start: {error} Set WANDB_MODE=offline to keep the numbers in {folder} "
                f"and send them later with `wandb sync`."
            ) from error

    def numbers(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


def require_sinks(settings: Any) -> None:
    """Raise if the settings select a sink whose package is not installed."""
    for name, package in SINK_PACKAGES.items():
        if getattr(settings, name) and find_spec(package) is None:
            raise TrainingError(needs(f"--{name}", package))


def sinks_for(settings: Any, folder: Path, name: str) -> list[Sink]:
    """The sinks that the settings select."""
    sinks: list[Sink] = []
    if settings.tensorboard:
        sinks.append(TensorBoard(folder / "tensorboard"))
    if settings.wandb:
        sinks.append(WeightsAndBiases(settings.wandb, name, folder, settings.to_dict()))
    return sinks
