"""`finetune`: a complete fine-tuning run. It reads, trains all seeds, evaluates, compares, saves and reports.

from glassbert.finetuning import finetune

tuned = finetune(model="runs/mini", train="reviews.csv", target="stars")
tuned.scores, tuned.model, tuned.report

RUN/settings.json      all settings, with the defaults that were chosen
RUN/log.jsonl          losses and scores during training
RUN/seed-0/            checkpoints of a seed, later its result
RUN/model/             the model of the best seed, with its tokenizer and task.json
RUN/predictions.jsonl  its predictions for the held-out examples
RUN/teacher/           the answers of a teacher, and texts with replaced words
RUN/without-teacher/   with --compare, the same fine-tuning without the teacher
RUN/result.json        scores with intervals, every seed, the baseline
RUN/report.html        the report
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glassbert.checkpoints import load
from glassbert.errors import TrainingError
from glassbert.files import atomic_write, read_json, write_json
from glassbert.finetuning.display import progress_bar, tuning_display
from glassbert.finetuning.finishing import finish, fit_simple_model
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.preparing import WITHOUT_TEACHER, Prepared, prepare
from glassbert.finetuning.seeds import RESULT, SeedResult, SeedRuns, Spread, outcome_of
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.metrics import Scores
from glassbert.tasks.reading import table_from_object
from glassbert.training.budget import Interrupts
from glassbert.training.display import Display, NoDisplay
from glassbert.training.finishing import Result
from glassbert.training.run_folder import (
    FINETUNING,
    FORECASTING,
    RunFolder,
    kind_of_run,
    machine_facts,
    new_run_folder,
    versions,
)
from glassbert.training.settings_base import document
from glassbert.training.trainer import Trainer

CHOICES = {
    "other": "{choice:,} other examples choose the epoch and the calibration.",
    "nothing": "No examples are spent on choosing an epoch: the weights of the last one count.",
    "reported": "The epoch is chosen on the held-out examples that are reported; a --test file would give unbiased "
    "scores.",
}
WITHOUT = "without_teacher"  # in settings.json: the settings of the run to compare with
IN_MEMORY = ("train", "dev", "test")  # settings that may be examples in memory


@dataclass(frozen=True)
class FineTuned:
    """Result of a fine-tuning. An interrupted one has only `run`, `stopped` and the finished seeds."""

    run: Path
    stopped: str  # "finished" or "interrupted"
    seeds: list[SeedResult]
    metric: str
    spread: Spread | None = None
    best: int = 0  # the best seed; its model is the saved one, unless several were averaged
    outcome: Outcome | None = None
    baseline: Outcome | None = None
    folds: tuple[FineTuned, ...] = ()  # of a cross-validation
    distillation: dict[str, Any] | None = None  # teacher and student side by side (`glassbert.finetuning.distilled`)
    soup: tuple[int, ...] = ()  # the seeds whose models were averaged

    @property
    def scores(self) -> Scores:
        """Scores of the saved model on the held-out examples, with bootstrap intervals."""
        return Scores() if self.outcome is None else self.outcome.scores

    @property
    def model(self) -> Path:
        return self.run / "model"

    @property
    def report(self) -> Path:
        return self.run / "report.html"


def finetune(
    settings: FineTuningSettings | None = None,
    run: str | Path | None = None,
    *,
    display: Display | None = None,
    **changes: Any,
) -> FineTuned:
    """Fine-tune a model; the arguments are the fields of `FineTuningSettings`.

    `train`, `dev` and `test` may also be lists, dictionaries or data frames, which are saved in the run folder.
    Otherwise nothing is written before data and model have been read and checked. With `folds` (and no `fold`) it is a
    cross-validation (`glassbert.finetuning.cross_validation`).
    """
    folder = RunFolder(run) if run is not None else new_run_folder("runs", _name(settings, changes))
    if folder.settings_file.exists():
        raise TrainingError(
            f"{folder.path} already holds a run. Resume it with: glassbert resume {shlex.quote(str(folder.path))}; "
            "or choose another folder with --run"
        )
    display = display or tuning_display()
    with _with_saved_examples(folder, changes) as given:
        settings = FineTuningSettings.from_dict(given) if settings is None else settings.replace(**given)
        if settings.folds is not None and settings.fold is None:
            from glassbert.finetuning.cross_validation import cross_validate

            return cross_validate(settings, folder.path, display=display)
        prepared = prepare(settings, progress_bar, folder.path, resumed=False)
    show_plan(prepared, display)
    with folder.locked():
        prepared.tokenizer.save(folder.path / "tokenizer")
        write_json(folder.settings_file, _receipt(prepared), sealed=True)
        return _tune(prepared, folder, display)


def resume(run: str | Path, *, display: Display | None = None) -> FineTuned | Result:
    """Resume an interrupted or killed run, pretraining or fine-tuning, from its last checkpoint.

    A forecast is resumed by `glassbert.forecasting.resume_forecast`.
    """
    if kind_of_run(run) == FORECASTING:
        raise TrainingError(f"{run} is a forecast; resume it with: glassbert resume {shlex.quote(str(run))}")
    if kind_of_run(run) != FINETUNING:
        return Trainer.resume(run, display=display).train()
    return resume_finetuning(run, display=display)


def resume_finetuning(run: str | Path, *, display: Display | None = None) -> FineTuned:
    """Resume an interrupted or killed fine-tuning. The final weights are the same as without the interruption."""
    folder = RunFolder.existing(run)
    content = folder.read_settings()
    if kind_of_run(folder.path) != FINETUNING:
        raise TrainingError(
            f"{folder.path} is not a fine-tuning run; resume it with: glassbert resume {shlex.quote(str(folder.path))}"
        )
    if (folder.path / RESULT).exists():
        raise TrainingError(f"the run {folder.path} is finished; its model is in {folder.model}")
    display = display or tuning_display()
    settings = folder.settings_of(FineTuningSettings)
    if settings.folds is not None and settings.fold is None:
        from glassbert.finetuning.cross_validation import cross_validate

        return cross_validate(settings, folder.path, display=display)
    if "column_teacher" not in content["settings"]:  # begun before there was one
        settings = settings.replace(column_teacher=0.0)
    with folder.locked():
        prepared = prepare(settings, progress_bar, folder.path)
        if prepared.fingerprint != content["fingerprint"]:
            raise TrainingError(
                f"the examples of {folder.path} have changed since the run started; restore them, or start a new run"
            )
        for change in _changed(content, versions()):
            display.say(f"The resumed run may differ from an uninterrupted one: {change}.")
        return _tune(prepared, folder, display)


def reopen(run: str | Path, *, baseline: bool = False) -> FineTuned:
    """The result of a finished run. The predictions for the held-out examples are computed again.

    `baseline`: fit the simple model again as well, if the run had one.
    """
    folder = RunFolder.existing(run)
    settings = folder.settings_of(FineTuningSettings)
    if settings.folds is not None and settings.fold is None:
        from glassbert.finetuning.cross_validation import cross_validate

        return cross_validate(settings, folder.path)
    if not (folder.path / RESULT).exists():
        raise TrainingError(
            f"{folder.path} is not finished; resume it with: glassbert resume {shlex.quote(str(folder.path))}"
        )
    result = read_json(folder.path / RESULT, TrainingError)
    prepared = prepare(settings.replace(**WITHOUT_TEACHER), progress_bar, folder.path)
    seeds = [SeedResult.from_json(one) for one in result["seeds"]]
    spread = Spread(**result["spread"]) if result["spread"] else None
    outcome = outcome_of(prepared, load(folder.model, engine=prepared.settings.engine))
    simple = fit_simple_model(prepared, NoDisplay()) if baseline and result["baseline"] else None
    return FineTuned(
        folder.path, "finished", seeds, result["metric"], spread, result["best_seed"], outcome, simple,
        distillation=result.get("distillation"), soup=tuple(result.get("soup", ())),
    )  # fmt: skip


def finetune_or_go_on(settings: FineTuningSettings, run: str | Path, *, display: Display | None = None) -> FineTuned:
    """Start the fine-tuning in folder `run`, resume it if it is unfinished, or reopen it if it is finished."""
    folder = Path(run)
    if (folder / RESULT).exists():
        return reopen(folder, baseline=settings.baseline)
    if (folder / "settings.json").exists():
        return resume_finetuning(folder, display=display)
    return finetune(settings, folder, display=display)


@contextmanager
def _with_saved_examples(folder: RunFolder, changes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings with in-memory examples replaced by files in the run folder; remove these files on errors."""
    saved = {name: folder.path / "examples" / f"{name}.jsonl" for name in IN_MEMORY}
    saved = {name: path for name, path in saved.items() if not isinstance(changes.get(name, ""), str | Path)}
    try:
        for name, path in saved.items():
            table = table_from_object(changes[name])
            with atomic_write(path) as file:
                for row in range(len(table)):
                    line = {column: values[row] for column, values in table.columns.items()}
                    file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        yield {name: str(saved.get(name, value)) if name in IN_MEMORY else value for name, value in changes.items()}
    except BaseException:
        if saved:
            shutil.rmtree(folder.path / "examples", ignore_errors=True)
            with suppress(OSError):
                folder.path.rmdir()
        raise


