"""Cross-validation: every example is held out once, so that all rows of a small table count in the scores.

    tuned = finetune(model="runs/mini", task="titanic", data="data", folds=5)
    tuned.scores       over all examples, each predicted by a model that did not see it
    tuned.spread       mean and standard deviation over the folds
    tuned.folds        the runs of the folds
    tuned.model        a model trained on all examples but a tenth, or a twentieth where no epoch is chosen

RUN/fold-0, RUN/fold-1, ...   the runs of the folds: finished ones are reopened, unfinished ones are resumed
RUN/final                     the run of the saved model
RUN/model, report.html, predictions.jsonl, result.json        as in every run
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.errors import TrainingError
from glassbert.files import atomic_write, write_json
from glassbert.finetuning.card import TaskCard, choice_sentence
from glassbert.finetuning.finishing import PREDICTIONS, computed_on, write_model
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.run import FineTuned, finetune_or_go_on
from glassbert.finetuning.scoring import compute_scores
from glassbert.finetuning.seeds import RESULT, Spread
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.tasks import Table, TaskData
from glassbert.text.loading import find_tokenizer
from glassbert.training.display import Display
from glassbert.training.run_folder import FINETUNING, RunFolder, machine_facts, new_run_folder, versions

FINAL = "final"
FEW_HELD_OUT = 0.05


def cross_validate(
    settings: FineTuningSettings, run: str | Path | None = None, *, display: Display | None = None
) -> FineTuned:
    """Fine-tune and evaluate on every fold, then fine-tune the model that is saved. A second call goes on."""
    if settings.folds is None:
        raise TrainingError("cross-validation needs the number of folds, for example folds=5")
    name = settings.task or Path(settings.train).stem
    folder = RunFolder(run) if run is not None else new_run_folder("runs", f"{name}-folds")
    found: list[FineTuned] = []
    for fold in range(settings.folds):
        one = finetune_or_go_on(settings.replace(fold=fold), folder.path / f"fold-{fold}", display=display)
        found.append(one)
        if not folder.settings_file.exists():  # not before the first fold has read its files
            write_json(folder.settings_file, _receipt(settings), sealed=True)
        if one.outcome is None:
            return FineTuned(folder.path, "interrupted", [], one.metric, folds=tuple(found))
    assert found[0].outcome is not None
    final_settings = _final_settings(settings, found[0].outcome.card.chosen_on)
    final = finetune_or_go_on(final_settings, folder.path / FINAL, display=display)
    if final.outcome is None:
        return FineTuned(folder.path, "interrupted", [], final.metric, folds=tuple(found))
    return _finish(settings, folder, found, final)


def _final_settings(settings: FineTuningSettings, chosen_on: str) -> FineTuningSettings:
    """The examples that are held out choose the epoch, if the folds chose one; nothing else is reported about them."""
    last = chosen_on == "nothing"
    return settings.replace(
        folds=None,
        fold=None,
        choose="last" if last else "reported",
        held_out=min(settings.held_out, FEW_HELD_OUT) if last else settings.held_out,
        inner=None,
        baseline=False,
        report=False,
    )


def _finish(settings: FineTuningSettings, folder: RunFolder, found: Sequence[FineTuned], final: FineTuned) -> FineTuned:
    from glassbert.finetuning.calibration import calibrate

    outcomes = [one.outcome for one in found if one.outcome is not None]
    assert final.outcome is not None
    counts = {
        "train": final.outcome.card.examples["train"],
        "choice": min(one.card.examples["choice"] for one in outcomes),
        "reported": sum(map(len, outcomes)),
    }
    card = outcomes[0].card.uncalibrated.replace(examples=counts)
    outcome = _pooled(outcomes, card, settings.resamples)
    # Thresholds and calibration of the saved model come from predictions of the folds for unseen examples.
    calibration = calibrate(outcome, resamples=settings.resamples, bias=False)
    baseline = _pooled_baseline(found, card, settings.resamples)
    card = calibration.apply_to(card).replace(baseline=baseline.summary() if baseline is not None else {})
    outcome = dataclasses.replace(outcome, card=card)
    values = [value for one in outcomes if (value := one.main.value) is not None]
    spread = Spread.of(values) if values else None
    model = load(final.model, engine=settings.engine)
    write_model(folder, model, card, find_tokenizer(final.model))
    with atomic_write(folder.path / PREDICTIONS) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in outcome.rows())
    _write_report(settings, folder, outcome, outcomes, baseline, calibration, computed_on(model))
    content = {
        "task": card.title,
        "head": card.head,
        "metric": card.metric,
        "examples": counts,
        "scores": outcome.scores.as_json(),
        "spread": asdict(spread) if spread is not None else None,
        "folds": [one.scores.as_json() for one in found],
        "baseline": baseline.summary() if baseline is not None else None,
        "calibration": calibration.as_json(),
        "note": choice_sentence(card),
    }
    write_json(folder.path / RESULT, content, sealed=True)  # last, because it marks the run as finished
    return FineTuned(
        folder.path, "finished", final.seeds, card.metric, spread, final.best, outcome, baseline, tuple(found)
    )


def _pooled(outcomes: Sequence[Outcome], card: TaskCard, resamples: int) -> Outcome:
    """The outcomes of all folds as one."""
    truth = None if outcomes[0].truth is None else _joined([one.truth for one in outcomes])
    outputs = _joined([one.outputs for one in outcomes])
    scores = compute_scores(outputs, truth, card, resamples=resamples)
    return Outcome(card, _joined_data([one.data for one in outcomes]), truth, outputs, scores)


def _pooled_baseline(found: Sequence[FineTuned], card: TaskCard, resamples: int) -> Any:
    from glassbert.finetuning.baseline import Baseline

    baselines = [one.baseline for one in found]
    if not all(isinstance(one, Baseline) for one in baselines):
        return None
    pooled = _pooled(baselines, card, resamples)  # type: ignore[arg-type]
    names = list(dict.fromkeys(getattr(one, "name", "") for one in baselines))
    seconds = sum(getattr(one, "seconds", 0.0) for one in baselines)
    name = names[0] if len(names) == 1 else "the best simple model of each fold"
    return Baseline(card, pooled.data, pooled.truth, pooled.outputs, pooled.scores, name, seconds)


def _write_report(
    settings: FineTuningSettings,
    folder: RunFolder,
    outcome: Outcome,
    outcomes: Sequence[Outcome],
    baseline: Any,
    calibration: Any,
    machine: str,
) -> None:
    from glassbert.finetuning.report import write_report
    from glassbert.finetuning.report.model_card import write_model_card

    by_fold = dict(enumerate(outcomes))
    shared: Mapping[str, Any] = {"settings": settings.to_dict(), "baseline": baseline, "calibration": calibration}
    write_model_card(folder.model, outcome, examples=outcome.card.examples["train"], machine=machine, **shared)
    if settings.report:
        notes = [
            f"Scores by cross-validation: each of the {len(outcome):,} examples was predicted by one of "
            f"{len(outcomes)} models that did not see it. The saved model was trained on "
            f"{outcome.card.examples['train']:,} of them."
        ]
        write_report(folder.report, outcome=outcome, outcomes=by_fold, notes=notes, unit="fold", **shared)


def _receipt(settings: FineTuningSettings) -> dict[str, Any]:
    command = shlex.join(["glassbert", *sys.argv[1:]]) if sys.argv[0].endswith("glassbert") else ""
    return {
        "kind": FINETUNING,
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "settings": settings.to_dict(),
        "machine": machine_facts(),
        "versions": versions(),
    }


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return [one for part in parts for one in part]


def _joined_data(parts: Sequence[TaskData]) -> TaskData:
    """The examples of all parts, in their order."""
    first = parts[0]
    lists = {
        name: _joined([getattr(part, name) for part in parts])
        for name in ("texts", "pairs", "words", "targets")
        if getattr(first, name) is not None
    }
    tables = [part.table for part in parts]
    columns = {name: _joined([table.columns[name] for table in tables]) for name in first.table.columns}
    lines = [line for table in tables for line in table.lines]
    return dataclasses.replace(first, table=Table(columns, first.source, lines, first.table.unit), **lists)
