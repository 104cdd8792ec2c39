"""`glassbert pretrain`: from text to a trained model, within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from glassbert.cli.run_options import with_settings
from glassbert.training.finishing import Result
from glassbert.training.settings import TrainingSettings, read_toml
from glassbert.training.trainer import Trainer


def _run(
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file with any of the fields below; flags win over it.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="The run's folder. Without it: runs/PRESET-DATE-TIME.")
    ] = None,
    **settings: Any,
) -> None:
    """Pretrain a model on your text, or on the built-in one, and leave it ready to use.

    A run needs a budget: --minutes, --steps or --tokens (five minutes if you say nothing). The budget in minutes is
    kept, evaluation and saving included. Ctrl-C saves; `glassbert resume RUN` goes on, exactly where the run was.

    [bold]glassbert pretrain --preset mini --corpus mycorpus/ --minutes 5[/]
    [bold]glassbert pretrain --size 4 --corpus book.txt --corpus letters.txt --steps 2000[/]
    """
    given = {**(read_toml(settings_file) if settings_file else {}), **settings}
    finish(Trainer(TrainingSettings.from_dict(given), run))


def finish(trainer: Trainer) -> None:
    """Train; among several workers one tells the result."""
    result = trainer.train()
    if trainer.leads:
        show_result(result)


def show_result(result: Result) -> None:
    """The end of a run in a few lines: how good it is and what can be done next."""
    console = Console(soft_wrap=True, highlight=False)
    if result.stopped == "interrupted":
        console.print(Text(f"Stopped after step {result.steps:,} and saved. Go on with: glassbert resume {result.run}"))
        return
    console.print(
        Text.assemble(
            ("Held-out loss ", ""),
            (f"{result.loss:.3f}", "bold green"),
            f" (perplexity {result.perplexity:,.1f}), ",
            (f"{result.accuracy:.1%}", "bold green"),
            " of masked words right, after ",
            f"{result.steps:,} steps and {result.seconds / 60:.2f} minutes.",
        )
    )
    console.print(Text(f"Model   {result.model}\nReport  {result.report}"))
    console.print(Text(f'Try     glassbert fill-mask {result.run} "The [MASK] rises in the east."'))


run = with_settings(_run)
