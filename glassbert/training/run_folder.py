"""The folder of a run: its paths, its lock, and the run information in settings.json.

RUN/settings.json              settings, model, engine, machine, versions and data: what repeating the run needs
RUN/log.jsonl                  one JSON object per line for everything that happened
RUN/checkpoints/step-00001200/ the complete state of the run after a step
RUN/snapshots/step-00000120/   the weights at a few steps, with --snapshots
RUN/model/                     the finished model with its tokenizer
RUN/report.html                the report
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from glassbert.engines.machine import inspect_machine
from glassbert.errors import GlassBertError, TrainingError
from glassbert.files import explain_write_errors, read_json, write_json
from glassbert.locks import try_lock
from glassbert.training.workers import fingerprint

if TYPE_CHECKING:
    from glassbert.models.config import EncoderConfig
    from glassbert.training.data import TrainingData
    from glassbert.training.settings import TrainingSettings
    from glassbert.training.trainer import Trainer

STEP_FOLDER = re.compile(r"step-(\d{8,})")
PRETRAINING, FINETUNING, FORECASTING = "pretraining", "finetuning", "forecasting"
DAMAGED = "damaged-"  # prefix of a checkpoint that a resumed run could not use
WRITING = ".writing-"  # prefix of a folder that is being written, or was when its process was killed
BUILT_IN = "python"  # the kind of the source of the built-in corpus
PACKAGES = ("numpy", "tokenizers", "safetensors", "numba", "mlx")


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
        self.owner = self  # whose lock protects this folder
        self._held: IO[str] | None = None  # the lock file, while this process has the lock
        self._checked = 0.0

    @property
    def name(self) -> str:
        return self.path.name

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of an existing run; raises where there is none."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise TrainingError(f"there is no run {folder.path}; `glassbert runs` lists the runs in a folder")
        if not folder.settings_file.exists():
            parent = folder.path.parent
            own = folder.path.name == folder.model.name and cls(parent).settings_file.exists()
            hint = f"its run is {parent}" if own else "`glassbert runs` lists the runs in a folder"
            raise TrainingError(f"{folder.path} is not a run: it has no settings.json; {hint}")
        return folder

    def read_settings(self) -> dict[str, Any]:
        """The content of settings.json: `run_info` and the settings."""
        content = read_json(self.settings_file, TrainingError)
        if not isinstance(content.get("settings"), dict):
            raise TrainingError(f"{self.settings_file} cannot be used: its field 'settings' must be an object")
        return content

    def settings_of(self, kind: Any) -> Any:
        """The settings of the run, made by `kind.from_dict`; values of wrong types raise a TrainingError."""
        try:
            return kind.from_dict(self.read_settings()["settings"])
        except GlassBertError as error:
            raise TrainingError(f"{self.settings_file} cannot be used: {error}") from error
        except (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError, RecursionError) as error:
            raise TrainingError(f"{self.settings_file} is damaged: {type(error).__name__}: {error}") from error

    def begin(self, content: dict[str, Any]) -> None:
        """Write settings.json of a new run; raises if the folder already contains a run."""
        if self.settings_file.exists():
            raise TrainingError(
                f"{self.path} already contains a run. Continue it with: "
                f"glassbert resume {shlex.quote(str(self.path))}; or choose another folder with --run"
            )
        with explain_write_errors(self.path):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(self.settings_file, content, sealed=True)

    def undo(self) -> None:
        """Remove the files of a run that failed before its first step, so that the folder can be used again."""
        for folder in ("checkpoints", "snapshots", "tokenizer", "tensorboard", "wandb"):
            shutil.rmtree(self.path / folder, ignore_errors=True)
        for file in (self.report, self.settings_file):
            file.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run for this process. The operating system releases the lock when the process ends."""
        with explain_write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.lock_file, "a+", encoding="utf-8")  # noqa: SIM115 (open until the lock is released)
        with file:
            if not try_lock(file):
                file.seek(0)
                owner = file.read(100).strip()
                raise TrainingError(
                    f"another process{f' ({owner})' if owner else ''} is writing to {self.path}; "
                    f"wait for it, stop it, or choose another folder with --run"
                )
            with explain_write_errors(self.lock_file):
                os.truncate(file.fileno(), 0)
                os.write(file.fileno(), f"process {os.getpid()}\n".encode())
            self._held = file
            try:
                self.require_own()
                yield
            finally:
                self._held = None

    def require_own(self, every: float = 0.0) -> None:
        """Raise if the folder was removed or replaced since this process locked it; at most once in `every` seconds.

        The lock belongs to a file, not to a path: after `rm -r RUN` another run may have made a folder of that name.
        """
        held = self.owner._held
        if held is None or time.monotonic() - self._checked < every:
            return
        self._checked = time.monotonic()
        try:
            now, own = os.stat(self.lock_file), os.fstat(held.fileno())
            same = (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino)
        except OSError:
            same = False
        if not same:
            raise TrainingError(
                f"{self.path} is no longer the folder of this run: it was removed or replaced while the run was going "
                f"on. The run stops and writes nothing more"
            )

    def steps(self) -> list[int]:
        """The steps with a complete checkpoint, in order."""
        if not self.checkpoints.is_dir():
            return []
        found = (STEP_FOLDER.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def require_space(self, needed: int) -> None:
        """Raise if the disk has fewer than `needed` bytes free."""
        with explain_write_errors(self.path):
            free = shutil.disk_usage(self.path).free
        if free < needed:
            raise TrainingError(
                f"the disk of {self.path} has {free / 2**20:,.0f} MiB free, but the checkpoints of the run need "
                f"{needed / 2**20:,.0f} MiB; free some space, lower --keep, or choose another folder with --run"
            )


def kind_of_run(path: str | Path) -> str:
    """The kind of run in a folder; "" where there is none. Pretraining runs have no "kind" in settings.json."""
    try:
        return str(read_json(Path(path) / "settings.json", verify=False).get("kind", PRETRAINING))
    except GlassBertError:
        return ""


def new_run_folder(runs: str | Path, name: str) -> RunFolder:
    """RUNS/NAME-DATE-TIME, with a number appended if it exists."""
    stem = f"{name[:100]}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1, 1_000):
        folder = RunFolder(Path(runs) / (stem if number == 1 else f"{stem}-{number}"))
        if not folder.path.exists():
            return folder
    raise TrainingError(f"there are too many runs named {stem} in {runs}; give a folder with --run")


# ---- run information in settings.json -------------------------------------------------------------------------------


def run_info(trainer: Trainer) -> dict[str, Any]:
    """Command, machine, versions, model and data of a run, as JSON values."""
    model, engine = trainer.model, trainer.model.engine
    return {
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["glassbert", *sys.argv[1:]]) if sys.argv[0].endswith("glassbert") else "",
        "model": {
            "family": model.config.family,
            "parameters": model.get_parameter_count(),
            "config": model.config.to_dict(),
        },
        "engine": {"name": engine.name, "precision": engine.dtype_name, "threads": engine.threads},
        "workers": trainer.workers.size,
        "machine": machine_facts(),
        "versions": versions(),
        "data": trainer.data.description,
        "fingerprint": trainer.data.fingerprint,
        "teacher": teacher_fingerprint(trainer),
    }


