"""The kinds of runs that `glassbert runs` lists, and the values that it shows of each.

A kind is read by a function from a folder to a dictionary, or None where the folder is of another kind. All have
`kind`, `name`, `path`, `state`, `begun` and `seconds`; the other values are those of the columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassbert.errors import GlassBertError
from glassbert.training.adapting.outcome import FILE as ADAPTATION
from glassbert.training.history import History
from glassbert.training.run_folder import FINETUNING, PRETRAINING, RunFolder, kind_of_run

SHOWN = ("preset", "size", "optimizer", "learning_rate", "batch", "length", "schedule", "seed")
DAMAGED = "damaged"
PROBLEMS = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError)


@dataclass(frozen=True)
class RunKind:
    """How runs of one kind are read and shown: columns by heading, with the name of their value."""

    title: str
    read: Callable[[Path], dict[str, Any] | None]
    columns: dict[str, str]


def read_pretraining(folder: Path) -> dict[str, Any] | None:
    if kind_of_run(folder) != PRETRAINING:
        return None
    history = History.read(RunFolder(folder))
    last, result = history.last, history.result or {}
    loss, accuracy = history.held_out or (None, None)
    return {
        "kind": "adaptation" if (folder / ADAPTATION).exists() else "pretraining",
        "state": history.state,
        "begun": history.info.get("begun", ""),
        "parameters": history.info["model"]["parameters"],
        "steps": result.get("steps", last["step"]),
        "tokens": result.get("tokens", last["tokens"]),
        "seconds": result.get("seconds", last["seconds"]),
        "held_out_loss": loss,
        "accuracy": accuracy,
        "perplexity": math.exp(min(loss, 50.0)) if isinstance(loss, int | float) else None,
        **{name: history.settings.get(name) for name in SHOWN},
        "curve": history.curve("train", "loss")[1],
    }


def read_finetuning(folder: Path) -> dict[str, Any] | None:
    if kind_of_run(folder) != FINETUNING:
        return None
    settings, result = _json(folder / "settings.json"), _json(folder / "result.json", missing={})
    metric = result.get("metric", settings.get("task", {}).get("metric", ""))
    score = result.get("scores", {}).get(metric, {})
    baseline = (result.get("baseline") or {}).get("scores", {}).get(metric, {})
    return {
        "kind": "fine-tuning",
        "state": "finished" if result else "unfinished",
        "begun": settings.get("begun", ""),
        "seconds": result.get("seconds"),
        "task": result.get("task", settings.get("task", {}).get("title", "")),
        "model": settings["settings"].get("model", ""),
        "metric": metric,
        "score": _value(score),
        "baseline": _value(baseline),
        "seeds": len(result.get("seeds", ())) or settings["settings"].get("seeds"),
    }


def read_forecasting(folder: Path) -> dict[str, Any] | None:
    settings = _json(folder / "settings.json", missing={})
    if settings.get("kind") != "forecasting":
        return None
    result = _json(folder / "result.json", missing={})
    scores = result.get("scores", {})
    ours: dict[str, Any] = next(iter(scores.values()), {})
    return {
        "kind": "forecast",
        "state": "finished" if result else "unfinished",
        "begun": settings.get("begun", ""),
        "seconds": result.get("seconds"),
        "series": result.get("series", settings.get("settings", {}).get("series", "")),
        "horizon": result.get("horizon", settings.get("settings", {}).get("horizon")),
        "mase": ours.get("mase"),
        "seasonal_naive": scores.get("seasonal naive", {}).get("mase"),
    }


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    content = _json(folder / "evaluation.json", missing=None)
    if content is None:
        return None
    results = content["results"].values()
    return {
        "kind": "evaluation",
        "state": "failed" if any(one.get("failed") for suites in results for one in suites.values()) else "finished",
        "begun": content.get("made", ""),
        "seconds": content.get("seconds"),
        "models": ", ".join(subject["name"] for subject in content["subjects"]),
        "suites": ", ".join(dict.fromkeys(name for suites in results for name in suites)),
        "quick": content.get("quick"),
    }


def read_study(folder: Path) -> dict[str, Any] | None:
    content = _json(folder / "study.json", missing=None)
    if content is None:
        return None
    result = _json(folder / "result.json", missing={})
    return {
        "kind": "scaling study",
        "state": "finished" if result else "unfinished",
        "begun": "",
        "seconds": None,
        "sizes": ", ".join(f"{size:g}" for size in content["asked"]["sizes"]),
        "tokens_per_point": ", ".join(f"{tokens:,}" for tokens in content["tokens"]),
    }


def _json(path: Path, **missing: Any) -> Any:
    """The object in a file; `missing` is returned where there is no file."""
    if missing and not path.exists():
        return missing["missing"]
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object")
    return content


def _value(score: Any) -> float | None:
    return score.get("value") if isinstance(score, dict) else score


KINDS = (
    RunKind("Pretraining", read_pretraining, {
        "steps": "steps", "tokens": "tokens", "time": "seconds", "held-out loss": "held_out_loss",
        "accuracy": "accuracy", "curve": "curve",
    }),
    RunKind("Fine-tuning", read_finetuning, {
        "task": "task", "model": "model", "metric": "metric", "score": "score", "simple model": "baseline",
        "seeds": "seeds", "time": "seconds",
    }),
    RunKind("Forecasts", read_forecasting, {
        "series": "series", "horizon": "horizon", "MASE": "mase", "seasonal naive": "seasonal_naive",
    }),
    RunKind("Evaluations", read_evaluation, {
        "models": "models", "suites": "suites", "quick": "quick", "time": "seconds",
    }),
    RunKind("Scaling studies", read_study, {"sizes": "sizes", "tokens per point": "tokens_per_point"}),
)  # fmt: skip


def find_all(folder: Path) -> Iterator[tuple[RunKind, dict[str, Any]]]:
    """All runs in a folder and in those below it that hold runs themselves, each with its kind, oldest first.

    A run that cannot be read is listed as damaged and hides no other.
    """
    places = sorted(path for path in [folder, *folder.iterdir(), *folder.glob("*/evaluation")] if path.is_dir())
    found = []
    for path in places:
        for kind in KINDS:
            facts = {"kind": kind.title.lower(), "name": _name(path, folder), "path": str(path), "state": DAMAGED}
            try:
                values = kind.read(path)
            except (GlassBertError, *PROBLEMS):
                values = {"begun": "", "seconds": None}
            if values is not None:
                found.append((kind, {**facts, **values}))
                break
    yield from sorted(found, key=lambda pair: str(pair[1]["begun"]))


def _name(path: Path, folder: Path) -> str:
    return path.name if path == folder else path.relative_to(folder).as_posix()
