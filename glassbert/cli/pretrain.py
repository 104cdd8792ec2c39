"""`glassbert pretrain`: train a model on text, within a budget."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.options import AsJson
from glassbert.cli.output import exit_interrupted, print_json
from glassbert.cli.run_options import with_settings
from glassbert.cli.with_option import Extensions
from glassbert.training.adapting import outcome as adaptation
from glassbert.training.finishing import Result
from glassbert.training.history import weights_sentence
from glassbert.training.planning.receipt import sentences
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import MASK_SENTENCE, TrainingSettings, read_toml
from glassbert.training.trainer import Trainer


def _run(
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file with any of the fields below; flags override it.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="The folder of the run. Without it: runs/PRESET-DATE-TIME.")
    ] = None,
    extensions: Extensions = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Pretrain a model on your text, or on the built-in text, and save it.

    The budget is --minutes, --steps or --tokens (default: five minutes). A budget in minutes includes evaluation and
    saving. Ctrl-C saves and stops; `glassbert resume RUN` continues from there.

    glassbert pretrain --recipe small-best --corpus mycorpus/ --minutes 30
    glassbert pretrain --preset mini --corpus mycorpus/ --minutes 5
    glassbert pretrain --size 4 --corpus book.txt --corpus letters.txt --steps 2k
    """
    given = {**(read_toml(settings_file) if settings_file else {}), **settings}
    chosen = TrainingSettings.from_dict(given)
    show_recipe(chosen)
    train_and_show(Trainer(chosen, run), as_json)


def show_recipe(settings: TrainingSettings) -> None:
    """Print what the recipe of a run chose for its budget, and what it leaves out."""
    from glassbert.training.budget_recipes import left_out

    if not settings.recipe:
        return
    shape = f"{settings.model['num_hidden_layers']} layers of {settings.model['hidden_size']}"
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    chosen = f"{shape}, rows of {settings.length}, {settings.batch} rows a step, {settings.precision}"
    console.print(Text(f"{settings.recipe}: {chosen}."))
    for note in left_out(settings.recipe, settings.model):
        console.print(Text(note, style="dim"))


def train_and_show(trainer: Trainer, as_json: bool = False) -> Result:
    """Train and print the result (on worker 0 only). An interrupted run ends with the code of its signal.

    Only worker 0 ends so, when it has saved: a launcher ends all workers as soon as one of them fails.
    """
    result = trainer.train()
    if not trainer.leads:
        return result
    if as_json:
        print_json({**asdict(result), "model": result.model, "report": result.report})
    else:
        show_result(result)
    if result.stopped == "interrupted":
        exit_interrupted()
    return result


def show_result(result: Result) -> None:
    """Print loss, accuracy and paths of a finished run, or how to continue an interrupted one."""
    console = Console(soft_wrap=True, highlight=False)
    run = shlex.quote(result.run)
    if result.stopped == "interrupted":
        console.print(Text(f"Stopped after step {result.steps:,} and saved. Continue with: glassbert resume {run}"))
        return
    console.print(
        Text.assemble(
            ("Held-out loss ", ""),
            (f"{result.loss:.3f}", "bold green"),
            f" (perplexity {result.perplexity:,.1f}), ",
            (f"{result.accuracy:.1%}", "bold green"),
            " of masked words correct, after ",
            f"{result.steps:,} steps and {result.seconds / 60:.2f} minutes.",
        )
    )
    if sentence := weights_sentence(asdict(result)):
        console.print(Text(sentence, "dim"))
    adapted = adaptation.read(RunFolder(result.run))
    if adapted is not None:
        show_adaptation(adapted, console)
    if result.plan is not None:
        console.print(Text("\n".join(sentences(result.plan)), "dim"))
    console.print(Text(f"Model   {result.model}\nReport  {result.report}"))
    console.print(Text(f"Try     {command_to_try(result)}"))


def command_to_try(result: Result) -> str:
    """A command that shows what the model can do: it fills a mask, or continues a text if it predicts the next word."""
    info = RunFolder(result.run).read_settings()
    sentence = info["settings"].get("sentence") or MASK_SENTENCE  # short enough: the run has read it already
    if info["model"]["config"].get("causal"):
        return shlex.join(["glassbert", "generate", result.run, sentence.partition("[MASK]")[0].strip() or "The"])
    return shlex.join(["glassbert", "fill-mask", result.run, sentence])


def show_adaptation(content: dict[str, Any], console: Console) -> None:
    """Print the new pieces, and the losses on the domain and on general text, before and after."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, name in enumerate(adaptation.COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for row in adaptation.rows(content):
        table.add_row(*row)
    console.print(table)
    for sentence in adaptation.sentences(content):
        console.print(Text(sentence, "dim"))


run = with_settings(_run)
