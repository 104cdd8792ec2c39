"""The command line: one module per command.

To add a command, write `glassbert/cli/<name>.py` with a function `run` and add a line to `COMMANDS`. The parameters of
`run` become the options, its docstring becomes the help. A command with subcommands (`glassbert corpus build`) has a
Typer named `app` instead. A module is imported only when its command is called or completed, which keeps
`glassbert --help` fast.
"""

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console

from glassbert.cli.help import Command, Group, new_app
from glassbert.cli.output import interrupted_status
from glassbert.cli.terminal import prepare_terminal
from glassbert.errors import GlassBertError, RunInterrupted, presentable
from glassbert.files import REASONS, VERIFY

REFUSED = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.EMFILE, errno.ENFILE)  # by the system
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no place for a file
DEBUG = "GLASSBERT_DEBUG"  # if it is set, errors show their traceback

COMMANDS = {
    "quickstart": "Train a small BERT in five minutes on the documentation of your Python installation.",
    "tokenizer": "Train a tokenizer, encode text, inspect a tokenizer.",
    "corpus": "Build a corpus from text files, and report on its quality.",
    "pretrain": "Train an encoder from scratch on a corpus, within a budget.",
    "plan": "Plan a run: memory, time and the loss to expect, before it is started.",
    "adapt": "Adapt a model to a domain or a language: new pieces, more pretraining, little forgetting.",
    "resume": "Continue an interrupted run.",
    "export": "Write the model of a run into a folder to publish, with card, recipe and checksums.",
    "average": "Write a model whose weights are the mean of those of several.",
    "quantize": "Write a model in 8 or 4 bits, and report what it lost on its own task.",
    "fill-mask": "Predict the [MASK] in a sentence with a trained model.",
    "generate": "Continue a text with a causal model.",
    "verify": "Compare the files of a run, a corpus or a model with their checksums.",
    "runs": "List the runs of every kind and compare them.",
    "report": "Write the report of a run again.",
    "finetune": "Fine-tune an encoder for a task on a data file, and measure it.",
    "distill": "Train a small model to answer as a larger one does, for a task or on a corpus.",
    "predict": "Predict with a fine-tuned model, for a text or for every row of a file.",
    "serve": "Serve models over HTTP: predictions, masked words, embeddings, and a page to try them.",
    "embed": "Turn the texts of a file into vectors.",
    "index": "Make an index of texts, to search in by meaning.",
    "search": "Find the texts of an index that are nearest to a question.",
    "cluster": "Group the texts of a file, and draw the groups in a page.",
    "forecast": "Forecast a series, compared with naive, seasonal and linear forecasts.",
    "evaluate": "Evaluate a model: sanity, language, grammar, probes, transfer and cost in one report.",
    "probe": "Fit probes on a model's layers for your own annotations: a column or a function.",
    "inspect": "Inspect one prediction: attention, saliency and the predicted words.",
    "glass": "Look inside a model in a page: every number, forward and backward.",
    "scale": "Train a grid of sizes, fit a power law, predict the next size.",
    "family": "Compare BERT's descendants, or explain one with its formulas.",
    "learn": "Learn how BERT works: 18 lessons, exercises and a referee.",
    "models": "List the models, heads and recipes, with their numbers of parameters.",
    "check": "Check every hand-written gradient, and that wrong gradients are detected.",
    "doctor": "Show what this machine has, what is misconfigured and how to fix it.",
}


class Commands(Group):
    """The group of all commands: each is a name and a summary until it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else command, rest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. An error is printed as one red line without a traceback.

    Exit status 2 is an error of the user, and 70 one that no command expects; GLASSBERT_DEBUG=1 shows the traceback.
    """
    prepare_terminal()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get(DEBUG, "0") not in ("", "0")
    try:
        with _verification(arguments) as others:
            all_commands()(args=others, prog_name="glassbert")
    except RunInterrupted as error:
        _complain(str(error))
        raise SystemExit(interrupted_status()) from None
    except GlassBertError as error:
        if debug:
            raise
        _complain(str(error))
        raise SystemExit(2) from None
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in REFUSED and error.filename is not None:
            _complain(presentable(f"{error.filename}: {error.strerror}"))
            raise SystemExit(2) from None
        _complain(unexpected(error))
        raise SystemExit(2 if isinstance(error, OSError) and error.errno in FULL else 70) from None


def all_commands() -> Any:
    """The whole command line as one command of Typer."""
    app = new_app(
        cls=Commands,
        help="A BERT you can see through and still put to work.",
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for name, summary in COMMANDS.items():
        app.command(name, short_help=summary)(_not_imported)
    return typer.main.get_command(app)


def load_command(name: str) -> Any:
    """Import one command and make it a command of Typer."""
    module = import_module(f"glassbert.cli.{name.replace('-', '_')}")
    if hasattr(module, "app"):
        for one in module.app.registered_commands:
            one.cls = Command
        command = typer.main.get_command(module.app)
    else:
        app = new_app()
        app.command(name, cls=Command)(module.run)
        command = typer.main.get_command(app)
    command.name, command.short_help = name, COMMANDS[name]
    return command


def unexpected(error: Exception) -> str:
    """One sentence for an exception that no command expects, and where its traceback is."""
    what = presentable(f"{type(error).__name__}: {error}".rstrip(": ")).replace("\n", " ")
    if isinstance(error, OSError) and error.errno in FULL:
        return f"The output could not be written: {REASONS[error.errno]} ({what})."
    if isinstance(error, MemoryError):
        return f"The memory of this machine is not enough for this ({what}); use a smaller batch or a shorter length."
    try:
        with tempfile.NamedTemporaryFile("w", prefix="glassbert-error-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)).encode("utf-8", "backslashreplace").decode())
        where = f"the traceback is in {file.name}"
    except OSError:
        where = f"{DEBUG}=1 shows the traceback"
    return f"GlassBERT failed in a way that it does not expect, which is a defect: {what}; {where}."


def _complain(text: str) -> None:
    """Print in red; characters that the terminal's encoding does not have are escaped."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _verification(arguments: list[str]) -> Iterator[list[str]]:
    """Take `--no-verify` out, which every command has; the processes that a command starts inherit its effect."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    before = os.environ.get(VERIFY)
    if "--no-verify" in options:
        os.environ[VERIFY] = "0"
    try:
        yield [*(one for one in options if one != "--no-verify"), *arguments[len(options) :]]
    finally:
        if before is None:
            os.environ.pop(VERIFY, None)
        else:
            os.environ[VERIFY] = before


def _not_imported() -> None:
    """Placeholder for a command that is not called; only its summary is used."""


def _print_version(requested: bool) -> None:
    if requested:
        from glassbert import __version__

        typer.echo(f"glassbert {__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare files with their checksums; any command takes it.")
    ] = False,
) -> None:
    pass
