"""`glassbert fill-mask`: predict the [MASK] tokens of a sentence."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.model_argument import MODEL_HELP, kernels_for, model_and_text, named_model
from glassbert.cli.options import AsJson, Engine, counted
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.training.fill_mask import fill_mask, load_masked_model


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    sentence: Annotated[str | None, typer.Argument(help="A sentence with at least one [MASK].")] = None,
    top: Annotated[int, counted("The number of words per mask.")] = 5,
    engine: Engine = "auto",
    extensions: Extensions = None,
    as_json: AsJson = False,
) -> None:
    """Predict the masked words of a sentence.

    glassbert fill-mask "The capital of [MASK] is Paris."
    glassbert fill-mask runs/mine "The capital of [MASK] is Paris."
    """
    model, sentence = model_and_text(model, sentence)
    loaded, tokenizer = load_masked_model(named_model(model), engine, kernels_for(sentence))
    found = fill_mask(loaded, tokenizer, sentence, top)
    if as_json:
        print_json([[answer._asdict() for answer in answers] for answers in found], indent=None)
        return
    console = Console(highlight=False)
    for number, answers in enumerate(found, 1):
        table = Table.grid(padding=(0, 2))
        for word, chance in answers:
            table.add_row(f"{chance:6.1%}", Text(word, style="bold"), Text("█" * round(30 * chance), style="green"))
        if len(found) > 1:
            console.print(f"mask {number}")
        console.print(table)
    pieces = sentence.split("[MASK]")
    filled = Text(pieces[0])
    for answers, piece in zip(found, pieces[1:], strict=True):
        filled.append(answers[0].word, style="bold green").append(piece)
    console.print(filled, soft_wrap=True)
