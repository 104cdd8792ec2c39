"""`forecast_run`: a forecast with a run folder.

RUN/settings.json      the settings and the chosen values
RUN/log.jsonl          the validation errors of all seeds
RUN/model/             the model with its card (task.json): `Forecaster.load(RUN)`
RUN/predictions.jsonl  truth, forecast and seasonal naive forecast of every test window
RUN/future.csv         the next values
RUN/result.json        the scores of the model, its seeds and the baselines
RUN/report.html        the report
RUN/trainings/         finished trainings, while the run is unfinished: `glassbert resume RUN` goes on after them
"""

from __future__ import annotations

import csv
import hashlib
import json
import shlex
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError, RunInterrupted, TrainingError
from glassbert.files import atomic_write, write_json
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.finishing import write_model
from glassbert.forecasting.bands import COVERAGE
from glassbert.forecasting.dates import date_texts
from glassbert.forecasting.forecast import Forecasted, Progress, forecast, no_progress
from glassbert.forecasting.plan import plan_for
from glassbert.forecasting.report import write_report
from glassbert.forecasting.settings import ForecastSettings
from glassbert.forecasting.stored import StoredTrainings
from glassbert.tasks.series import Series
from glassbert.training.budget import Interrupts
from glassbert.training.run_folder import FORECASTING, RunFolder, machine_facts, new_run_folder, versions

RESULT = "result.json"


def forecast_run(
    settings: ForecastSettings, run: str | Path | None = None, progress: Progress = no_progress
) -> tuple[Forecasted, RunFolder]:
    """Forecast the series of a file, with a run folder. Interrupted, it goes on with `resume_forecast`."""
    if not settings.series:
        raise InputError("--series is missing: give the file with the series")
    folder = RunFolder(run) if run is not None else new_run_folder("runs", Path(settings.series).stem)
    if folder.settings_file.exists():
        raise TrainingError(
            f"{folder.path} already holds a run. Resume it with: glassbert resume {shlex.quote(str(folder.path))}; "
            "or choose another folder with --run"
        )
    series = _read(settings)
    plan_for(series, settings)  # raises before anything is written
    with folder.locked():
        write_json(folder.settings_file, {
            "kind": FORECASTING,
            "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["glassbert", *sys.argv[1:]]) if sys.argv[0].endswith("glassbert") else "",
            "settings": settings.to_dict(),
            "fingerprint": fingerprint(series),
            "machine": machine_facts(),
            "versions": versions(),
        })  # fmt: skip
        return _forecast(series, settings, folder, progress), folder


def resume_forecast(run: str | Path, progress: Progress = no_progress) -> tuple[Forecasted, RunFolder]:
    """Resume an interrupted or killed forecast. The result is the same as without the interruption."""
    folder = RunFolder.existing(run)
    content = folder.read_settings()
    if content.get("kind") != FORECASTING:
        raise TrainingError(
            f"{folder.path} is not a forecast; resume it with: glassbert resume {shlex.quote(str(folder.path))}"
        )
    if (folder.path / RESULT).exists():
        raise TrainingError(f"the run {folder.path} is finished; its model is in {folder.model}")
    settings = ForecastSettings.from_dict(content["settings"])
    series = _read(settings)
    if fingerprint(series) != content.get("fingerprint"):
        raise TrainingError(
            f"the series of {folder.path} has changed since the run started; restore {settings.series}, or start a "
            "new run"
        )
    with folder.locked():
        return _forecast(series, settings, folder, progress), folder


def _read(settings: ForecastSettings) -> Series:
    return Series.of(settings.series, value=settings.value, time=settings.time, **settings.reading())


def fingerprint(series: Series) -> str:
    """A hash of the values."""
    return hashlib.sha256(np.ascontiguousarray(series.values, "<f8").tobytes()).hexdigest()


def _forecast(series: Series, settings: ForecastSettings, folder: RunFolder, progress: Progress) -> Forecasted:
    stored = StoredTrainings(folder.path / "trainings")
    with Interrupts() as interrupts:

        def go_on(*values: Any) -> None:
            if interrupts.requested:
                raise RunInterrupted(
                    f"Stopped and saved. Continue with: glassbert resume {shlex.quote(str(folder.path))}"
                )
            progress(*values)

        result = forecast(series, settings, go_on, stored)
    write_run(result, folder)
    stored.remove()
    return result


def write_run(result: Forecasted, folder: RunFolder) -> None:
    write_model(folder, result.model, card_of(result))
    with atomic_write(folder.log_file) as file:
        for seed in result.seeds:
            for step, error in seed.fitted.curve:
                file.write(json.dumps({"kind": "evaluation", "seed": seed.seed, "step": step, "mae": error}) + "\n")
    with atomic_write(folder.path / "predictions.jsonl") as file:
        for row in _predictions(result):
            file.write(json.dumps(row) + "\n")
    with atomic_write(folder.path / "future.csv") as file:
        table = csv.writer(file, lineterminator="\n")
        times = result.future_times
        table.writerow(["step", *(["time"] if times else []), "forecast", "low", "high"])
        for index, numbers in enumerate(zip(result.future, result.low, result.high, strict=True)):
            table.writerow([index + 1, *([times[index]] if times else []), *map(float, numbers)])
    plan = result.plan
    write_json(folder.settings_file, {
        **folder.read_settings(),
        "chosen": {"period": plan.period, "recipe": result.recipe._asdict(), "series": asdict(result.series)},
        "parts": {"values": len(plan.values), "validated_from": plan.validated_from, "tested_from": plan.tested_from},
    })  # fmt: skip
    write_report(folder.report, result)
    write_json(folder.path / RESULT, result_of(result))  # last, because it marks the run as finished


def result_of(result: Forecasted) -> dict[str, Any]:
    spreads = {name: result.spread(name) for name in ("mase", "rmse", "smape")}
    return {
        "series": result.plan.series.name,
        "horizon": result.plan.horizon,
        "period": result.plan.period,
        "test_windows": len(result.test),
        "scores": {name: asdict(scores) for name, scores in result.scores().items()},
        "seeds": [{"seed": s.seed, "steps": s.fitted.step, **asdict(s.scores)} for s in result.seeds],
        "spread": {name: None if spread is None else asdict(spread) for name, spread in spreads.items()},
        "best_seed": result.best,
        "tried": {str(recipe): error for recipe, error in result.tried.items()},
        "band": {"share": COVERAGE, "coverage": result.bands.coverage},
    }


def card_of(result: Forecasted) -> TaskCard:
    plan = result.plan
    seasonal = result.scores()["seasonal naive"]
    return TaskCard(
        title=f"{plan.series.name}: the next {plan.horizon} values",
        head="forecast",
        target=plan.series.name,
        details={
            "horizon": plan.horizon,
            "period": plan.period,
            "margin": result.bands.margin.tolist(),
        },
        baseline={"name": "seasonal naive", "scores": asdict(seasonal)},
    )


def _predictions(result: Forecasted) -> list[dict[str, Any]]:
    times = result.plan.series.times
    dates = None if times is None else date_texts(times)
    low, high = result.band(result.predicted, result.bands.tested)
    columns = {"truth": result.test.targets, "forecast": result.predicted, "low": low, "high": high,
               "seasonal_naive": result.baselines["seasonal naive"]}  # fmt: skip
    return [
        {"begins": int(cut), **({"time": dates[cut]} if dates else {})}
        | {name: values[row].tolist() for name, values in columns.items()}
        for row, cut in enumerate(result.test.cuts)
    ]
