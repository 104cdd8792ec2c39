"""Start and end of a run: the first evaluation and checkpoint, and the choice and writing of the final model.

Before the first step the model is evaluated and saved once. This gives the first point of every curve, a checkpoint to
resume from, and the costs that a budget in minutes reserves for the end.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassbert.errors import TrainingError
from glassbert.files import write_json
from glassbert.reports import figures
from glassbert.training.adapting.mixing import keep_general
from glassbert.training.budget import Clock
from glassbert.training.checkpointing import prune, read_checkpoint
from glassbert.training.history import RESULT
from glassbert.training.log import read_log
from glassbert.training.model_card import write_model_card
from glassbert.training.planning import receipt
from glassbert.training.report import write_report
from glassbert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from glassbert.training.trainer import Trainer


@dataclass(frozen=True)
class Result:
    """How a run ended. `stopped` is "finished", "early" or "interrupted"; an interrupted run has no final model."""

    run: str
    stopped: str
    steps: int
    tokens: int
    seconds: float
    loss: float | None = None
    accuracy: float | None = None
    weights: str = ""  # "last", "best" or "average"
    weights_step: int | None = None  # the step of these weights; of an average, its last
    weights_share: float | None = None  # of their change since the start that an adaptation kept (`adapting.mixing`)
    skipped: int = 0
    perplexity: float | None = None  # of the first objective
    parts: dict[str, dict[str, float]] = field(default_factory=dict)  # loss and accuracy by objective, of several
    plan: dict[str, Any] | None = None  # what the first steps let expect, beside what came

    @property
    def model(self) -> Path:
        return RunFolder(self.run).model

    @property
    def report(self) -> Path:
        return RunFolder(self.run).report


def evaluate_before_first_step(trainer: Trainer) -> None:
    """Evaluate and save the initial weights; raise if the budget in minutes is too short."""
    if not trainer.leads:
        return
    if trainer.model.engine.compiles:  # once and outside the measurement: no later evaluation takes as long
        rows = trainer.components.costs.evaluation_rows(trainer.settings)
        batches = trainer.data.held_out(rows, length=trainer.data.length_at(0.0))
        trainer.components.evaluate({len(batch): batch for batch in batches}.values())  # one of each shape
    trainer.evaluate()
    trainer.monitor.fill_sentence()
    trainer.save()
    if trainer.budget.kind == "minutes":
        _check_long_enough(trainer)


def write_interim_report(trainer: Trainer) -> None:
    """Write a report of the run so far; its cost is measured for the reserve."""
    if not trainer.reporting.times and figures.available():
        figures.to_svg(figures.lines({"": ([0, 1], [0, 1])}))  # import the plotting library outside the measurement
    with trainer.reporting.spending(trainer.clock), trainer.components.costs.measuring("report"):
        trainer.log.sync()
        write_report(trainer.run)


def _check_long_enough(trainer: Trainer) -> None:
    """Raise if more than half of the minutes would go into evaluating and saving."""
    overhead = trainer.clock.elapsed + trainer.components.costs.of_ending(trainer.settings)
    seconds = 60 * trainer.budget.amount
    if overhead > seconds / 2:
        trainer.run.undo()
        raise TrainingError(
            f"{trainer.budget.amount:g} minutes are too short: evaluating, saving and reporting take about "
            f"{overhead:.0f} seconds on this machine. Set --minutes to at least "
            f"{math.ceil(2 * overhead / 6) / 10:g}, or lower --evaluation-rows"
        )


def finish(trainer: Trainer) -> Result:
    """Choose the weights, evaluate them on more rows, and write model, model card and report."""
    state, run, settings = trainer.state, trainer.run, trainer.settings
    counts = {"run": str(run.path), "steps": state.step, "tokens": state.tokens, "skipped": state.skipped}
    if trainer.stopped == "interrupted" or not trainer.leads:
        return Result(stopped=trainer.stopped, seconds=trainer.clock.elapsed, **counts)  # type: ignore[arg-type]
    trainer.save()  # before the evaluation: a run that is killed from here on logs it once all the same
    loss = trainer.evaluate_once()
    prune(run, settings.keep, state.best_step)
    weights, weights_step = _choose_weights(trainer, loss)
    share = keep_general(trainer)
    costs = trainer.components.costs
    by_source = _evaluate_by_source(trainer)
    # The last evaluation absorbs errors of the time estimate, but has at least as many rows as the earlier ones.
    held_out = trainer.data.held_out(settings.final_evaluation_rows)
    least = math.ceil(
        min(costs.evaluation_rows(settings), settings.final_evaluation_rows) / trainer.data.validation_rows
    )
    batches = until_deadline(held_out, trainer.clock, costs.evaluation_deadline(settings), least)
    found = trainer.components.evaluate(batches)
    trainer.monitor.final(found, weights, weights_step, by_source)
    _write_model(trainer)
    result = Result(
        stopped=trainer.stopped or "finished",
        seconds=trainer.clock.elapsed,
        loss=found.loss,
        accuracy=found.accuracy,
        weights=weights,
        weights_step=weights_step,
        weights_share=share,
        perplexity=found.perplexity,
        parts=found.parts,
        **counts,  # type: ignore[arg-type]
    )
    trainer.log.sync()
    result = replace(result, plan=receipt.compare(read_log(run.log_file), asdict(result)))
    write_model_card(run, result)
    content = asdict(result)
    write_report(run, content)
    run.require_own()
    write_json(run.path / RESULT, content, sealed=True)  # last: a run with this file is finished
    return result


def until_deadline(batches: Iterator[Any], clock: Clock, deadline: float, least: int = 1) -> Iterator[Any]:
    """Batches until the clock reaches `deadline`, but at least `least` of them."""
    for count, batch in enumerate(batches, 1):
        yield batch
        if count >= least and clock.elapsed >= deadline:
            return


def _evaluate_by_source(trainer: Trainer) -> dict[str, dict[str, float]]:
    """Held-out loss and accuracy of each source."""
    rows = trainer.components.costs.rows_per_source(trainer.settings)
    evaluate, data = trainer.components.evaluate, trainer.data
    found = {name: evaluate(data.held_out(rows, name)) for name in data.validation_by_source}
    return {name: {"loss": one.loss, "accuracy": one.accuracy} for name, one in found.items()}


def _choose_weights(trainer: Trainer, loss: float) -> tuple[str, int]:
    """Load the weights to keep: the moving average if there is one, else the last, or the best if its loss is lower.

    The last ones also where hidden states of a teacher are learned, which no held-out loss measures: trained weights
    that go on with a teacher often have their lowest loss before the first step. Returns which these are, and their
    step.
    """
    state = trainer.state
    if trainer.components.average is not None:
        trainer.components.use_average()
        return "average", state.step
    best = state.best_step
    if "states" in trainer.components.objectives.taught:
        return "last", state.step
    if state.best_loss is None or state.best_loss >= loss or best is None or best not in trainer.run.steps():
        return "last", state.step
    read_checkpoint(trainer.run, best, trainer.model)
    return "best", best


def _write_model(trainer: Trainer) -> None:
    """Write model and tokenizer under a temporary name, then rename. A model may have another one beside it."""
    run, head = trainer.run, trainer.model.head
    run.require_own()
    temporary = run.path / ".model"
    shutil.rmtree(temporary, ignore_errors=True)
    for folder, model in head.finished(trainer.model).items():  # type: ignore[union-attr]
        model.save(temporary / folder, tokenizer=trainer.data.tokenizer)
    if run.model.exists():
        shutil.rmtree(run.model)
    temporary.replace(run.model)
