"""The two ends of a run: a rehearsal that measures what the end will cost, and the end itself.

Before the first step the run is evaluated and saved once: that gives the first point of every curve, a checkpoint from
which even the youngest run can go on, and the prices that a wall-clock budget keeps in reserve.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassbert.errors import TrainingError
from glassbert.files import write_json
from glassbert.reports import figures
from glassbert.training.checkpointing import read_checkpoint
from glassbert.training.clock import Clock
from glassbert.training.history import RESULT
from glassbert.training.model_card import write_model_card
from glassbert.training.report import write_report
from glassbert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from glassbert.training.trainer import Trainer


@dataclass(frozen=True)
class Result:
    """How a run ended. `stopped` is "finished", "early" or "interrupted"; the last has no model yet."""

    run: str
    stopped: str
    steps: int
    tokens: int
    seconds: float
    loss: float | None = None
    accuracy: float | None = None
    weights: str = ""  # "last", "best" or "average"
    skipped: int = 0

    @property
    def perplexity(self) -> float | None:
        return None if self.loss is None else math.exp(min(self.loss, 100.0))

    @property
    def model(self) -> Path:
        return RunFolder(self.run).model

    @property
    def report(self) -> Path:
        return RunFolder(self.run).report


def rehearse(trainer: Trainer) -> None:
    """Evaluate and save before the first step."""
    if not trainer.leads:
        return
    trainer.evaluate()
    trainer.watcher.ask()
    trainer.save()
    if trainer.budget.kind == "minutes":
        _refuse_too_short(trainer)


def report_on_the_way(trainer: Trainer) -> None:
    """A report of the run so far, to look at and to learn what the last one will cost."""
    if not trainer.reporting.times and figures.available():
        figures.to_svg(figures.lines({"": ([0, 1], [0, 1])}))  # the first picture also pays for loading the library
    with trainer.reporting.spending(trainer.clock), trainer.machinery.costs.measuring("report"):
        trainer.log.settle()
        write_report(trainer.run)


def _refuse_too_short(trainer: Trainer) -> None:
    """An error where most of the minutes would go into evaluating and saving."""
    around = trainer.clock.elapsed + trainer.machinery.costs.of_the_end(trainer.settings)
    seconds = 60 * trainer.budget.amount
    if around > seconds / 2:
        trainer.run.undo()
        raise TrainingError(
            f"{trainer.budget.amount:g} minutes are too short: evaluating, saving and reporting take about "
            f"{around:.0f} seconds here. Give at least {math.ceil(2 * around / 6) / 10:g} minutes, or lower "
            f"--evaluation-rows"
        )


def finish(trainer: Trainer) -> Result:
    """Choose the weights, evaluate them on more rows, and write model, card and report."""
    state, run, settings = trainer.state, trainer.run, trainer.settings
    counts = {"run": str(run.path), "steps": state.step, "tokens": state.tokens, "skipped": state.skipped}
    if trainer.stopped == "interrupted" or not trainer.leads:
        return Result(stopped=trainer.stopped, seconds=trainer.clock.elapsed, **counts)  # type: ignore[arg-type]
    loss = trainer.evaluate()
    trainer.save()
    weights = _choose_weights(trainer, loss)
    costs = trainer.machinery.costs
    by_source = _by_source(trainer)
    # The last evaluation makes up for whatever took longer or shorter than expected; but it sees no fewer rows than
    # those on the way did.
    held_out = trainer.data.held_out(settings.final_evaluation_rows)
    least = min(costs.rows_on_the_way(settings), settings.final_evaluation_rows) // trainer.data.validation_rows
    found = trainer.machinery.evaluate(until(held_out, trainer.clock, costs.last_moment(settings), least))
    trainer.watcher.final(found.loss, found.accuracy, weights, by_source)
    _write_model(trainer)
    result = Result(
        stopped=trainer.stopped or "finished",
        seconds=trainer.clock.elapsed,
        loss=found.loss,
        accuracy=found.accuracy,
        weights=weights,
        **counts,  # type: ignore[arg-type]
    )
    trainer.log.settle()
    write_model_card(run, result)
    content = {**asdict(result), "perplexity": result.perplexity}
    write_report(run, content)
    write_json(run.path / RESULT, content)  # last: with it the run is finished
    return result


def until(batches: Iterator[Any], clock: Clock, moment: float, least: int = 1) -> Iterator[Any]:
    """Batches until the clock says that it is enough, but at least `least`."""
    for count, batch in enumerate(batches, 1):
        yield batch
        if count >= least and clock.elapsed >= moment:
            return


def _by_source(trainer: Trainer) -> dict[str, dict[str, float]]:
    """Held-out loss and accuracy of every source by itself: a novel is no manual."""
    rows = trainer.machinery.costs.source_rows(trainer.settings)
    found = {n: trainer.machinery.evaluate(trainer.data.held_out(rows, n)) for n in trainer.data.validation_by_source}
    return {name: {"loss": one.loss, "accuracy": one.accuracy} for name, one in found.items()}


def _choose_weights(trainer: Trainer, loss: float) -> str:
    """The moving average where there is one, else the last weights, unless an earlier checkpoint was clearly better."""
    state = trainer.state
    if trainer.machinery.average is not None:
        trainer.machinery.use_average()
        return "average"
    best = state.best_step
    if state.best_loss is None or state.best_loss >= loss or best is None or best not in trainer.run.steps():
        return "last"
    read_checkpoint(trainer.run, best, trainer.model)
    return "best"


def _write_model(trainer: Trainer) -> None:
    """Model and tokenizer in a folder of their own, beside the old place until they are complete."""
    run = trainer.run
    aside = run.path / ".model"
    shutil.rmtree(aside, ignore_errors=True)
    trainer.model.save(aside)
    trainer.data.tokenizer.save(aside)
    if run.model.exists():
        shutil.rmtree(run.model)
    aside.replace(run.model)
