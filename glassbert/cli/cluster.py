"""`glassbert cluster`: groups of similar texts, with a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson, Engine, Threads, chosen, counted
from glassbert.cli.output import check_not_input, print_json
from glassbert.cli.predict import progress_bar
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.errors import InputError
from glassbert.search.cluster_page import PAGE, TABLE, shorten, write_clustering
from glassbert.search.clusters import METHODS, NONE, PICTURES, cluster_texts
from glassbert.search.vectors import gather_vectors
from glassbert.tasks.file_settings import FileSettings

METHOD_NAMES = {"kmeans": "k-means", "hdbscan": "HDBSCAN"}


def _run(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="One text per line (.txt), a table, or vectors: a file or a folder of `embed`."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help=f"The folder for {PAGE} and {TABLE}.")
    ] = Path("clusters"),
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="MODEL", help=f"{MODEL_HELP} Default: that of the vectors, or {DEFAULT_MODEL}."
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="The column with the text. Default: text.")] = None,
    clusters: Annotated[
        int | None, counted("Groups of k-means. Default: the number with the best silhouette.", least=2)
    ] = None,
    method: Annotated[str, chosen("kmeans groups every text, hdbscan only dense regions.", METHODS)] = "kmeans",
    picture: Annotated[
        str, chosen("How texts are drawn. auto: umap if umap-learn is installed, else pca.", PICTURES)
    ] = "auto",
    seed: Annotated[int, counted("Determines where k-means begins.", least=0)] = 0,
    batch_tokens: Annotated[int, counted("Tokens computed at a time.", least=8)] = 8192,
    engine: Engine = "auto",
    extensions: Extensions = None,
    threads: Threads = None,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Group the texts of a file by their vectors: a page with a picture, and a table with the group of each text.

    glassbert cluster reviews.csv --text review -o groups
    glassbert cluster vectors.parquet --clusters 8
    """
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; the output is a folder")
    check_not_input(file, output / TABLE, output / PAGE)
    options = FileSettings.from_dict(reading).reading() | ({} if text is None else {"text": text})
    screen = Console(stderr=True)
    with progress_bar(screen) as progress:
        found = gather_vectors(
            file, None if model is None else named_model(model), engine=engine, threads=threads,
            batch_tokens=batch_tokens, progress=progress, **options,
        )  # fmt: skip
    for note in found.notes:
        screen.print(Text(f"Note: {note}.", style="yellow"), soft_wrap=True)
    grouped = cluster_texts(found, method=method, clusters=clusters, picture=picture, seed=seed)
    page = write_clustering(output, grouped, file.name, Path(found.model).name, METHOD_NAMES[method])
    left = int((grouped.numbers == NONE).sum())
    if as_json:
        rows = [
            {
                "cluster": one.number,
                "words": one.words,
                "texts": len(one.rows),
                "silhouette": one.silhouette,
                "central": grouped.texts[one.rows[0]],
            }
            for one in grouped.clusters
        ]
        facts = {"page": page, "texts": len(found), "in_no_cluster": left, "silhouette": grouped.silhouette}
        print_json({**facts, "clusters": rows})
        return
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in (("", "right"), ("texts", "right"), ("words", "left"), ("most central text", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for one in grouped.clusters:
        central = shorten(grouped.texts[one.rows[0]], 60)
        table.add_row(str(one.number), f"{len(one.rows):,}", Text(one.name), Text(central, style="dim"))
    console.print(table)
    none = f", {left:,} texts in no group" if left else ""
    typer.echo(f"{len(found):,} texts, silhouette {grouped.silhouette:.3f}{none}; page: {page}")


run = with_settings(_run, partial(options_of, FileSettings))
