"""A receipt: all that somebody else needs to repeat a run, and the checks that a resumed run is still the same one."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from glassbert.engines.machine import inspect_machine
from glassbert.errors import TrainingError

if TYPE_CHECKING:
    from glassbert.training.trainer import Trainer

PACKAGES = ("glassbert", "numpy", "tokenizers", "safetensors", "numba", "mlx")


def receipt(trainer: Trainer) -> dict[str, Any]:
    """Command, machine, versions, model and data of a run, as plain values."""
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
        "machine": machine_facts(),
        "versions": versions(),
        "data": trainer.data.description,
        "fingerprint": trainer.data.fingerprint,
    }


def machine_facts() -> dict[str, Any]:
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
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def check_same_run(content: dict[str, Any], trainer: Trainer) -> None:
    """Refuse to go on with another model, other text or another tokenizer than the run began with."""
    config = trainer.model.config.to_dict()
    for name, value in content["model"]["config"].items():
        if config.get(name) != value:
            raise TrainingError(
                f"{trainer.run.path} trains a model with {name} {value!r}, and its settings now give "
                f"{config.get(name)!r}; restore the corpus or the settings it began with"
            )
    if content["fingerprint"] != trainer.data.fingerprint:
        raise TrainingError(
            f"the corpus or tokenizer of {trainer.run.path} is not the one it began with; restore it "
            f"({trainer.settings.corpus or 'the built-in texts'}), or begin a new run with --start-from"
        )


def changed_since(content: dict[str, Any], trainer: Trainer) -> list[str]:
    """What differs now and keeps a resumed run from repeating itself bit by bit."""
    engine = trainer.model.engine
    now = {"name": engine.name, "precision": engine.dtype_name, "threads": engine.threads}
    differ = [f"{key} was {then} and is {now[key]}" for key, then in content["engine"].items() if now[key] != then]
    then = content["versions"]
    return differ + [f"{k} was {then[k]} and is {v}" for k, v in versions().items() if k in then and then[k] != v]
