"""`glassbert fill-mask`: predict the [MASK] tokens of a sentence."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.model_argument import MODEL_HELP, model_and_text, named_model
from glassbert.cli.with_option import Extensions
from glassbert.training.fill_mask import fill_mask, load_masked_model


def run(
    model: Annotated[str, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)],
    sentence: Annotated[str | None, typer.Argument(help="A sentence with at least one [MASK].")] = None,
    top: Annotated[int, typer.Option(min=1, help="The number of words per mask.")] = 5,
    engine: Annotated[str, typer.Option(help="auto, numpy or mlx.")] = "auto",
    extensions: Extensions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array instead of a table.")] = False,
) -> None:
    """Predict the masked words of a sentence.

    glassbert fill-mask "The capital of [MASK] is Paris."

    glassbert fill-mask runs/mine "The capital of [MASK] is Paris."
    """
    model, sentence = model_and_text(model, sentence)
    loaded, tokenizer = load_masked_model(named_model(model), engine)
    found = fill_mask(loaded, tokenizer, sentence, top)
    if as_json:
        typer.echo(json.dumps([[{"word": a.word, "chance": a.chance} for a in answers] for answers in found]))
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
