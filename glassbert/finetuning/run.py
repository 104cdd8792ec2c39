"""Fine-tuning from beginning to end: read, prepare, tune every seed, measure, compare, save, report.

from glassbert.finetuning import finetune

tuned = finetune(model="runs/mini", train="reviews.csv", target="stars")
tuned.scores, tuned.model, tuned.report

RUN/settings.json      all that was chosen, by the user and for them
RUN/log.jsonl          losses and scores on the way
RUN/seed-0/            checkpoints while a seed is in the making, then its result
RUN/model/             the model of the best seed, with its tokenizer and task.json
RUN/predictions.jsonl  what it says about the held-out examples
RUN/result.json        scores with intervals, every seed, the baseline
RUN/report.html        what to look at
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
from glassbert.files import atomic_write, write_json
from glassbert.finetuning.display import tuning_display, watched
from glassbert.finetuning.finishing import finish
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.preparing import Prepared, prepare
from glassbert.finetuning.seeds import RESULT, SeedResult, Seeds, Spread, outcome_of
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.metrics import Scores
from glassbert.tasks import read_table
from glassbert.training.display import Display
from glassbert.training.interrupts import Interrupts
from glassbert.training.receipt import machine_facts, versions
from glassbert.training.run_folder import FINETUNING, RunFolder, kind_of_run, new_run_folder


@dataclass(frozen=True)
class FineTuned:
    """What a fine-tuning gave. An interrupted one has only `run`, `stopped` and the seeds that are finished."""

    run: Path
    stopped: str  # "finished" or "interrupted"
    seeds: list[SeedResult]
    metric: str
    spread: Spread | None = None
    best: int = 0  # the seed whose model was saved
    outcome: Outcome | None = None
    baseline: Outcome | None = None

    @property
    def scores(self) -> Scores:
        """Of the best seed on the held-out examples, with bootstrap intervals."""
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

    `train` and `dev` may also be lists, dictionaries or data frames: they are kept with the run. Else nothing is
    written before the data and the model have been read and found fit.
    """
    folder = RunFolder(run) if run is not None else new_run_folder("runs", _name(settings, changes))
    if folder.settings_file.exists():
        raise TrainingError(
            f"{folder.path} already holds a run. Go on with it: glassbert finetune --resume {folder.path}; "
            "or choose another folder with --run"
        )
    display = display or tuning_display()
    with _kept_in(folder, changes) as given:
        settings = FineTuningSettings.from_dict(given) if settings is None else settings.replace(**given)
        prepared = prepare(settings, watched)
    tell(prepared, display)
    with folder.locked():
        prepared.tokenizer.save(folder.path / "tokenizer")
        write_json(folder.settings_file, _receipt(prepared))
        return _tune(prepared, folder, display)


def resume(run: str | Path, *, display: Display | None = None) -> FineTuned:
    """Go on with a fine-tuning that was interrupted or killed, to the weights it would have had."""
    folder = RunFolder.existing(run)
    content = folder.read_settings()
    if kind_of_run(folder.path) != FINETUNING:
        raise TrainingError(f"{folder.path} is no fine-tuning; go on with it by: glassbert resume {folder.path}")
    if (folder.path / RESULT).exists():
        raise TrainingError(f"the run {folder.path} is finished, and its model is in {folder.model}")
    display = display or tuning_display()
    with folder.locked():
        settings = FineTuningSettings.from_dict(content["settings"])
        prepared = prepare(settings, watched, folder.path / "tokenizer")
        if prepared.fingerprint != content["fingerprint"]:
            raise TrainingError(
                f"the examples of {folder.path} are not those it began with; restore the files, or begin a new run"
            )
        for change in _changed(content, versions()):
            display.say(f"Not bit by bit the run it would have been: {change}.")
        return _tune(prepared, folder, display)


