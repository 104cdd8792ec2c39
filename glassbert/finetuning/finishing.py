"""The end of a fine-tuning: the best seed's model with its card, compared, made honest, and written down."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from glassbert.errors import GlassBertError
from glassbert.files import atomic_write, write_json
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.display import watched
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.preparing import Prepared
from glassbert.finetuning.seeds import RESULT, SeedResult, Seeds, Spread
from glassbert.training.display import Display
from glassbert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from glassbert.finetuning.baseline import Baseline
    from glassbert.finetuning.calibration import Calibration

PREDICTIONS = "predictions.jsonl"


@dataclass(frozen=True)
class Ended:
    """`outcome` is that of the best seed, with the card that its model was saved with."""

    spread: Spread | None
    best: int
    outcome: Outcome
    baseline: Baseline | None


def finish(prepared: Prepared, seeds: Seeds, results: list[SeedResult], folder: RunFolder, display: Display) -> Ended:
    from glassbert.finetuning.calibration import calibrate
    from glassbert.finetuning.report.model_card import write_model_card

    best = seeds.best(results)
    outcomes = {result.seed: seeds.outcome(result.seed) for result in results}
    outcome = outcomes[best.seed]
    known = [score for one in outcomes.values() if (score := one.main.value) is not None]
    spread = Spread.of(known) if known else None
    baseline = _baseline(prepared, display) if prepared.settings.baseline else None
    calibration = calibrate(outcome, resamples=prepared.settings.resamples)
    card = calibration.on(prepared.card).replace(baseline=baseline.summary() if baseline is not None else {})
    ended = Ended(spread, best.seed, dataclasses.replace(outcome, card=card), baseline)
    _write_model(seeds, best.seed, prepared, card, folder)
    write_model_card(
        folder.model,
        ended.outcome,
        settings=prepared.settings.to_dict(),
        outcomes=outcomes,
        baseline=baseline,
        calibration=calibration,
        examples=len(prepared.train),
    )
    with atomic_write(folder.path / PREDICTIONS) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in ended.outcome.rows())
    content = result_of(prepared, results, ended, calibration)
    if prepared.settings.report:
        _write_report(prepared, folder, outcomes, ended, calibration, results, display)
    write_json(folder.path / RESULT, content)  # last: with it the run is finished
    seeds.sweep()
    return ended


def result_of(prepared: Prepared, results: list[SeedResult], ended: Ended, calibration: Calibration) -> dict[str, Any]:
    """result.json: scores of the best seed with their intervals, every seed, and the baseline."""
    seeds = [{k: v for k, v in asdict(result).items() if k != "log_position"} for result in results]
    return {
        "task": prepared.card.title,
        "head": prepared.card.head,
        "metric": prepared.card.metric,
        "examples": {"train": len(prepared.train), "dev": len(prepared.dev)},
        "scores": ended.outcome.scores.as_json(),
        "best_seed": ended.best,
        "seeds": seeds,
        "spread": asdict(ended.spread) if ended.spread is not None else None,
        "baseline": ended.baseline.summary() if ended.baseline is not None else None,
        "calibration": calibration.as_json(),
        "seconds": round(sum(result.seconds for result in results), 3),
        "examples_per_second": round(sum(r.examples for r in results) / max(sum(r.seconds for r in results), 1e-9), 1),
        "note": (
            "The epoch and the seed were chosen by these same examples, so new ones may fare a little worse."
            + (
                " Thresholds of labels are judged by those of the other half."
                if prepared.card.head == "multilabel"
                else ""
            )
        ),
    }


def _baseline(prepared: Prepared, display: Display) -> Baseline | None:
    from glassbert.finetuning.baseline import BaselineMissing, fit_baseline

    with watched("A simple model on the same examples"):
        try:
            return fit_baseline(prepared.train, prepared.dev, prepared.card, resamples=prepared.settings.resamples)
        except BaselineMissing as missing:
            text = str(missing)
    display.say(f"{text[0].upper()}{text[1:]}.")
    return None


def _write_model(seeds: Seeds, seed: int, prepared: Prepared, card: TaskCard, folder: RunFolder) -> None:
    """Model, tokenizer and card in a folder of their own, beside the old place until they are complete."""
    aside = folder.path / ".model"
    shutil.rmtree(aside, ignore_errors=True)
    seeds.model(seed).save(aside)
    prepared.tokenizer.save(aside)
    card.save(aside)
    if folder.model.exists():
        shutil.rmtree(folder.model)
    aside.replace(folder.model)


def _write_report(
    prepared: Prepared,
    folder: RunFolder,
    outcomes: dict[int, Outcome],
    ended: Ended,
    calibration: Calibration,
    results: list[SeedResult],
    display: Display,
) -> None:
    """A report that cannot be drawn is no reason to lose a model."""
    try:
        from glassbert.finetuning.report import write_report

        with watched("The report"):
            write_report(
                folder.report,
                settings=prepared.settings.to_dict(),
                outcome=ended.outcome,
                outcomes=outcomes,
                baseline=ended.baseline,
                calibration=calibration,
                findings=prepared.findings,
                notes=prepared.notes,
                seeds=results,
                log=folder.log_file,
            )
    except (GlassBertError, ImportError) as error:
        display.say(f"There is no report: {error}")