def teacher_fingerprint(trainer: Trainer) -> str:
    """A hash of the weights of the teacher; "" where there is none."""
    teacher = trainer.components.objectives.teacher
    return fingerprint(teacher.model).hex() if teacher is not None else ""


def machine_facts() -> dict[str, Any]:
    """System, processor, cores, memory, BLAS and accelerator of this machine."""
    facts = inspect_machine()
    return {
        "system": f"{facts.system} {facts.release} {facts.architecture}",
        "processor": facts.cpu_name,
        "cores": facts.usable_cores,
        "memory_gib": round((facts.usable_memory or 0) / 2**30, 1),
        "blas": f"{facts.blas.name} {facts.blas.version}".strip(),
        "accelerator": facts.mlx.device_name if facts.mlx.backend in ("metal", "cuda") else "",
    }


def versions() -> dict[str, str]:
    """Versions of Python, of GlassBERT and of the installed packages of `PACKAGES`."""
    from glassbert import __version__

    found = {"python": platform.python_version(), "glassbert": __version__}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def check_same_run(content: dict[str, Any], trainer: Trainer) -> None:
    """Raise if the model's config or the teacher differ from those in settings.json."""
    check_same_model(content, trainer.run, trainer.model.config)
    if content.get("teacher", "") != teacher_fingerprint(trainer):
        raise TrainingError(
            f"the teacher {trainer.settings.teacher} of {trainer.run.path} has changed since the run started; restore "
            f"its weights, or start a new run with --start-from"
        )


