"""Write the report of a finished fine-tuning again: predictions of the saved model, simple model and page."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

from glassbert.checkpoints import load
from glassbert.errors import TrainingError
from glassbert.finetuning.calibration import calibrate
from glassbert.finetuning.display import progress_bar
from glassbert.finetuning.finishing import fit_simple_model
from glassbert.finetuning.preparing import prepare
from glassbert.finetuning.report.page import write_report
from glassbert.finetuning.run import reopen
from glassbert.finetuning.seeds import RESULT, SeedResult, Spread, choosing_outcome, outcome_of
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.training.display import NoDisplay
from glassbert.training.run_folder import RunFolder


def write_again(run: str | Path) -> Path:
    """Write RUN/report.html. Of several seeds only the saved one has predictions; the others are in a note."""
    folder = RunFolder.existing(run)
    content = folder.read_settings()
    settings = FineTuningSettings.from_dict(content["settings"])
    try:
        result = json.loads((folder.path / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{folder.path} is not finished; resume it with: glassbert resume {shlex.quote(str(folder.path))}"
        ) from error
    if settings.folds is not None and settings.fold is None:
        return reopen(folder.path).report  # writes the report of a cross-validation
    prepared = prepare(settings, progress_bar, folder.path)
    if prepared.fingerprint != content["fingerprint"]:
        raise TrainingError(f"the examples of {folder.path} have changed since the run; restore them to report on it")
    model = load(folder.model, engine=settings.engine)
    outcome = outcome_of(prepared, model)
    calibration = calibrate(choosing_outcome(prepared, model), resamples=settings.resamples)
    if prepared.card.chosen_apart:
        calibration = calibration.measured_on(outcome, resamples=settings.resamples)
    outcome = dataclasses.replace(outcome, card=calibration.apply_to(prepared.card))
    seeds = [SeedResult.from_json(one) for one in result["seeds"]]
    notes = list(prepared.notes)
    if len(seeds) > 1 and result["spread"]:
        notes.append(f"{result['metric']} over {len(seeds)} seeds: {Spread(**result['spread'])}.")
    return write_report(
        folder.report,
        settings=prepared.settings.to_dict(),
        outcome=outcome,
        outcomes={result["best_seed"]: outcome},
        baseline=fit_simple_model(prepared, NoDisplay()) if result["baseline"] else None,
        calibration=calibration,
        findings=prepared.findings,
        notes=notes,
        seeds=seeds,
        log=folder.log_file,
        distillation=result.get("distillation"),
    )
