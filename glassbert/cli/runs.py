"""`glassbert runs`: list and compare the runs of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.cli.run_kinds import KINDS, SHOWN, RunKind, find_all
from glassbert.errors import GlassBertError
from glassbert.training.display import duration, sparkline
from glassbert.training.history import History, find_runs

DEFAULT = (Path("runs"), Path("evaluations"))
Listed = dict[str, Any]


def run(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Folders with runs. Default: runs and evaluations."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.html", help="Write a page that compares them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List runs of every kind: pretraining, adaptation, fine-tuning, forecasts, evaluations and scaling studies.

    Of pretraining runs the settings that differ are shown. With -o their curves are drawn on one page.

    glassbert runs
    glassbert runs studies/first/runs -o comparison.html
    """
    chosen = folders or [folder for folder in DEFAULT if folder.is_dir()] or [DEFAULT[0]]
    found: list[tuple[RunKind, Listed]] = []
    for folder in chosen:
        if not folder.is_dir():
            raise GlassBertError(f"there is no folder {folder}; `glassbert pretrain` creates its runs in runs/")
        found += find_all(folder)
    if not found:
        raise GlassBertError(f"there are no runs in {' and '.join(map(str, chosen))}; `glassbert pretrain` creates one")
    if output is not None:
        typer.echo(f"Page written: {write_comparison(chosen, found, output)}")
    elif as_json:
        print_json([{name: value for name, value in facts.items() if name != "curve"} for _, facts in found])
    else:
        show(Console(highlight=False), found)


def by_kind(found: list[tuple[RunKind, Listed]]) -> list[tuple[RunKind, list[Listed]]]:
    return [(kind, rows) for kind in KINDS if (rows := [facts for one, facts in found if one is kind])]


def differing(rows: list[Listed]) -> dict[str, str]:
    """Columns for the settings in which the runs differ."""
    return {
        name.replace("_", " "): name
        for name in SHOWN
        if len({json.dumps(facts.get(name), default=str) for facts in rows if name in facts}) > 1
    }


def show(console: Console, found: list[tuple[RunKind, Listed]]) -> None:
    """Print a table for every kind."""
    for number, (kind, rows) in enumerate(by_kind(found)):
        columns = {**differing(rows), **kind.columns}
        if number:
            console.print()
        table = Table(title=kind.title, title_justify="left", title_style="bold", box=None, pad_edge=False,
                      header_style="bold")  # fmt: skip
        table.add_column("run", overflow="fold")
        for heading, name in columns.items():
            numeric = all(isinstance(facts.get(name), int | float | None) for facts in rows)
            table.add_column(heading, justify="right" if numeric else "left")
        best = min((x for facts in rows if isinstance(x := facts.get("held_out_loss"), int | float)), default=None)
        for facts in rows:
            style = {"finished": "", "stopped early": "", "unfinished": "yellow"}.get(facts["state"], "red")
            cells = [Text(cell(name, facts.get(name)), _style(name, facts, best)) for name in columns.values()]
            table.add_row(Text(facts["name"], style), *cells)
        console.print(table)
    states = {facts["state"] for _, facts in found}
    if "unfinished" in states:
        console.print(Text("\nYellow: not finished; continue with `glassbert resume RUN`.", style="dim"))
    if states & {"damaged", "failed"}:
        console.print(Text("\nRed: damaged files, or an evaluation with a failed suite.", style="dim"))


def _style(name: str, facts: Listed, best: float | None) -> str:
    if name == "held_out_loss" and best is not None and facts.get(name) == best:
        return "bold green"
    return "cyan" if name == "curve" else ""


def cell(name: str, value: Any) -> str:
    """A value as it is shown."""
    if value is None or value == "":
        return "–"
    if name == "curve":
        return sparkline(value, 16) if value else ""
    if name == "seconds":
        return duration(value)
    if name == "tokens":
        return f"{value / 1e6:.1f} M"
    if name == "accuracy":
        return f"{value:.1%}" if isinstance(value, int | float) else str(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float) and name not in SHOWN:
        return f"{value:.3f}"
    return str(value)


def write_comparison(folders: list[Path], found: list[tuple[RunKind, Listed]], path: Path) -> Path:
    """Write an HTML page with the curves of the pretraining runs, and a table for every kind."""
    from glassbert.reports import Page, figures

    page = Page("Comparison of runs", f"{len(found)} runs in {', '.join(map(str, folders))}")
    histories: list[History] = [history for folder in folders for history in find_runs(folder)]
    for over, label in (("tokens", "tokens"), ("seconds", "seconds")):
        curves = {h.run.name: h.curve("evaluation", "loss", over) for h in histories if len(h.kind("evaluation")) > 1}
        if curves:
            page.figure(
                lambda curves=curves, label=label: figures.lines(  # type: ignore[misc]
                    curves, xlabel=label, ylabel="held-out loss"
                ),
                f"Held-out loss against {label}.",
            )
    for kind, rows in by_kind(found):
        columns = {**differing(rows), **{h: name for h, name in kind.columns.items() if name != "curve"}}
        page.heading(kind.title)
        page.table(
            ["run", "state", *columns],
            [[facts["name"], facts["state"], *(cell(n, facts.get(n)) for n in columns.values())] for facts in rows],
        )
    return page.write(path)
