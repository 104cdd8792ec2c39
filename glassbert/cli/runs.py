"""`glassbert runs`: list and compare the runs of a folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.errors import GlassBertError
from glassbert.files import without_nan
from glassbert.training.display import duration, sparkline
from glassbert.training.history import History, find_runs

SHOWN = ("preset", "size", "optimizer", "learning_rate", "batch", "length", "schedule", "seed")


def run(
    folder: Annotated[Path, typer.Argument(help="The folder with the runs.")] = Path("runs"),
    html: Annotated[Path | None, typer.Option(help="Write a comparison of their curves to this HTML file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array instead of a table.")] = False,
) -> None:
    """List the runs of a folder and compare them: settings that differ, held-out loss, accuracy, time."""
    problems: list[str] = []
    histories = list(find_runs(folder, problems))
    for problem in problems:
        typer.echo(problem, err=True)
    if not histories:
        raise GlassBertError(f"there are no runs in {folder}; `glassbert pretrain` creates one")
    if html is not None:
        typer.echo(f"Written: {write_comparison(histories, html)}")
    elif as_json:
        typer.echo(json.dumps(without_nan([summary(history) for history in histories]), indent=2))
    else:
        show(Console(), histories)


def summary(history: History) -> dict[str, Any]:
    """The main values of a run, as JSON."""
    last, result = history.last, history.result or {}
    loss, accuracy = history.held_out or (None, None)
    if loss is not None and not math.isfinite(loss):
        loss = accuracy = None  # JSON has no NaN
    seconds = result.get("seconds", last["seconds"])
    return {
        "name": history.run.name,
        "state": history.state,
        "parameters": history.info["model"]["parameters"],
        "steps": result.get("steps", last["step"]),
        "tokens": result.get("tokens", last["tokens"]),
        "seconds": seconds,
        "held_out_loss": loss,
        "accuracy": accuracy,
        "perplexity": None if loss is None else math.exp(min(loss, 50.0)),
        **{name: history.settings.get(name) for name in SHOWN},
    }


def differing(histories: list[History]) -> list[str]:
    """The settings in which the runs differ."""
    return [n for n in SHOWN if len({json.dumps(history.settings.get(n)) for history in histories}) > 1]


def show(console: Console, histories: list[History]) -> None:
    """Print a table of the runs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = differing(histories)
    table.add_column("run", no_wrap=True)
    for name in columns:
        table.add_column(name.replace("_", " "))
    for name in ("steps", "tokens", "time", "held-out loss", "accuracy"):
        table.add_column(name, justify="right")
    table.add_column("curve", no_wrap=True)
    best = min((h.held_out[0] for h in histories if h.held_out and math.isfinite(h.held_out[0])), default=None)
    for history in histories:
        values = summary(history)
        loss, accuracy = values["held_out_loss"], values["accuracy"]
        curve = history.curve("train", "loss")[1]
        table.add_row(
            Text(values["name"], style="" if history.result else "yellow"),
            *(str(history.settings.get(name)) for name in columns),
            f"{values['steps']:,}",
            f"{values['tokens'] / 1e6:.1f} M",
            duration(values["seconds"]),
            Text("–" if loss is None else f"{loss:.3f}", style="bold green" if loss == best else ""),
            "–" if accuracy is None else f"{accuracy:.1%}",
            Text(sparkline(curve, 16) if curve else "", style="cyan"),
        )
    console.print(table)
    if any(not history.result for history in histories):
        console.print(Text("Yellow: not finished; continue with `glassbert resume RUN`.", style="dim"))


def write_comparison(histories: list[History], path: Path) -> Path:
    """Write an HTML page with curves and a table of the runs."""
    from glassbert.reports import Page, figures

    page = Page("Comparison of runs", f"{len(histories)} runs in {histories[0].run.path.parent}")
    for over, label in (("tokens", "tokens"), ("seconds", "seconds")):
        curves = {h.run.name: h.curve("evaluation", "loss", over) for h in histories if len(h.kind("evaluation")) > 1}
        if curves:
            page.figure(
                lambda curves=curves, label=label: figures.lines(  # type: ignore[misc]
                    curves, xlabel=label, ylabel="held-out loss"
                ),
                f"Held-out loss against {label}.",
            )
    columns = differing(histories)
    rows = []
    for history in histories:
        values = summary(history)
        loss, accuracy = values["held_out_loss"], values["accuracy"]
        chosen = [str(history.settings.get(name)) for name in columns]
        sizes = [values[name] for name in ("parameters", "steps", "tokens")]
        quality = ["–" if loss is None else f"{loss:.3f}", "–" if accuracy is None else f"{accuracy:.1%}"]
        rows.append([values["name"], values["state"], *chosen, *sizes, duration(values["seconds"]), *quality])
    names = [name.replace("_", " ") for name in columns]
    page.table(["run", "state", *names, "parameters", "steps", "tokens", "time", "held-out loss", "accuracy"], rows)
    return page.write(path)