def check_begun(content: dict[str, Any], run: RunFolder, settings: TrainingSettings) -> None:
    """Raise if a settings.json does not describe a run, or names a text that the run did not begin with."""
    for name in ("model", "engine", "versions", "data"):
        if not isinstance(content.get(name), dict):
            raise TrainingError(f"{run.settings_file} is damaged: its field {name!r} must be an object")
    if not isinstance(content["model"].get("config"), dict) or not isinstance(content.get("fingerprint"), str):
        raise TrainingError(f"{run.settings_file} is damaged: it does not describe model and corpus")
    sources = content["data"].get("sources")
    kinds = {str(one.get("kind")) for one in sources if isinstance(one, dict)} if isinstance(sources, list) else set()
    if not settings.corpus and kinds != {BUILT_IN}:  # building the built-in corpus takes a while
        raise TrainingError(f"{run.settings_file} is damaged: it names no corpus, but the run began with one")
    general = content["data"].get("general")
    for given, data in ((settings.corpus, content["data"]), (settings.general, general)):
        folder = data.get("folder") if isinstance(data, dict) else None
        if len(given) == 1 and folder == str(Path(given[0])) and not os.path.exists(Path(folder) / "manifest.json"):
            raise TrainingError(
                f"the run {run.path} began with the corpus {folder}, which is not there; put it back"
                + ("" if os.path.isabs(folder) else ", or resume from the folder in which the run was begun")
            )


def check_same_data(content: dict[str, Any], run: RunFolder, settings: TrainingSettings, data: TrainingData) -> None:
    """Raise if corpus or tokenizer have changed since a run began."""
    if content["fingerprint"] != data.fingerprint:
        raise TrainingError(
            f"the corpus or tokenizer of {run.path} has changed since the run started; restore it "
            f"({settings.corpus or 'the built-in texts'}), or start a new run with --start-from"
        )


def check_same_model(content: dict[str, Any], run: RunFolder, config: EncoderConfig, but: Collection[str] = ()) -> None:
    """Raise if a model's config is not that in settings.json; fields in `but` are not compared."""
    now = json.loads(json.dumps(config.to_dict()))  # tuples as lists, as in the file
    for name, value in content["model"]["config"].items():
        if name not in but and now.get(name) != value:
            raise TrainingError(
                f"{run.path} trains a model with {name} {value!r}, but its settings now give {now.get(name)!r}; "
                f"restore the corpus or the settings that the run started with"
            )


def changed_since(content: dict[str, Any], trainer: Trainer) -> list[str]:
    """Differences of engine and versions that keep a resumed run from being identical bit by bit."""
    engine = trainer.model.engine
    now = {"name": engine.name, "precision": engine.dtype_name, "threads": engine.threads}
    differ = [f"{key} was {then} and is {now[key]}" for key, then in content["engine"].items() if now.get(key) != then]
    workers = content.get("workers", trainer.workers.size)
    if workers != trainer.workers.size:
        differ.append(f"the number of workers was {workers} and is {trainer.workers.size}")
    then = content["versions"]
    return differ + [f"{k} was {then[k]} and is {v}" for k, v in versions().items() if k in then and then[k] != v]
