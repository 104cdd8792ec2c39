"""A run read back from its folder: settings, result and curves; and the forecast of its final held-out loss."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import GlassBertError, TrainingError
from glassbert.files import numbers, read_json
from glassbert.training.log import read_run_log
from glassbert.training.run_folder import PRETRAINING, RunFolder, kind_of_run

RESULT = "result.json"

# Constants of the forecast, measured on runs of many sizes and lengths (`python -m benchmarks.forecast`).
FORECAST_FROM = 0.1  # progress of the first forecast
FITTED_SHARE = 0.495  # evaluations from this share of the progress on are fitted: from half, with one step of tolerance
PRIOR_SLOPE = -0.15
FITTED_WEIGHT = 0.6  # of the fitted slope; the prior slope has the rest
SLOPE_ERROR = 0.1  # 90 % of the slopes were within this distance
NOISE = 0.01  # relative, of a loss at the end


@dataclass
class History:
    """A finished or unfinished run, read from disk. `info` is the content of settings.json."""

    run: RunFolder
    info: dict[str, Any]
    result: dict[str, Any] | None
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, run: RunFolder) -> History:
        lines: dict[str, list[dict[str, Any]]] = {}
        for line in read_run_log(run.log_file):
            lines.setdefault(line["kind"], []).append(line)
        return cls(run, run.read_settings(), read_result(run), lines)

    @property
    def settings(self) -> dict[str, Any]:
        return self.info["settings"]

    def kind(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one kind."""
        return self.lines.get(name, [])

    def curve(self, kind: str, value: str, over: str = "step") -> tuple[list[float], list[float]]:
        """x and y of a curve. Values that are not finite are strings in the log and are left out."""
        points = [(line.get(over), line.get(value)) for line in self.kind(kind)]
        found: list[tuple[Any, Any]] = [(x, y) for x, y in points if _finite(x) and _finite(y)]
        return [x for x, _ in found], [y for _, y in found]

    @property
    def state(self) -> str:
        if self.result is not None:
            return "finished" if self.result.get("stopped") == "finished" else "stopped early"
        return "unfinished"

    @property
    def held_out(self) -> tuple[float, float] | None:
        """Held-out loss and accuracy of the finished model, or else of the last evaluation."""
        last = self.result if self.result is not None else (self.kind("evaluation") or [{}])[-1]
        loss: Any = last.get("loss")
        accuracy: Any = last.get("accuracy")
        return (float(loss), float(accuracy)) if _number(loss) and _number(accuracy) else None

    @property
    def parts(self) -> dict[str, dict[str, float]]:
        """The same by objective, where there are several."""
        lines = [*self.kind("evaluation")[-1:], *self.kind("final")[-1:]]
        return (self.result or {}).get("parts") or (lines[-1].get("parts", {}) if lines else {})

    @property
    def last(self) -> dict[str, Any]:
        """The last log line that has step and tokens."""
        found = max((self.kind(kind)[-1] for kind in ("train", "evaluation") if self.kind(kind)),
                    key=lambda line: line["step"], default={"step": 0})  # fmt: skip
        return {"tokens": 0, "seconds": 0.0, **found}


def read_result(run: RunFolder) -> dict[str, Any] | None:
    """The result of a finished run, or None; a damaged one raises an error."""
    path = run.path / RESULT
    return numbers(read_json(path, TrainingError)) if path.exists() else None


def weights_sentence(result: Mapping[str, Any]) -> str:
    """Which weights the model of a finished run has; "" for runs of earlier versions, which do not say."""
    step, steps = result.get("weights_step"), result.get("steps", 0)
    if step is None:
        return ""
    sentence = {
        "best": f"The weights are those of step {step:,}, which had the lowest held-out loss of all evaluations; "
        f"training went on to step {steps:,}.",
        "average": f"The weights are a moving average up to the last step, {step:,}.",
    }.get(result["weights"], f"The weights are those of the last step, {step:,}.")
    share = result.get("weights_share")
    if share is None or share == 1:
        return sentence
    return f"{sentence} They are mixed with those of the start: {share:g} of the change was kept."


