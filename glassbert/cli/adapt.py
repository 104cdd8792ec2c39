"""`glassbert adapt`: continue the pretraining of a model on a domain's text, with pieces of its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson, counted
from glassbert.cli.pretrain import train_and_show
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.training.adapting.adapt import DEFAULTS, adapt
from glassbert.training.adapting.mixing import LIMIT
from glassbert.training.settings import CHECKS, TrainingSettings

OF_THE_MODEL = ("preset", "size", "start_from", "tokenizer", "vocab_size", "corpus", "general", "dropout")


def _run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    corpus: Annotated[
        list[str], typer.Option(help="The text of the domain: files or a corpus folder (may be repeated).")
    ],
    general: Annotated[
        list[str] | None,
        typer.Option(help="Text like that of the first training, against forgetting. Without it: the built-in texts."),
    ] = None,
    forget: Annotated[bool, typer.Option("--no-general", help="Use no general text.")] = False,
    general_limit: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            help="Keep the largest share of the change of the weights with which general text rises by at most so many "
            "nats per word, masked as a whole; inf: keep all of it.",
        ),
    ] = LIMIT,
    new_pieces: Annotated[
        int | None,
        counted("At most so many new entries of the vocabulary; 0 keeps it. Default: by text and budget.", least=0),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="The folder of the run. Without it: runs/adapted-DATE-TIME.")
    ] = None,
    extensions: Extensions = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Adapt a model to a domain or a language: new pieces for its words, then more pretraining on its text.

    A share of general text (--general-share) in every batch keeps what the model knows. At the end the weights are
    mixed with those of the start, as far as general text needs it (--general-limit). The report has the losses on the
    domain and on the general text, before and after. Without a budget (--minutes, --steps or --tokens) the text is
    read 20 times, with at most 4 M tokens in all. Ctrl-C saves and stops; `glassbert resume RUN` continues.

    glassbert adapt mini --corpus letters.txt --general corpora/general --minutes 10
    glassbert adapt runs/mine --corpus python: --general news.txt --new-pieces 500 --steps 1k
    """
    screen = Console(stderr=True, highlight=False)
    with screen.status("Preparing") as status:
        trainer = adapt(
            named_model(model), corpus, "" if forget else general or None, general_limit=general_limit,
            new_pieces=new_pieces, run=run, on_message=lambda text: status.update(Text(text)), **settings,
        )  # fmt: skip
    train_and_show(trainer, as_json)


def _options() -> Iterator[inspect.Parameter]:
    options = options_of(TrainingSettings, CHECKS, defaults=DEFAULTS)
    return (option for option in options if option.name not in OF_THE_MODEL)


run = with_settings(_run, _options)
