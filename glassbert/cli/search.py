"""`glassbert search`: the texts of an index that are nearest to a question."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.model_argument import kernels_for
from glassbert.cli.options import Engine, Threads, counted
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.errors import CheckpointError, InputError, TextError
from glassbert.finetuning.embedding import embedder, fingerprint
from glassbert.reading.encodings import decode
from glassbert.search.index import Hit, VectorIndex

PROMPT = "question> "


def run(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="A folder that `glassbert index` wrote.")],
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION", help="One or several; without any they are read line by line."),
    ] = None,
    count: Annotated[int, counted("How many texts to show.", "-k", "--count")] = 5,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Where the model of the index is now, if it was moved."),
    ] = None,
    engine: Engine = "auto",
    extensions: Extensions = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on standard output: one object per question.")
    ] = False,
) -> None:
    """Search an index: the nearest texts by cosine, with the model that the index was built with.

    glassbert search index "Where is the river?"
    glassbert search index -k 3 --json < questions.txt
    """
    opened = VectorIndex.open(index)
    name = model or opened.model
    try:
        kernels = kernels_for(*questions) if questions else "fast"
        predictor = embedder(name, engine=engine, threads=threads, kernels=kernels)
    except CheckpointError as error:
        moved = "; if the model of the index was moved, say where it is with --model" if model is None else ""
        raise InputError(f"{error}{moved}") from error
    opened.check_model(fingerprint(predictor, name), name)
    empty = next((one for one in questions or () if not one.strip()), None)
    if empty is not None:
        raise InputError("a question is empty")
    console = Console(highlight=False)
    for question in questions or _asked():
        hits = opened.ask(predictor, [question], count)[0]
        if as_json:
            print_json({"question": question, "hits": [hit._asdict() for hit in hits]}, indent=None)
        else:
            _show(console, question if not questions or len(questions) > 1 else None, hits)


def _asked() -> Iterator[str]:
    """Questions from standard input; a terminal shows a prompt, and ends with an empty line or Ctrl-D."""
    if not sys.stdin.isatty():
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                question = decode(line, "standard input")[0].strip()
            except TextError as error:
                raise InputError(f"line {number} of standard input is not UTF-8; give questions in UTF-8") from error
            if question:
                yield question
        return
    while True:
        try:
            question = input(PROMPT).strip()
        except (EOFError, KeyboardInterrupt):
            typer.echo()
            return
        if not question:
            return
        yield question


def _show(console: Console, question: str | None, hits: list[Hit]) -> None:
    if question is not None:
        console.print(Text(question, style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", style="green", no_wrap=True)
    table.add_column(overflow="fold")
    for hit in hits:
        table.add_row(f"{hit.score:.3f}", Text(hit.text))
    console.print(table)