def _number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62)


def _finite(value: Any) -> bool:
    return _number(value) and abs(value) <= sys.float_info.max


def find_runs(folder: str | Path, problems: list[str] | None = None) -> Iterator[History]:
    """The pretraining runs in a folder, oldest first; other entries are ignored.

    A run that cannot be read is left out, and `problems` gets a sentence about it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise TrainingError(f"there is no folder {folder}; `glassbert pretrain` creates its runs in runs/")
    found = []
    for path in sorted(folder.iterdir()):
        try:
            kind = kind_of_run(path)
            if kind == PRETRAINING:
                found.append(_listed(History.read(RunFolder(path))))
            elif not kind and (path / "settings.json").is_file():
                read_json(path / "settings.json", TrainingError)
        except (GlassBertError, OSError) as error:
            if problems is not None:
                problems.append(f"{path.name} cannot be listed: {error}")
    yield from sorted(found, key=lambda history: str(history.info.get("begun", "")))


def _listed(history: History) -> History:
    """The history, if it has everything that a list of runs shows."""
    model, result = history.info.get("model"), history.result or {}
    if not isinstance(model, dict) or not _number(model.get("parameters")):
        raise TrainingError(f"{history.run.settings_file} is damaged: it does not describe a model")
    if not all(_finite(result.get(name, 0)) for name in ("seconds", "steps", "tokens")):
        raise TrainingError(f"{history.run.path / RESULT} is damaged: its counts are not numbers")
    return history


def moving_mean(values: Sequence[float] | np.ndarray, before: int, after: int = 0) -> np.ndarray:
    """For each value the mean over itself, `before` earlier and `after` later values; shorter at both ends."""
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values, np.float64))])
    index = np.arange(len(values))
    low, high = np.maximum(index - before, 0), np.minimum(index + after + 1, len(values))
    return (sums[high] - sums[low]) / (high - low)


class LossForecast(NamedTuple):
    """The expected loss at the end of a run, and the range that contains it in 90 % of runs."""

    loss: float
    low: float
    high: float


def forecast_final_loss(evaluations: Sequence[Mapping[str, Any]]) -> LossForecast | None:
    """The held-out loss at progress 1 from the evaluation lines of a log; None where there are too few.

    A power law through the last evaluations is extended to the end of the run:

        log loss(p) = log loss(now) + slope · log(p / now)          p: progress of the run, from 0 to 1

    The slope is a weighted mean of the fitted slope and `PRIOR_SLOPE`, since a few evaluations determine it poorly.
    The training loss is not used: where the masking rate falls during the run, it falls for that reason too.
    """
    if not evaluations or evaluations[-1]["progress"] < FORECAST_FROM * 0.99:
        return None
    last = evaluations[-1]
    now = min(last["progress"], 1.0)
    points = [
        (line["progress"] / now, float(line["loss"]))
        for line in evaluations
        # Losses of rows of another length are not comparable.
        if line["progress"] >= FITTED_SHARE * now and line.get("length") == last.get("length")
    ]
    p, loss = np.array([(p, loss) for p, loss in points if math.isfinite(loss) and loss > 0]).reshape(-1, 2).T
    if not len(p) or p[-1] < 1.0:  # the line must go through the last evaluation
        return None
    slope = PRIOR_SLOPE
    if p[0] < 1.0:
        slope = FITTED_WEIGHT * float(np.polyfit(np.log(p), np.log(loss), 1)[0]) + (1 - FITTED_WEIGHT) * PRIOR_SLOPE
    left = -math.log(now)
    error = SLOPE_ERROR * left + NOISE
    return LossForecast(*(float(loss[-1] * np.exp(slope * left + shift)) for shift in (0.0, -error, error)))
