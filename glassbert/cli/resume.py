"""`glassbert resume`: continue a run from its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassbert.cli.options import AsJson
from glassbert.cli.pretrain import train_and_show
from glassbert.cli.with_option import Extensions
from glassbert.training.run_folder import FINETUNING, FORECASTING, kind_of_run
from glassbert.training.trainer import Trainer


def run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.")],
    extensions: Extensions = None,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was interrupted or killed, from its last checkpoint.

    A run with a budget in steps or tokens ends with the same weights, bit by bit, as an uninterrupted run (NumPy with
    the same number of threads; MLX on a CPU). With a budget in minutes the learning rate follows the clock, and on CUDA
    the order of sums varies, so the result is not identical there.
    """
    if kind_of_run(run) == FINETUNING:
        from glassbert.cli.finetune import show
        from glassbert.finetuning.run import resume_finetuning

        show(resume_finetuning(run), as_json)
    elif kind_of_run(run) == FORECASTING:
        from glassbert.cli.forecast import progress_bar
        from glassbert.cli.forecast import show as show_forecast
        from glassbert.forecasting import resume_forecast

        with progress_bar() as progress:
            finished = resume_forecast(run, progress)
        show_forecast(*finished, as_json)
    else:
        train_and_show(Trainer.resume(run), as_json)
