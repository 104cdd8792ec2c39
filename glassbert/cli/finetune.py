"""`glassbert finetune`: fine-tune an encoder on a file of examples."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.model_argument import named_model
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.errors import TrainingError
from glassbert.finetuning.card import choice_sentence
from glassbert.finetuning.run import FineTuned, finetune, resume_finetuning
from glassbert.finetuning.seeds import Spread
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.training.settings import read_toml


def _run(
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file with any of the fields below; flags override it.")
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="The run folder. Default: runs/TASK-DATE-TIME.")] = None,
    resume_run: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Resume an interrupted fine-tuning.")
    ] = None,
    extensions: Extensions = None,
    **settings: Any,
) -> None:
    """Fine-tune an encoder for a task, compare it with a simple model, and save it.

    Give a ready task, or a file with a text (or table columns) and a target. The kind of prediction is recognised from
    the target. Ctrl-C saves and stops; --resume continues exactly there.

    Without --model it starts from the pretrained model that ships with GlassBERT.

    [bold]glassbert finetune --train reviews.csv --text review --target stars --seeds 3[/]
    [bold]glassbert finetune --model runs/mine --task sst2 --data data[/]
    [bold]glassbert finetune --model sentence-transformers/all-MiniLM-L6-v2 --train titanic.csv --target Survived[/]
    """
    if resume_run is not None:
        if settings or settings_file or run:
            raise TrainingError("--resume uses the settings of the run; remove the other options")
        show(resume_finetuning(resume_run))
        return
    given = FineTuningSettings.from_dict({**(read_toml(settings_file) if settings_file else {}), **settings})
    if not given.from_scratch:
        named_model(given.model)
    show(finetune(given, run))


def show(tuned: FineTuned) -> None:
    """Print the scores beside those of the baseline, the files, and a command to try the model."""
    console = Console(soft_wrap=True, highlight=False)
    if tuned.folds and tuned.outcome is not None:
        show_folds(tuned, console)
        return
    if tuned.outcome is None:
        console.print(Text(f"Stopped and saved. Resume with: glassbert finetune --resume {tuned.run}"))
        return
    console.print(scores_table(tuned))
    if tuned.spread is not None and len(tuned.seeds) > 1:
        scores = f"{tuned.metric} over {len(tuned.seeds)} seeds: {tuned.spread}"
        console.print(Text(f"{scores}; the model of seed {tuned.best} is saved."))
    seconds = sum(result.seconds for result in tuned.seeds)
    speed = sum(result.examples for result in tuned.seeds) / max(seconds, 1e-9)
    console.print(Text(f"{seconds:,.0f} seconds, {speed:,.0f} examples/s including evaluations."))
    show_files(tuned, console)


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


run = with_settings(_run, partial(options_of, FineTuningSettings))