def _name(settings: FineTuningSettings | None, changes: dict[str, Any]) -> str:
    given = {**(settings.to_dict() if settings is not None else {}), **changes}
    train = given.get("train", "")
    return given.get("task") or (Path(train).stem if isinstance(train, str | Path) else "examples") or "finetuning"


def show_plan(prepared: Prepared, display: Display) -> None:
    """Print the findings about the data and the chosen settings."""
    settings, card = prepared.settings, prepared.card
    labels = f", {len(card.labels)} labels" if card.labels else ""
    display.say(
        f"{card.title}: {len(prepared.train):,} training examples, {len(prepared.dev):,} held-out examples; "
        f"{card.head} head{labels}, main metric {card.metric}."
    )
    display.say(CHOICES[card.chosen_on].format(**card.examples))
    display.say(
        f"Learning rate {settings.learning_rate:g}, at most {settings.epochs} epochs, "
        f"{settings.batch} examples per batch."
    )
    if card.template is not None and len(prepared.train):
        first = {name: prepared.train.table.column(name)[0] for name in card.template.columns}
        display.say(f"First table row as the model reads it: {card.template.shown(first)[:200]!r}")
        rows = card.template.rows(prepared.train.table)
        if left_out := [f"{column} ({reason})" for column, _, phrase, reason in rows if phrase == "left out"]:
            display.say(f"Columns left out: {'; '.join(left_out)}.")
    for note in prepared.notes:
        display.say(note)
    for finding in prepared.findings:
        display.say(str(finding))


