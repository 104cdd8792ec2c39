"""`glassbert distill`: train a small model to answer as a larger one does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.finetune import show
from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson
from glassbert.cli.pretrain import train_and_show
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.errors import TrainingError
from glassbert.finetuning.run import finetune
from glassbert.finetuning.settings import CHECKS, FineTuningSettings
from glassbert.training.distilling import check_student, distill
from glassbert.training.settings import CHECKS as PRETRAINING_CHECKS
from glassbert.training.settings import TrainingSettings, read_toml

PRETRAINING = "With --corpus"  # the panel of options that only pretraining has
OF_THE_STUDENT = ("model", "start_from", "folds", "fold")


def _run(
    student: Annotated[str, typer.Option(help=f"The model that learns. {MODEL_HELP}")] = DEFAULT_MODEL,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file with any of the fields below; flags override it.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="The folder of the run. Without it: runs/NAME-DATE-TIME.")
    ] = None,
    extensions: Extensions = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Train a small model, the student, to answer as a larger one, the teacher, does.

    For a task (--train or --task) the teacher is a model that was fine-tuned for it. Its answers are computed once and
    stored. It also answers for texts without labels: --texts FILE, and --augment N copies of the training texts with
    other words. Teacher and student may have different tokenizers. --compare also trains without the teacher.

    With --corpus the student is pretrained: the teacher is a masked language model with the same vocabulary. A teacher
    of hidden states (--objective mlm+hidden) may have another one.

    The student is the model that ships with GlassBERT, a folder (--student), or random weights (--from-scratch
    --preset). Ctrl-C saves and stops; `glassbert resume RUN` continues.

    glassbert distill --teacher runs/minilm-sst2 --task sst2 --data data --augment 4 --compare
    glassbert distill --teacher runs/large --student mini --train reviews.csv --target stars --texts more.txt
    glassbert distill --teacher runs/larger --from-scratch --preset mini --corpus corpus --minutes 30
    """
    given = {**(read_toml(settings_file) if settings_file else {}), **settings}
    if not given.get("teacher"):
        raise TrainingError("distill needs a teacher: a trained model to learn from, with --teacher")
    scratch = bool(given.get("from_scratch"))
    if scratch and student != DEFAULT_MODEL:
        raise TrainingError(f"--from-scratch starts from random weights, so --student {student} does not go with it")
    further = given.get("further_teachers") or ()
    for name in (given["teacher"], *((further,) if isinstance(further, str) else further)):
        named_model(name)
    if not scratch:
        named_model(student)
        check_student(student, given)
    if given.get("corpus"):
        _check_fields(given, TrainingSettings, "--corpus", "--train or --task")
        given.pop("from_scratch", None)
        trainer = distill(given.pop("teacher"), given.pop("corpus"), "" if scratch else student, run=run, **given)
        train_and_show(trainer, as_json)
        return
    _check_fields(given, FineTuningSettings, "--train or --task", "--corpus")
    show(finetune(FineTuningSettings.from_dict({**given, **({} if scratch else {"model": student})}), run), as_json)


def _check_fields(given: dict[str, Any], settings: type[Any], mode: str, other: str) -> None:
    """Raise for an option that only the other kind of distillation has."""
    for name in given:
        if name not in settings.fields() and name != "from_scratch":
            raise TrainingError(f"--{name.replace('_', '-')} goes with {other}, not with {mode}")


def _options() -> Iterator[inspect.Parameter]:
    """The options of fine-tuning, and those that only pretraining has."""
    for option in options_of(FineTuningSettings, CHECKS):
        if option.name not in OF_THE_STUDENT:
            yield option
    for option in options_of(TrainingSettings, PRETRAINING_CHECKS):
        if option.name not in (*FineTuningSettings.fields(), *OF_THE_STUDENT):
            option.annotation.__metadata__[0].rich_help_panel = PRETRAINING
            yield option


run = with_settings(_run, _options)
