"""`glassbert embed`: the texts of a file as vectors."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.folder_job import Overwrite, RowsPerPart, Workers, is_folder_job, run_folder_job
from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import Address, AsJson, Engine, On, Threads, counted
from glassbert.cli.output import check_not_input, print_json
from glassbert.cli.predict import lines_of_stdin, progress_bar
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.errors import InputError
from glassbert.finetuning.embedding import (
    VECTOR_WRITERS,
    check_dimensions,
    check_vector_file,
    embedder,
    fingerprint,
    texts_beside,
    truncated,
    write_vectors,
)
from glassbert.tasks.file_settings import FileSettings


def _run(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="One text per line (.txt), or a table; - reads lines from stdin. A folder, a glob in quotes or "
            "s3://bucket/folder: all files there.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=f"The file to write: {', '.join(VECTOR_WRITERS)}; of a folder, a folder.",
        ),
    ],
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    text: Annotated[str | None, typer.Option(help="The column with the text. Default: text.")] = None,
    dimensions: Annotated[
        int | None, counted("Keep only the first N numbers of a vector, at unit length again. Default: all.")
    ] = None,
    batch_tokens: Annotated[int, counted("Tokens computed at a time.", least=8)] = 8192,
    on: On = "here",
    address: Address = None,
    workers: Workers = None,
    rows_per_part: RowsPerPart = 4096,
    overwrite: Overwrite = False,
    engine: Engine = "auto",
    extensions: Extensions = None,
    threads: Threads = None,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Turn every text of a file into a vector of unit length, so that a dot product is a cosine.

    A model that was fine-tuned for embeddings has its own pooling; of every other model it is the mean of the last
    hidden states. Rows keep their order.

    glassbert embed sentences.txt -o vectors.npy
    glassbert embed reviews.csv --text review --model runs/mine -o vectors.parquet
    glassbert embed sentences.txt --dimensions 64 -o small.parquet
    glassbert embed reviews/ --text review -o vectors --on ray --workers 8
    """
    chosen = FileSettings.from_dict(reading).reading()
    if text is not None:
        chosen["text"] = text
    if is_folder_job(file, on, workers, address):
        run_folder_job(
            "embed", named_model(model), file, output, on=on, address=address, workers=workers, rows=rows_per_part,
            overwrite=overwrite, engine=engine, threads=threads, batch_tokens=batch_tokens, dimensions=dimensions,
            as_json=as_json, options=chosen,
        )  # fmt: skip
        return
    path = Path(output)
    check_vector_file(path)
    check_not_input(file, path, *([texts_beside(path)] if path.suffix.lower() == ".npy" else []))
    given: Any = Path(file)
    if file == "-":
        encoding = chosen.pop("encoding", None)
        if chosen:
            raise InputError(f"stdin has one text per line; remove {' and '.join(f'--{name}' for name in chosen)}")
        given = lines_of_stdin(encoding)
    predictor = embedder(named_model(model), engine=engine, threads=threads)
    check_dimensions(dimensions, predictor.model.config.hidden_size)
    screen = Console(stderr=True)
    with progress_bar(screen) as progress:
        found = predictor.predict(given, batch_tokens=batch_tokens, progress=progress, **chosen)
    for note in found.notes:
        screen.print(Text(f"Note: {note}.", style="yellow"))
    vectors = truncated(found.vectors, dimensions)
    made_by = {"model": model, "fingerprint": fingerprint(predictor, model)}
    write_vectors(path, found.data.texts, vectors, made_by=made_by)
    if as_json:
        facts = {"file": output, "model": model, "texts": len(vectors), "dimensions": vectors.shape[1]}
        print_json({**facts, "texts_per_second": found.per_second})
        return
    shape = f"{len(vectors):,} vectors of {vectors.shape[1]} numbers"
    typer.echo(f"{shape} written to {shlex.quote(output)} ({found.per_second:,.0f} texts/s)")


run = with_settings(_run, partial(options_of, FileSettings))
