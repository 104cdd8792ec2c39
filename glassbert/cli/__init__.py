"""The command line: one thin file a command.

To add a command, write `glassbert/cli/<name>.py` with a function `run`, whose parameters become the command's options
and whose docstring becomes its help, and add a line to the table. A command with commands of its own (`glassbert corpus
build`) has a Typer called `app` instead. A file is imported only when its command is named on
the command line, so that `glassbert --help` stays quick whatever the commands need.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer
from rich.console import Console

from glassbert.errors import GlassBertError

COMMANDS = {
    "quickstart": "Train a Mini-BERT in five minutes on the English of your Python installation.",
    "tokenizer": "Train a vocabulary, see how words fall apart, look into a tokenizer.",
    "corpus": "Make a corpus of text files, and report on its health.",
    "pretrain": "Train an encoder from scratch on a corpus, within a budget.",
    "resume": "Go on with an interrupted run.",
    "fill-mask": "Let a trained model fill the [MASK] in a sentence.",
    "runs": "List the runs and compare them.",
    "finetune": "Fine-tune an encoder for a task, from a file to a measured model.",
    "predict": "Answer with a fine-tuned model: for a text, or for every row of a file.",
    "forecast": "Forecast a series, judged beside naive, seasonal and linear forecasts.",
    "evaluate": "What has a model learned? Sanity, language, grammar, probes, transfer, cost in one report.",
    "probe": "Fit probes on a model's layers for annotations of your own: a column, or a function of yours.",
    "inspect": "Look into one prediction: attention, saliency and what the model would say.",
    "scale": "Train a grid of sizes, fit a power law, predict the next size.",
    "models": "List the models, heads and recipes, with their numbers of parameters.",
    "check": "Check every hand-written gradient, and that wrong ones are caught.",
    "doctor": "What this machine has, what is misconfigured and what to do about it.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; an error of GlassBERT's own is one red sentence instead of a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    app = typer.Typer(
        help="A BERT you can see through and still put to work.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for name, summary in COMMANDS.items():
        if name not in arguments:
            app.command(name, short_help=summary)(_not_imported)
            continue
        command = import_module(f"glassbert.cli.{name.replace('-', '_')}")
        if hasattr(command, "app"):
            app.add_typer(command.app, name=name, short_help=summary)
        else:
            app.command(name, short_help=summary)(command.run)
    try:
        app(args=list(arguments), prog_name="glassbert")
    except GlassBertError as error:
        Console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


def _not_imported() -> None:
    """Stand for a command that the help lists and nobody asked for."""


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"glassbert {version('glassbert')}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
