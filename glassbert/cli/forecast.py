"""`glassbert forecast`: forecast the next values of a series and compare with simple forecasts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.cli.run_options import options_of, with_settings
from glassbert.errors import InputError
from glassbert.forecasting import Forecasted, Forecaster, ForecastSettings, Future, forecast_run
from glassbert.forecasting.bands import COVERAGE
from glassbert.forecasting.forecast import OURS
from glassbert.forecasting.forecast import Progress as ProgressCallback
from glassbert.forecasting.forecaster import is_forecaster
from glassbert.forecasting.run import result_of
from glassbert.forecasting.settings import CHECKS
from glassbert.tasks.file_settings import FileSettings
from glassbert.tasks.series import Series
from glassbert.training.run_folder import RunFolder


def _run(
    run: Annotated[
        Path | None, typer.Option("--run", help="The folder of the run. Without it: runs/SERIES-DATE-TIME.")
    ] = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Forecast a series: train on its past, test on its end, and forecast the next values.

    Naive, seasonal naive and linear forecasts are tested on the same windows. If --model is an earlier run of this
    command, its model forecasts without training. If it is a text encoder, training starts from its layers.

    glassbert forecast --series passengers.csv --horizon 12
    glassbert forecast --series passengers-until-today.csv --model runs/passengers
    """
    given = ForecastSettings.from_dict(settings)
    if given.model and is_forecaster(given.model):
        used = {"series", "value", "time", "model", "engine", "precision", "threads", *FileSettings.fields()}
        if unused := sorted(set(settings) - used):
            raise InputError(f"{given.model} is already trained; remove {', '.join(unused)}")
        show_future(forecast_with(given), as_json)
        return
    with progress_bar() as progress:
        result, folder = forecast_run(given, run, progress)
    show(result, folder, as_json)


def forecast_with(settings: ForecastSettings) -> Future:
    options = {"engine": settings.engine, "dtype": settings.precision, "threads": settings.threads}
    if not settings.series:
        raise InputError("--series is missing: give the file with the series")
    series = Series.of(settings.series, value=settings.value, time=settings.time, **settings.reading())
    return Forecaster.load(settings.model, **options)(series)


def show_future(future: Future, as_json: bool) -> None:
    if as_json:
        print_json({name: getattr(future, name) for name in ("times", "values", "low", "high")})
        return
    Console().print(future_table(future))


def future_table(future: Future) -> Table:
    """The next values with their dates, or with numbers of steps."""
    names = future.times or [str(step) for step in range(1, len(future.values) + 1)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("time" if future.times else "step")
    for column in ("forecast", "low", "high"):
        table.add_column(column, justify="right")
    for name, *row in zip(names, future.values, future.low, future.high, strict=True):
        table.add_row(name, *(f"{value:,.4g}" for value in row))
    return table


def show(result: Forecasted, folder: RunFolder, as_json: bool = False) -> None:
    if as_json:
        future = {"times": result.future_times, "future": result.future, "low": result.low, "high": result.high}
        print_json({**result_of(result), "run": folder.path, **future})
        return
    console = Console(soft_wrap=True, highlight=False)
    for note in result.plan.notes:
        console.print(Text(note))
    console.print(Text(f"Selected on the validation part: {result.recipe}."))
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
        console.print(Text(f"MASE over {len(result.seeds)} seeds: {spread}; the model of seed {result.best} is saved."))
    console.print(future_table(Future(result.future, result.low, result.high, result.future_times)))
    console.print(
        Text(
            f"Low to high should contain {COVERAGE:.0%}; such bands contained {result.bands.coverage:.0%} in the test."
        )
    )
    console.print(Text(f"Model   {folder.model}"))
    console.print(Text(f"Report  {folder.report}"))
    again = ["glassbert", "forecast", "--series", str(result.settings.series), "--model", str(folder.path)]
    console.print(Text(f"Again   {shlex.join(again)}"))


@contextmanager
def progress_bar() -> Iterator[ProgressCallback]:
    """A progress bar on stderr; silent without a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def progress(description: str, step: int, steps: int, best: float | None) -> None:
            error = "" if best is None else f"   error {best:.4g}"
            bar.update(task, description=escape(f"{description}{error}"), completed=step, total=steps)

        yield progress


run = with_settings(_run, partial(options_of, ForecastSettings, CHECKS))
