"""`glassbert probe`: fit probes on the layers of a model for annotations in your own files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from glassbert.cli.evaluate import progress_bar
from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson, Engine, Threads, counted, split_names
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.errors import GlassBertError
from glassbert.evaluation import Options, Subject, Suite, evaluate
from glassbert.evaluation.probes import get_task, probe_files
from glassbert.evaluation.terminal import show
from glassbert.tasks.reading import read_table


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    train: Annotated[Path, typer.Option(help="The CoNLL or CoNLL-U file for training the probes.")],
    dev: Annotated[Path, typer.Option(help="A file of the same format for testing them.")],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only these probes: pos, ner, relations, heads, one of --with, or a column of the files; repeat it or "
            "use commas. Default: pos.",
        ),
    ] = None,
    extensions: Extensions = None,
    quick: Annotated[bool, typer.Option("--quick", help="A sample of the sentences, and linear probes only.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder of the report.")] = None,
    details: Annotated[bool, typer.Option("--details", help="Print the layers as well.")] = False,
    resamples: Annotated[int, counted("Bootstrap resamples per interval.", least=100)] = 1000,
    engine: Engine = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Fit probes on every layer of a model, on a mix of layers and on all layers, with control tasks and baselines.

    glassbert probe runs/mini --train en-train.conllu --dev en-dev.conllu
    glassbert probe runs/mini --train en-train.conllu --dev en-dev.conllu --only xpos,relations

    Your own probe is a function that returns a label for every word, decorated with @probe("name", title="..."), in a
    file named by --with. Selectivity is the accuracy minus that on random labels by word type, which measures
    memorisation.
    """
    for path, what in ((train, "--train"), (dev, "--dev")):
        if not path.is_file():
            raise GlassBertError(f"{what}: there is no file {path}")
    table = read_table(train)
    tasks = [get_task(name, table) for name in split_names(only) or ("pos",)]
    subject = Subject.open(named_model(model), engine=engine, threads=threads)
    probes = Suite("probes", "Probes", partial(probe_files, by_files={(train, dev): tasks}))
    options = Options(quick=quick, resamples=resamples)
    with progress_bar([1.0]) as progress:
        found = evaluate([subject], [probes], options=options, progress=progress)
    page = None if output is None else found.write(output)
    if as_json:
        print_json(found.as_json())
    else:
        console = Console(highlight=False)
        show(console, found, details)
        if page is not None:
            console.print(f"\nWritten: {page}", soft_wrap=True, markup=False)
    if found.failed:
        raise typer.Exit(1)
