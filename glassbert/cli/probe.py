"""`glassbert probe`: what can be read out of a model's layers about your own annotations?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from glassbert.cli.evaluate import progress_bar, run_file
from glassbert.errors import GlassBertError
from glassbert.evaluation import Options, Subject, Suite, evaluate
from glassbert.evaluation.probes import get_task, probe_files
from glassbert.evaluation.terminal import show
from glassbert.tasks.reading import read_table


def run(
    model: Annotated[str, typer.Argument(metavar="RUN", help="A run, a folder with a model, or a hub id.")],
    train: Annotated[Path, typer.Option(help="A CoNLL or CoNLL-U file to learn from.")],
    dev: Annotated[Path, typer.Option(help="A file of the same kind to ask about.")],
    task: Annotated[
        list[str] | None,
        typer.Option(help="pos, ner, relations, heads, a probe of --with, or a column of the files. Repeat it."),
    ] = None,
    own: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="FILE.py", help="Probes of your own. The file is run: use only your own code."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A sample of the sentences, and linear probes alone.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes.")] = None,
    details: Annotated[bool, typer.Option("--details", help="Print the layers too.")] = False,
    resamples: Annotated[int, typer.Option(min=100, help="Resamples of every interval.")] = 1000,
    engine: Annotated[str, typer.Option(help="auto, numpy or mlx.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the NumPy engine.")] = None,
) -> None:
    """Fit probes on every layer of a model, on a mix of them and on all together, with controls and baselines.

    glassbert probe runs/mini --train en-train.conllu --dev en-dev.conllu

    glassbert probe runs/mini --train en-train.conllu --dev en-dev.conllu --task xpos --task relations

    A probe of your own is one function that gives every word a label, under @probe("name", title="..."), in a file
    named by --with. Selectivity is accuracy less that on random labels by word type: what the probe did not just
    remember.
    """
    for file in own or ():
        run_file(file)
    for path, what in ((train, "--train"), (dev, "--dev")):
        if not path.is_file():
            raise GlassBertError(f"{what}: there is no file {path}")
    table = read_table(train)
    tasks = [get_task(name, table) for name in task or ("pos",)]
    subject = Subject.open(model, engine=engine, threads=threads)
    asked = Suite("probes", "Probes", partial(probe_files, by_files={(train, dev): tasks}))
    options = Options(quick=quick, resamples=resamples)
    with progress_bar(1) as progress:
        found = evaluate([subject], [asked], options=options, progress=progress)
    console = Console(highlight=False)
    show(console, found, details)
    if output is not None:
        console.print(f"\nWritten: {found.write(output)}", soft_wrap=True)
    if found.failed:
        raise typer.Exit(1)
