"""`glassbert scale`: train a few sizes, fit a power law, and predict the loss of the next size."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from glassbert.cli.options import AsJson, chosen, counted, number
from glassbert.cli.output import exit_interrupted, print_json
from glassbert.cli.run_options import pretraining_options, with_settings
from glassbert.errors import TrainingError
from glassbert.evaluation.scaling import Study, StudyPlan
from glassbert.evaluation.scaling.plan import COUNTS, MATCHES, OF_THE_STUDY
from glassbert.evaluation.scaling.report import show_outcome, show_plan
from glassbert.training.planning.table import user_table


def _run(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="STUDY", help="The folder of the study.")],
    sizes: Annotated[str | None, typer.Option(help="Values of pretrain --size, as in 1,1.5,2,2.5.")] = None,
    tokens: Annotated[
        str | None, typer.Option(help="Tokens per point, as in 2M; several, as in 1M,2M,4M, make a grid.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Instead of tokens: minutes for the whole study.")] = None,
    predict: Annotated[
        float | None, typer.Option(help="The size to predict; default: one step beyond the largest.")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Train the predicted size as well, and check the prediction.")
    ] = False,
    match: Annotated[
        str, chosen("tokens: the same tokens for every size. compute: the same FLOP for every size.", MATCHES)
    ] = "tokens",
    seeds: Annotated[int, counted("Seeds per point.")] = 1,
    repeats: Annotated[int, counted("Further seeds of the smallest point, to measure the noise.", least=0)] = 2,
    count: Annotated[
        str | None, chosen("The parameters that count as size: encoder (the blocks) or all; default: encoder.", COUNTS)
    ] = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Train a grid of small sizes, fit a power law with its uncertainty, and predict the loss of the next size.

    All points share everything but the size, also the held-out rows and their masks. A study that was stopped by Ctrl-C
    or killed is resumed with: glassbert scale -o STUDY. The same command with --confirm trains the predicted size.

    glassbert scale --sizes 1,1.5,2,2.5 --tokens 2M --predict 3 --confirm --corpus mycorpus/ -o studies/first
    glassbert scale --sizes 1,2,3,4 --minutes 30 --corpus mycorpus/ -o studies/second
    """
    plan = None
    if sizes is not None:
        plan = StudyPlan(
            sizes=tuple(_numbers(sizes, "--sizes")),
            tokens=tuple(round(number) for number in _numbers(tokens or "", "--tokens")),
            minutes=minutes, predict=predict, match=match, seeds=seeds, repeats=repeats, settings=settings,
        )  # fmt: skip
    elif settings or tokens or minutes:
        raise TrainingError(
            "a new study needs --sizes, as in --sizes 1,1.5,2,2.5; to resume a study give only -o STUDY"
        )
    progress = Console(stderr=True, highlight=False)
    on_message = lambda text: progress.print(Text(text, "bold"))  # noqa: E731
    study = Study(
        output, plan, confirm=confirm, predict=predict, count=count, table=user_table(), on_message=on_message
    )
    show_plan(progress, study)
    outcome = study.run()
    console = Console(highlight=False, soft_wrap=True)
    if outcome is None:
        again = f"glassbert scale -o {shlex.quote(str(output))}{' --confirm' * confirm}"
        progress.print(Text(f"Stopped and saved. Resume with: {again}"), soft_wrap=True)
        exit_interrupted()
        return
    if as_json:
        print_json(outcome.as_json())
    else:
        show_outcome(console, outcome)
        console.print(Text(f"Report  {study.folder / 'report.html'}"))
    if outcome.law is None:
        raise typer.Exit(1)


def _numbers(text: str, flag: str) -> list[float]:
    """Parse 1,1.5,2 or 500k,2M."""
    try:
        return [number(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise TrainingError(f"{flag}: {error}; give numbers separated by commas, as in 1,1.5,2 or 500k,2M") from None


def _options() -> Iterator[inspect.Parameter]:
    """The options of `pretrain` that all points of a study share."""
    return (option for option in pretraining_options() if option.name not in OF_THE_STUDY)


run = with_settings(_run, _options)
