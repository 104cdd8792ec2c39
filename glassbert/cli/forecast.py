"""`glassbert forecast`: from a file with a series to the values that come next, judged beside simple forecasts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from glassbert.cli.run_options import options_of, with_settings
from glassbert.errors import InputError
from glassbert.forecasting import Forecasted, Forecaster, ForecastSettings, Future, forecast_run
from glassbert.forecasting.forecast import OURS, Report
from glassbert.forecasting.forecaster import is_forecaster
from glassbert.forecasting.run import result_of
from glassbert.tasks.series import Series
from glassbert.training.run_folder import RunFolder


def _run(
    run: Annotated[
        Path | None, typer.Option("--run", help="The run's folder. Without it: runs/SERIES-DATE-TIME.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    **settings: Any,
) -> None:
    """Forecast a series: train on its past, judge on its end, say what comes next.

    The naive, the seasonal naive and a linear forecast are judged on the same windows. Where --model is an earlier run
    of this command, its model forecasts at once, without training; where it is a text encoder, its blocks are where
    training begins.

    [bold]glassbert forecast --series passengers.csv --horizon 12[/]
    [bold]glassbert forecast --series passengers-until-today.csv --model runs/passengers[/]
    """
    asked = ForecastSettings.from_dict(settings)
    if asked.model and is_forecaster(asked.model):
        if unused := sorted(set(settings) - {"series", "value", "time", "model", "engine", "precision", "threads"}):
            raise InputError(f"{asked.model} is trained already, so leave {', '.join(unused)} out")
        show_future(use(asked), as_json)
        return
    with watching() as report:
        result, folder = forecast_run(asked, run, report)
    if as_json:
        typer.echo(json.dumps({**result_of(result), "run": str(folder.path), "future": result.future.tolist()}))
    else:
        show(result, folder)


def use(settings: ForecastSettings) -> Future:
    options = {"engine": settings.engine, "dtype": settings.precision, "threads": settings.threads}
    if not settings.series:
        raise InputError("say with --series which file holds the series")
    series = Series.of(settings.series, value=settings.value, time=settings.time)
    return Forecaster.load(settings.model, **options)(series)


def show_future(future: Future, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({name: getattr(future, name).tolist() for name in ("values", "low", "high")}))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("step", "forecast", "low", "high"):
        table.add_column(column, justify="right")
    for step, row in enumerate(zip(future.values, future.low, future.high, strict=True), 1):
        table.add_row(str(step), *(f"{value:,.4g}" for value in row))
    Console().print(table)


def show(result: Forecasted, folder: RunFolder) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for note in result.plan.notes:
        console.print(Text(note))
    console.print(Text(f"Chosen on the validation part: {result.recipe}."))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"{len(result.test):,} windows at the end")
    for column in ("MASE", "RMSE", "sMAPE"):
        table.add_column(column, justify="right")
    for name, scores in result.scores().items():
        style = "bold green" if name == OURS else ""
        mase = "–" if scores.mase is None else f"{scores.mase:.3f}"
        table.add_row(Text(name, style=style), Text(mase, style=style), f"{scores.rmse:,.4g}", f"{scores.smape:.2f} %")
    console.print(table)
    if (spread := result.spread()) is not None and len(result.seeds) > 1:
        console.print(Text(f"MASE over {len(result.seeds)} seeds: {spread}; seed {result.best} is kept."))
    console.print(Text("Next    " + "  ".join(f"{value:,.4g}" for value in result.future)))
    console.print(Text(f"Model   {folder.model}"))
    console.print(Text(f"Report  {folder.report}"))
    console.print(Text(f"Again   glassbert forecast --series {result.settings.series} --model {folder.path}"))


@contextmanager
def watching() -> Iterator[Report]:
    """A bar on stderr; silent where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def report(what: str, step: int, steps: int, best: float | None) -> None:
            error = "" if best is None else f"   error {best:.4g}"
            bar.update(task, description=f"{what}{error}", completed=step, total=steps)

        yield report


run = with_settings(_run, partial(options_of, ForecastSettings))
