"""`forecast_run`: a forecast with a run folder.

RUN/settings.json      the settings and the chosen values
RUN/log.jsonl          the validation errors of all seeds
RUN/model/             the model with its card (task.json): `Forecaster.load(RUN)`
RUN/predictions.jsonl  truth, forecast and seasonal naive forecast of every test window
RUN/future.csv         the next values
RUN/result.json        the scores of the model, its seeds and the baselines
RUN/report.html        the report
"""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassbert.errors import InputError, TrainingError
from glassbert.files import atomic_write, write_json
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.finishing import write_model
from glassbert.forecasting.forecast import Forecasted, Progress, forecast, no_progress
from glassbert.forecasting.report import write_report
from glassbert.forecasting.settings import ForecastSettings
from glassbert.tasks.series import Series
from glassbert.training.run_folder import RunFolder, machine_facts, new_run_folder, versions

KIND = "forecasting"


def forecast_run(
    settings: ForecastSettings, run: str | Path | None = None, progress: Progress = no_progress
) -> tuple[Forecasted, RunFolder]:
    """Forecast the series of a file and write the run folder at the end."""
    if not settings.series:
        raise InputError("--series is missing: give the file with the series")
    folder = RunFolder(run) if run is not None else new_run_folder("runs", Path(settings.series).stem)
    if folder.settings_file.exists():
        raise TrainingError(f"{folder.path} already holds a run; choose another folder with --run")
    series = Series.of(settings.series, value=settings.value, time=settings.time, **settings.reading())
    result = forecast(series, settings, progress)
    with folder.locked():
        write_run(result, folder)
    return result, folder


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
        table = csv.writer(file)
        table.writerow(["step", "forecast", "low", "high"])
        numbers = zip(result.future, result.low, result.high, strict=True)
        table.writerows((step, *map(float, row)) for step, row in enumerate(numbers, 1))
    write_json(folder.path / "result.json", result_of(result))
    write_report(folder.report, result)
    plan = result.plan
    write_json(folder.settings_file, {
        "kind": KIND,
        "settings": result.settings.to_dict(),
        "chosen": {"period": plan.period, "recipe": result.recipe._asdict(), "series": asdict(result.series)},
        "parts": {"values": len(plan.values), "validated_from": plan.validated_from, "tested_from": plan.tested_from},
        "machine": machine_facts(),
        "versions": versions(),
    })  # fmt: skip


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
        "coverage": result.coverage,
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
            "margin": result.margin.tolist(),
        },
        baseline={"name": "seasonal naive", "scores": asdict(seasonal)},
    )


def _predictions(result: Forecasted) -> list[dict[str, Any]]:
    rows = zip(result.test.cuts, result.test.targets, result.predicted, result.baselines["seasonal naive"], strict=True)
    return [
        {"begins": int(cut), "truth": truth.tolist(), "forecast": ours.tolist(), "seasonal_naive": naive.tolist()}
        for cut, truth, ours, naive in rows
    ]