def reopen(run: str | Path) -> FineTuned:
    """A finished run as `finetune` gave it; the model answers the held-out examples anew."""
    folder = RunFolder.existing(run)
    content = folder.read_settings()
    try:
        result = json.loads((folder.path / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{folder.path} is not finished: go on with glassbert resume {folder.path}") from error
    prepared = prepare(FineTuningSettings.from_dict(content["settings"]), watched, folder.path / "tokenizer")
    seeds = [SeedResult(**one) for one in result["seeds"]]
    spread = Spread(**result["spread"]) if result["spread"] else None
    outcome = outcome_of(prepared, load(folder.model, engine=prepared.settings.engine))
    return FineTuned(folder.path, "finished", seeds, result["metric"], spread, result["best_seed"], outcome)


def finetune_or_go_on(settings: FineTuningSettings, run: str | Path, *, display: Display | None = None) -> FineTuned:
    """The fine-tuning in this folder: begun if there is none, gone on with if it is half made, else reopened."""
    folder = Path(run)
    if (folder / RESULT).exists():
        return reopen(folder)
    if (folder / "settings.json").exists():
        return resume(folder, display=display)
    return finetune(settings, folder, display=display)


@contextmanager
def _kept_in(folder: RunFolder, changes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings with examples from memory put into files of the run; after an error these are gone again."""
    kept = {name: folder.path / "examples" / f"{name}.jsonl" for name in ("train", "dev")}
    kept = {name: path for name, path in kept.items() if not isinstance(changes.get(name, ""), str | Path)}
    try:
        for name, path in kept.items():
            table = read_table(changes[name])
            with atomic_write(path) as file:
                for row in range(len(table)):
                    line = {column: values[row] for column, values in table.columns.items()}
                    file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        yield {
            name: str(kept.get(name, value)) if name in ("train", "dev") else value for name, value in changes.items()
        }
    except BaseException:
        if kept:
            shutil.rmtree(folder.path / "examples", ignore_errors=True)
            with suppress(OSError):
                folder.path.rmdir()
        raise


def _name(settings: FineTuningSettings | None, changes: dict[str, Any]) -> str:
    given = {**(settings.to_dict() if settings is not None else {}), **changes}
    train = given.get("train", "")
    return given.get("task") or (Path(train).stem if isinstance(train, str | Path) else "examples") or "finetuning"


def tell(prepared: Prepared, display: Display) -> None:
    """What was found in the data, and what was chosen."""
    settings, card = prepared.settings, prepared.card
    labels = f", {len(card.labels)} labels" if card.labels else ""
    display.say(
        f"{card.title}: {len(prepared.train):,} examples to learn from, {len(prepared.dev):,} to measure with; "
        f"{card.head} head{labels}, decided by {card.metric}."
    )
    display.say(
        f"Learning rate {settings.learning_rate:g}, at most {settings.epochs} times over all examples, "
        f"{settings.batch} of them a batch."
    )
    if card.template is not None and len(prepared.train):
        display.say(f"A row becomes a text: {prepared.train.texts[0][:200]!r}")
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
        # An overflow is noticed by the step, skipped and explained; NumPy need not mention it as well.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="glassbert")
        seeds = Seeds(prepared, folder.path, display, lambda: interrupts.asked)
        with display:
            results = seeds.tune()
    metric = prepared.card.metric
    if len(results) < prepared.settings.seeds:
        return FineTuned(folder.path, "interrupted", results, metric)
    ended = finish(prepared, seeds, results, folder, display)
    return FineTuned(folder.path, "finished", results, metric, ended.spread, ended.best, ended.outcome, ended.baseline)


def _receipt(prepared: Prepared) -> dict[str, Any]:
    command = shlex.join(["glassbert", *sys.argv[1:]]) if sys.argv[0].endswith("glassbert") else ""
    return {
        "kind": FINETUNING,
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "settings": prepared.settings.to_dict(),
        "task": prepared.card.as_json(),
        "examples": {"train": len(prepared.train), "dev": len(prepared.dev)},
        "notes": prepared.notes,
        "findings": [finding.as_json() for finding in prepared.findings],
        "fingerprint": prepared.fingerprint,
        "machine": machine_facts(),
        "versions": versions(),
    }


def _changed(content: dict[str, Any], now: dict[str, str]) -> list[str]:
    then = content.get("versions", {})
    return [f"{name} was {then[name]} and is {now[name]}" for name in now if name in then and then[name] != now[name]]