def _tune(prepared: Prepared, folder: RunFolder, display: Display) -> FineTuned:
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(warnings.catch_warnings())
        # The training step detects, skips and explains an overflow itself.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="glassbert")
        seeds = SeedRuns(prepared, folder.path, display, lambda: interrupts.requested, folder)
        with display:
            results = seeds.tune()
    metric = prepared.card.metric
    if len(results) < prepared.settings.seeds:
        return FineTuned(folder.path, "interrupted", results, metric)
    without: Outcome | None = None
    if prepared.settings.compare:
        plain = FineTuningSettings.from_dict(folder.read_settings()[WITHOUT])
        display.say("The same fine-tuning without the teacher:")
        compared = finetune_or_go_on(plain, folder.path / "without-teacher", display=display)
        if compared.outcome is None:
            return FineTuned(folder.path, "interrupted", results, metric)
        without = compared.outcome
    finished = finish(prepared, seeds, results, folder, display, without)
    return FineTuned(
        folder.path, "finished", results, metric, finished.spread, finished.best, finished.outcome, finished.baseline,
        distillation=finished.distillation, soup=finished.soup,
    )  # fmt: skip


def _receipt(prepared: Prepared) -> dict[str, Any]:
    command = shlex.join(["glassbert", *sys.argv[1:]]) if sys.argv[0].endswith("glassbert") else ""
    return {
        "kind": FINETUNING,
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "settings": prepared.settings.to_dict(),
        "task": prepared.card.as_json(),
        "examples": dict(prepared.card.examples),
        "notes": prepared.notes,
        "findings": [finding.as_json() for finding in prepared.findings],
        "fingerprint": prepared.fingerprint,
        **({WITHOUT: prepared.without_teacher.to_dict()} if prepared.without_teacher is not None else {}),
        "machine": machine_facts(),
        "versions": versions(),
    }


def _changed(content: dict[str, Any], now: dict[str, str]) -> list[str]:
    before = content.get("versions", {})
    return [
        f"{name} was {before[name]} and is {now[name]}" for name in now if name in before and before[name] != now[name]
    ]


document(finetune, FineTuningSettings)
