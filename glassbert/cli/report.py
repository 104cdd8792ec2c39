"""`glassbert report`: write the report of a run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.errors import TrainingError
from glassbert.training.run_folder import FINETUNING, PRETRAINING, RunFolder, kind_of_run

STUDY, EVALUATION = "study.json", "evaluation.json"


def run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or of a scaling study.")],
    extensions: Extensions = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run again, from what is in its folder; nothing is trained.

    Useful after an update of GlassBERT, or while a pretraining is still going on. For a fine-tuning the predictions are
    computed again from the saved model, so its data files must still be there.

    glassbert report runs/mine
    """
    if (run / STUDY).exists():
        path = _of_study(run)
    else:
        kind = _kind(run)
        if kind not in WRITERS:
            raise TrainingError(f"the report of a {kind} run is written when it ends; {_again(run)}")
        path = WRITERS[kind](run)
    if as_json:
        print_json({"run": run, "report": path})
    else:
        typer.echo(f"Report  {path}")


def _kind(run: Path) -> str:
    if (run / EVALUATION).exists():
        return "evaluation"
    RunFolder.existing(run)
    return kind_of_run(run) or "damaged"


def _again(run: Path) -> str:
    """How to make such a report: the command that the run was started with, where it is known."""
    for name in ("settings.json", EVALUATION):
        try:
            command = json.loads((run / name).read_text(encoding="utf-8")).get("command", "")
        except (OSError, ValueError, AttributeError):
            continue
        if command:
            return f"start it again: {command}"
    return "start it again in another folder"


def _of_pretraining(run: Path) -> Path:
    from glassbert.training.report import write_report

    return write_report(RunFolder(run))


def _of_finetuning(run: Path) -> Path:
    from glassbert.finetuning.report.again import write_again

    return write_again(run)


def _of_study(run: Path) -> Path:
    from glassbert.evaluation.scaling import Study
    from glassbert.training.history import read_result

    study = Study(run)
    missing = [one.name for one in study.points if read_result(RunFolder(run / "runs" / one.name)) is None]
    if missing:
        again = f"glassbert scale -o {shlex.quote(str(run))}"
        raise TrainingError(f"{run} is not finished: {len(missing)} points are missing; resume it with: {again}")
    study.run()
    return run / "report.html"


WRITERS: dict[str, Callable[[Path], Any]] = {PRETRAINING: _of_pretraining, FINETUNING: _of_finetuning}
