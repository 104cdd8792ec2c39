"""`glassbert evaluate`: run suites on one or more models and write a report."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson, Engine, Threads, counted, split_names
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.errors import GlassBertError
from glassbert.evaluation import Options, Subject, evaluate, get_suites
from glassbert.evaluation.evaluation import Evaluation, OnProgress
from glassbert.evaluation.terminal import show

LOG_INTERVAL = 30.0  # seconds between progress lines without a terminal


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=DEFAULT_MODEL),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use samples instead of all data: a minute or two.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these suites: sanity,language,grammar,...; repeat it or use commas."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="A folder with evaluation data: zorro/ or blimp/, stsb/, sst2/, *.conllu, *.conll."),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            "--dev", "--text", help="Held-out text: a corpus folder or a text file. Default: the corpus of the run."
        ),
    ] = None,
    pairs: Annotated[Path | None, typer.Option(help="Minimal pairs: a file or a folder.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder of the report.")] = None,
    extensions: Extensions = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Compare with the same model with initial weights.")
    ] = False,
    details: Annotated[bool, typer.Option("--details", help="Print the breakdowns as well.")] = False,
    resamples: Annotated[int, counted("Bootstrap resamples per interval.", least=100)] = 1000,
    engine: Engine = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model: sanity checks, language modelling, grammar, probes, transfer, embeddings and cost.

    glassbert evaluate runs/mini --quick --data data
    glassbert evaluate runs/mini runs/larger --only language,grammar --data data

    Several models are compared with the first one, on the same data, with paired intervals. The report is one HTML page
    and a JSON file. The exit code is 1 if a suite failed or sanity found a problem, and 0 otherwise.
    """
    suites = get_suites(split_names(only) or None, quick)
    for folder, what in ((data, "--data"), (dev, "--dev"), (pairs, "--pairs")):
        if folder is not None and not folder.exists():
            raise GlassBertError(f"{what}: there is no file or folder {folder}")
    subjects = [
        Subject.open(model, engine=engine, threads=threads) for model in map(named_model, models or [DEFAULT_MODEL])
    ]
    if untrained:
        subjects.append(subjects[0].untrained())
    options = Options(quick=quick, data=data, text=dev, pairs=pairs, resamples=resamples)
    with progress_bar(len(subjects) * len(suites)) as progress:
        found = evaluate(subjects, suites, options=options, progress=progress, command=_command())
    page = found.write(output or default_folder(found))
    if as_json:
        print_json(found.as_json())
    else:
        console = Console(highlight=False)
        show(console, found, details)
        console.print(f"\nWritten: {page}", soft_wrap=True, markup=False)
    sane = all(
        finding.severity != "problem"
        for results in found.results.values()
        for finding in (results["sanity"].findings if "sanity" in results else ())
    )
    if found.failed or not sane:
        raise typer.Exit(1)


def default_folder(found: Evaluation) -> Path:
    """`RUN/evaluation` for a single run; `evaluations/NAMES` for other models, or several."""
    first = found.subjects[0]
    if len(found.subjects) == 1 and first.history is not None:
        return first.history.run.path / "evaluation"
    name = "-".join(subject.name for subject in found.subjects).replace(" ", "-").replace("/", "-")
    return Path("evaluations") / name


@contextmanager
def progress_bar(total: int) -> Iterator[OnProgress]:
    """A progress bar over `total` suites on stderr; without a terminal, one line per suite and every 30 s."""
    screen = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    ) as bar:
        task = bar.add_task("", total=total)
        started: list[tuple[str, str]] = []
        start = printed = time.monotonic()

        def progress(subject: str, suite: str, done: int, of: int, what: str) -> None:
            nonlocal printed
            new = (subject, suite) not in started
            if new:
                started.append((subject, suite))
            completed = len(started) - 1 + (min(done / of, 1.0) if of else 0.0)
            description = f"{subject}: {suite}" + (f", {what}" if what else "")
            bar.update(task, description=escape(description), completed=completed)
            now = time.monotonic()
            if not screen.is_terminal and (new or now - printed >= LOG_INTERVAL):
                printed = now
                minutes, seconds = divmod(int(now - start), 60)
                line = f"{minutes:3d}:{seconds:02d}  {completed / total:4.0%}  {description}"
                screen.print(line, soft_wrap=True, markup=False)

        yield progress


def _command() -> str:
    return " ".join(["glassbert", *map(shlex.quote, sys.argv[1:])])
