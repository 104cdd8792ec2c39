"""`glassbert index`: an index of texts, to search in."""

from __future__ import annotations

import shlex
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson, Engine, Threads, counted
from glassbert.cli.output import print_json
from glassbert.cli.predict import progress_bar
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.errors import InputError
from glassbert.search.index import VectorIndex, check_place, usearch_index
from glassbert.search.vectors import gather_vectors
from glassbert.tasks.file_settings import FileSettings


def _run(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="One text per line (.txt), a table, or vectors: a file or a folder of `embed`."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="INDEX", help="The folder of the index.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="MODEL", help=f"{MODEL_HELP} Default: that of the vectors, or {DEFAULT_MODEL}."
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="The column with the text. Default: text.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Add the texts to the index in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the index in the folder.")] = False,
    dimensions: Annotated[
        int | None, counted("Keep only the first N numbers of a vector, at unit length again. Default: all.")
    ] = None,
    batch_tokens: Annotated[int, counted("Tokens computed at a time.", least=8)] = 8192,
    engine: Engine = "auto",
    extensions: Extensions = None,
    threads: Threads = None,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Make an index of texts for `glassbert search`.

    A text that occurs several times is in the index once. The recall of the index against exact search is measured, and
    the search is widened until it is 99 %.

    glassbert index sentences.txt -o index
    glassbert index vectors.parquet -o index
    glassbert index more.txt -o index --add
    """
    usearch_index()
    if add and overwrite:
        raise InputError("--add keeps the index and --overwrite replaces it; give one of them")
    options = FileSettings.from_dict(reading).reading() | ({} if text is None else {"text": text})
    index = VectorIndex.open(output) if add else None
    if index is None:
        check_place(output, overwrite)
    else:
        model, dimensions = model or index.model, dimensions or index.dimensions
    screen, start = Console(stderr=True), time.perf_counter()
    with progress_bar(screen) as progress:
        found = gather_vectors(
            file, None if model is None else named_model(model), dimensions=dimensions, engine=engine, threads=threads,
            batch_tokens=batch_tokens, progress=progress, **options,
        )  # fmt: skip
    for note in found.notes:
        screen.print(Text(f"Note: {note}.", style="yellow"), soft_wrap=True)
    built = VectorIndex.build(output, found, overwrite=overwrite) if index is None else index.add(found)
    facts = built.manifest
    if as_json:
        names = ("model", "dimensions", "texts", "added", "left_out", "expansion", "recall")
        print_json({"folder": output, "seconds": time.perf_counter() - start, **{name: facts[name] for name in names}})
        return
    left_out = f", {facts['left_out']:,} were there already" if facts["left_out"] else ""
    size = sum(one["bytes"] for one in facts["files"].values())
    typer.echo(
        f"{shlex.quote(str(output))}: {facts['texts']:,} texts ({facts['added']:,} added{left_out}), "
        f"{facts['dimensions']} dimensions, {size / 1e6:,.1f} MB"
    )
    recall = facts["recall"]
    if recall["queries"]:
        typer.echo(
            f"recall@{recall['at']} against exact search: {recall['value']:.1%} "
            f"({recall['queries']} texts, expansion {facts['expansion']})"
        )


run = with_settings(_run, partial(options_of, FileSettings))
