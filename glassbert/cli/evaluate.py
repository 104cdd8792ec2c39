"""`glassbert evaluate`: run suites on one or more models and write a report."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
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
from glassbert.evaluation.evaluation import OnProgress
from glassbert.evaluation.kept import KeptSuites
from glassbert.evaluation.terminal import show

LOG_INTERVAL = 30.0  # seconds between progress lines without a terminal


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=DEFAULT_MODEL),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use small samples: a minute or two.")] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Use all data, three seeds and more probes: half an hour and more.")
    ] = False,
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
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted evaluation: suites that are finished are kept.")
    ] = False,
    resamples: Annotated[int, counted("Bootstrap resamples per interval.", least=100)] = 1000,
    engine: Engine = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model: sanity checks, language modelling, grammar, probes, transfer, embeddings and cost.

    glassbert evaluate runs/mini --quick --data data
    glassbert evaluate runs/mini runs/larger --only language,grammar --data data
    glassbert evaluate runs/mini --data data --resume

    Several models are compared with the first one, on the same data, with paired intervals. The report is one HTML page
    and a JSON file. The exit code is 1 if a suite failed or sanity found a problem, and 0 otherwise.
    """
    if quick and thorough:
        raise GlassBertError("--quick and --thorough exclude each other; give one of them")
    suites = get_suites(split_names(only) or None, quick)
    for folder, what in ((data, "--data"), (dev, "--dev"), (pairs, "--pairs")):
        if folder is not None and not folder.exists():
            raise GlassBertError(f"{what}: there is no file or folder {folder}")
    subjects = [
        Subject.open(model, engine=engine, threads=threads) for model in map(named_model, models or [DEFAULT_MODEL])
    ]
    if untrained:
        subjects.append(subjects[0].untrained())
    options = Options(quick=quick, thorough=thorough, data=data, text=dev, pairs=pairs, resamples=resamples)
    folder = output or default_folder(subjects)
    with progress_bar([one.effort for _ in subjects for one in suites]) as progress:
        try:
            found = evaluate(
                subjects, suites, options=options, progress=progress, command=_command(),
                kept=KeptSuites(folder, resume),
            )  # fmt: skip
        except KeyboardInterrupt:
            Console(stderr=True).print("Finished suites are kept: the same command with --resume continues.")
            raise
    page = found.write(folder)
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


def default_folder(subjects: Sequence[Subject]) -> Path:
    """`RUN/evaluation` for a single run; `evaluations/NAMES` for other models, or several."""
    first = subjects[0]
    if len(subjects) == 1 and first.history is not None:
        return first.history.run.path / "evaluation"
    name = "-".join(subject.name for subject in subjects).replace(" ", "-").replace("/", "-")
    return Path("evaluations") / name


@contextmanager
def progress_bar(efforts: Sequence[float]) -> Iterator[OnProgress]:
    """A progress bar over suites on stderr, with the time left; without a terminal, one line per suite and every 30 s.

    `efforts` are the usual shares of the time of the suites, in their order.
    """
    screen = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    ) as bar:
        task = bar.add_task("", total=1.0, left="")
        clock = RemainingTime(efforts)
        printed = clock.started

        def progress(subject: str, suite: str, done: int, of: int, what: str) -> None:
            nonlocal printed
            now = time.monotonic()
            new = clock.update((subject, suite), done / of if of else 0.0, now)
            description = f"{subject}: {suite}" + (f", {what}" if what else "")
            bar.update(task, description=escape(description), completed=clock.done, left=clock.text(now))
            if not screen.is_terminal and (new or now - printed >= LOG_INTERVAL):
                printed = now
                minutes, seconds = divmod(int(now - clock.started), 60)
                left = clock.text(now)
                line = f"{minutes:3d}:{seconds:02d}  {clock.done:4.0%}  {description}{left and f' ({left})'}"
                screen.print(line, soft_wrap=True, markup=False)

        yield progress


class RemainingTime:
    """How much of all suites is done, and how long the rest will take.

    done = share of the efforts of all suites       left = seconds spent · (1 - done) / done

    Suites that were finished before count for neither: they took no time.
    """

    def __init__(self, efforts: Sequence[float], started: float | None = None):
        self.efforts = efforts
        self.started = time.monotonic() if started is None else started
        self._suites: list[object] = []
        self._share = 0.0  # of the suite that runs
        self._skipped = 0.0  # efforts of suites that were finished before

    def update(self, suite: object, share: float, now: float) -> bool:
        """Note the progress of a suite; returns whether it has just begun."""
        new = suite not in self._suites
        if new:
            self._suites.append(suite)
            self._share = 0.0
            if share >= 1.0:
                self._skipped += self.efforts[len(self._suites) - 1]
        self._share = max(self._share, min(share, 1.0))
        return new

    @property
    def done(self) -> float:
        before = sum(self.efforts[: max(0, len(self._suites) - 1)])
        current = self.efforts[len(self._suites) - 1] if self._suites else 0.0
        return (before + self._share * current) / sum(self.efforts)

    def seconds_left(self, now: float) -> float | None:
        """None until there is something to go by."""
        skipped = self._skipped / sum(self.efforts)
        spent, worked = now - self.started, self.done - skipped
        return None if spent < 5.0 or worked <= 0.002 else spent * (1.0 - self.done) / worked

    def text(self, now: float) -> str:
        left = self.seconds_left(now)
        if left is None:
            return ""
        return f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"


def _command() -> str:
    return " ".join(["glassbert", *map(shlex.quote, sys.argv[1:])])
