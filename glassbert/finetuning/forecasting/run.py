"""A forecast as a run: a folder with the model, its numbers and a page to look at.

RUN/settings.json      what was asked for, and what was chosen
RUN/log.jsonl          the validation error along every training
RUN/model/             the model with its card (task.json): `Forecaster.load(RUN)`
RUN/predictions.jsonl  every test window: truth, forecast, seasonal naive
RUN/future.csv         the values after the last one
RUN/result.json        the scores of the model, its seeds and the baselines
RUN/report.html        what to look at
"""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from glassbert.errors import InputError, TrainingError
from glassbert.files import atomic_write, write_json
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.forecasting.forecast import Forecasted, Report, forecast, silent
from glassbert.finetuning.forecasting.report import write_report
from glassbert.finetuning.forecasting.settings import ForecastSettings
from glassbert.tasks.series import Series
from glassbert.training.receipt import machine_facts, versions
from glassbert.training.run_folder import RunFolder, new_run_folder

KIND = "forecasting"


def forecast_run(
    settings: ForecastSettings, run: str | Path | None = None, report: Report = silent
) -> tuple[Forecasted, RunFolder]:
    """Forecast the series of a file, and write everything down. Nothing is written before it is all there."""
    if not settings.series:
        raise InputError("say with --series which file holds the series")
    folder = RunFolder(run) if run is not None else new_run_folder("runs", Path(settings.series).stem)
    if folder.settings_file.exists():
        raise TrainingError(f"{folder.path} already holds a run; choose another folder with --run")
    series = Series.of(settings.series, value=settings.value, time=settings.time)
    result = forecast(series, settings, report)
    with folder.locked():
        write_run(result, folder)
    return result, folder


def write_run(result: Forecasted, folder: RunFolder) -> None:
    _write_model(result, folder)
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


def _write_model(result: Forecasted, folder: RunFolder) -> None:
    aside = folder.path / ".model"
    shutil.rmtree(aside, ignore_errors=True)
    result.model.save(aside)
    card_of(result).save(aside)
    if folder.model.exists():
        shutil.rmtree(folder.model)
    aside.replace(folder.model)
