"""`glassbert finetune`: fine-tune an encoder on a file of examples."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.model_argument import named_model
from glassbert.cli.options import AsJson
from glassbert.cli.output import exit_interrupted, print_json
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.finetuning import distilled
from glassbert.finetuning.card import choice_sentence
from glassbert.finetuning.run import FineTuned, finetune
from glassbert.finetuning.seeds import RESULT, Spread
from glassbert.finetuning.settings import CHECKS, FineTuningSettings
from glassbert.training.settings import read_toml


def _run(
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file with any of the fields below; flags override it.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="The folder of the run. Without it: runs/TASK-DATE-TIME.")
    ] = None,
    extensions: Extensions = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Fine-tune an encoder for a task, compare it with a simple model, and save it.

    Give a ready task, or a file with a text (or table columns) and a target. The kind of prediction is recognised from
    the target. Ctrl-C saves and stops; `glassbert resume RUN` continues exactly there.

    Without --model it starts from the pretrained model that ships with GlassBERT.

    glassbert finetune --train reviews.csv --text review --target stars --seeds 3
    glassbert finetune --model runs/mine --task sst2 --data data
    glassbert finetune --model sentence-transformers/all-MiniLM-L6-v2 --train titanic.csv --target Survived
    """
    given = FineTuningSettings.from_dict({**(read_toml(settings_file) if settings_file else {}), **settings})
    if not given.from_scratch:
        named_model(given.model)
    show(finetune(given, run), as_json)


def show(tuned: FineTuned, as_json: bool = False) -> None:
    """Print the scores beside those of the baseline, the files, and a command to try the model.

    An interrupted run ends the program with the code of its signal.
    """
    console = Console(soft_wrap=True, highlight=False, stderr=as_json)
    if as_json:
        print_json(as_dict(tuned))
    if tuned.outcome is None:
        console.print(Text(f"Stopped and saved. Continue with: glassbert resume {shlex.quote(str(tuned.run))}"))
        exit_interrupted()
    if as_json:
        return
    if tuned.folds:
        show_folds(tuned, console)
        return
    console.print(scores_table(tuned))
    if tuned.distillation is not None:
        show_distillation(tuned.distillation, console)
    if tuned.spread is not None and len(tuned.seeds) > 1:
        scores = f"{tuned.metric} over {len(tuned.seeds)} seeds: {tuned.spread}"
        averaged = f"the average of the seeds {', '.join(map(str, sorted(tuned.soup)))}"
        console.print(Text(f"{scores}; {averaged if tuned.soup else f'the model of seed {tuned.best}'} is saved."))
    seconds = sum(result.seconds for result in tuned.seeds)
    speed = sum(result.examples for result in tuned.seeds) / max(seconds, 1e-9)
    console.print(Text(f"{seconds:,.0f} seconds, {speed:,.0f} examples/s including evaluations."))
    show_files(tuned, console)


def as_dict(tuned: FineTuned) -> dict[str, Any]:
    """The content of result.json and where the files are; for an interrupted run only where and that it stopped."""
    paths = {"run": tuned.run, "stopped": tuned.stopped}
    if tuned.outcome is None:
        return paths
    result = json.loads((tuned.run / RESULT).read_text(encoding="utf-8"))
    return {**paths, "model": tuned.model, "report": tuned.report if tuned.report.exists() else None, **result}


def show_folds(tuned: FineTuned, console: Console) -> None:
    """Print the scores over all examples and their spread over the folds."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("metric", "all examples", "95 %", f"{len(tuned.folds)} folds"):
        table.add_column(column, no_wrap=True)
    if tuned.baseline is not None:
        table.add_column("simple model", justify="right")
    for name, value, note in tuned.scores.rows():
        each = [score for one in tuned.folds if (score := one.scores[name].value) is not None]
        style = "bold green" if name == tuned.metric else ""
        cells: list[Any] = [
            Text(name, style=style),
            Text("–" if value is None else f"{value:.4f}", style=style),
            Text(note),
            str(Spread.of(each)) if each else "–",
        ]
        if tuned.baseline is not None:
            theirs = tuned.baseline.scores[name].value if name in tuned.baseline.scores else None
            cells.append(Text("–" if theirs is None else f"{theirs:.4f}"))
        table.add_row(*cells)
    console.print(table)
    show_files(tuned, console)


def show_files(tuned: FineTuned, console: Console) -> None:
    from glassbert.finetuning.report.texts import shell_examples  # not before: it imports the plotting library

    assert tuned.outcome is not None
    console.print(Text(choice_sentence(tuned.outcome.card, len(tuned.seeds))))
    console.print(Text(f"Model   {tuned.model}"))
    if tuned.report.exists():
        console.print(Text(f"Report  {tuned.report}"))
    console.print(Text(f"Try     {shell_examples(tuned.outcome, tuned.run)[0]}"))


def show_distillation(content: dict[str, Any], console: Console) -> None:
    """Print teacher and student side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(distilled.HEADERS):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in distilled.rows_of(content):
        table.add_row(*row)
    console.print(table)
    console.print(Text(distilled.sentence(content)))


def scores_table(tuned: FineTuned) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("on held-out examples")
    table.add_column("this model", justify="right")
    table.add_column("95 %", justify="left")
    if tuned.baseline is not None:
        table.add_column(getattr(tuned.baseline, "name", "simple model"), justify="right")
    for name, value, note in tuned.scores.rows():
        style = "bold green" if name == tuned.metric else ""
        cells = [Text(name, style=style), Text("–" if value is None else f"{value:.4f}", style=style), Text(note)]
        if tuned.baseline is not None:
            theirs = tuned.baseline.scores[name].value if name in tuned.baseline.scores else None
            cells.append(Text("–" if theirs is None else f"{theirs:.4f}"))
        table.add_row(*cells)
    return table


run = with_settings(_run, partial(options_of, FineTuningSettings, CHECKS))
