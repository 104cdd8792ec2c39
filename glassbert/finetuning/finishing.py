"""The end of a fine-tuning run: baseline, calibration, and the files of the best seed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from glassbert.errors import GlassBertError
from glassbert.files import atomic_write, write_json
from glassbert.finetuning.card import TaskCard, choice_sentence
from glassbert.finetuning.display import progress_bar
from glassbert.finetuning.distilled import compare_with_teacher
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.preparing import Prepared
from glassbert.finetuning.seeds import RESULT, SeedResult, SeedRuns, Spread, choosing_outcome, outcome_of
from glassbert.models.model import Model
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.display import Display
from glassbert.training.model_card import machine_of
from glassbert.training.run_folder import RunFolder, machine_facts

if TYPE_CHECKING:
    from glassbert.finetuning.baseline import Baseline
    from glassbert.finetuning.calibration import Calibration

PREDICTIONS = "predictions.jsonl"


@dataclass(frozen=True)
class FinishedRun:
    """`outcome` is that of the best seed, with the card of the saved model."""

    spread: Spread | None
    best: int
    outcome: Outcome
    baseline: Baseline | None
    soup: tuple[int, ...] = ()  # the seeds whose models were averaged
    distillation: dict[str, Any] | None = None  # teacher and student side by side


def finish(
    prepared: Prepared,
    seeds: SeedRuns,
    results: list[SeedResult],
    folder: RunFolder,
    display: Display,
    without_teacher: Outcome | None = None,
) -> FinishedRun:
    from glassbert.finetuning.calibration import calibrate
    from glassbert.finetuning.report.model_card import write_model_card

    best = seeds.best(results)
    outcomes = {result.seed: seeds.outcome(result.seed) for result in results}
    souped = seeds.soup(results) if prepared.settings.soup else None
    model, averaged = souped or (seeds.model(best.seed), [])
    outcome = outcome_of(prepared, model) if souped else outcomes[best.seed]
    scores = [score for one in outcomes.values() if (score := one.main.value) is not None]
    spread = Spread.of(scores) if scores else None
    baseline = fit_simple_model(prepared, display) if prepared.settings.baseline else None
    resamples = prepared.settings.resamples
    calibration = calibrate(choosing_outcome(prepared, model), resamples=resamples)
    if prepared.card.chosen_apart:
        calibration = calibration.measured_on(outcome, resamples=resamples)
    card = calibration.apply_to(prepared.card).replace(baseline=baseline.summary() if baseline is not None else {})
    outcome = dataclasses.replace(outcome, card=card)
    distillation = compare_with_teacher(prepared, model, outcome, without_teacher)
    finished = FinishedRun(spread, best.seed, outcome, baseline, tuple(averaged), distillation)
    write_model(folder, model, card, prepared.tokenizer)
    write_model_card(
        folder.model,
        finished.outcome,
        settings=prepared.settings.to_dict(),
        outcomes=outcomes,
        baseline=baseline,
        calibration=calibration,
        examples=len(prepared.train),
        machine=computed_on(model),
    )
    with atomic_write(folder.path / PREDICTIONS) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in finished.outcome.rows())
    content = result_of(prepared, results, finished, calibration)
    if prepared.settings.report:
        _write_report(prepared, folder, outcomes, finished, calibration, results, display)
    folder.require_own()
    write_json(folder.path / RESULT, content, sealed=True)  # last, because it marks the run as finished
    seeds.remove_intermediate()
    return finished


def computed_on(model: Model) -> str:
    """The accelerator or processor of a model, for its card."""
    return machine_of({"machine": machine_facts(), "engine": {"name": model.engine.name}})


def result_of(
    prepared: Prepared, results: list[SeedResult], finished: FinishedRun, calibration: Calibration
) -> dict[str, Any]:
    """The content of result.json: scores of the best seed with intervals, all seeds, and the baseline."""
    seeds = [{k: v for k, v in asdict(result).items() if k != "log_position"} for result in results]
    return {
        "task": prepared.card.title,
        "head": prepared.card.head,
        "metric": prepared.card.metric,
        "examples": dict(prepared.card.examples),
        "scores": finished.outcome.scores.as_json(),
        "best_seed": finished.best,
        "soup": list(finished.soup),
        "seeds": seeds,
        "spread": asdict(finished.spread) if finished.spread is not None else None,
        "baseline": finished.baseline.summary() if finished.baseline is not None else None,
        "calibration": calibration.as_json(),
        **({"distillation": finished.distillation} if finished.distillation is not None else {}),
        "seconds": round(sum(result.seconds for result in results), 3),
        "examples_per_second": round(sum(r.examples for r in results) / max(sum(r.seconds for r in results), 1e-9), 1),
        "note": choice_sentence(prepared.card, len(results)),
    }


def fit_simple_model(prepared: Prepared, display: Display) -> Baseline | None:
    """The baseline of a run; None, with a message, if there is none."""
    from glassbert.finetuning.baseline import BaselineMissing, fit_baseline

    with progress_bar("Fitting the baseline"):
        try:
            return fit_baseline(prepared.train, prepared.dev, prepared.card, resamples=prepared.settings.resamples)
        except BaselineMissing as missing:
            text = str(missing)
    display.say(f"{text[0].upper()}{text[1:]}.")
    return None


def write_model(folder: RunFolder, model: Model, card: TaskCard, tokenizer: Tokenizer | None = None) -> None:
    """Write model, card and tokenizer to a temporary folder, then move it to `folder.model`."""
    folder.require_own()
    temporary = folder.path / ".model"
    shutil.rmtree(temporary, ignore_errors=True)
    model.save(temporary, tokenizer=tokenizer)
    card.save(temporary)
    if folder.model.exists():
        shutil.rmtree(folder.model)
    temporary.replace(folder.model)


def _write_report(
    prepared: Prepared,
    folder: RunFolder,
    outcomes: dict[int, Outcome],
    finished: FinishedRun,
    calibration: Calibration,
    results: list[SeedResult],
    display: Display,
) -> None:
    """Write report.html. An error in the report is displayed and does not end the run."""
    try:
        from glassbert.finetuning.report import write_report

        with progress_bar("Writing the report"):
            write_report(
                folder.report,
                settings=prepared.settings.to_dict(),
                outcome=finished.outcome,
                outcomes=outcomes,
                baseline=finished.baseline,
                calibration=calibration,
                findings=prepared.findings,
                notes=prepared.notes,
                seeds=results,
                log=folder.log_file,
                distillation=finished.distillation,
            )
    except (GlassBertError, ImportError) as error:
        display.say(f"The report could not be written: {error}")
