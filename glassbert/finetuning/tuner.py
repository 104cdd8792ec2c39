"""One fine-tuning with one seed: epochs over the examples, the best of them kept, and able to go on after any stop.

    tuner = FineTuner(model, examples, measure, settings, folder, metric=get_metric("accuracy"), log=log)
    tuned = tuner.tune()

The tuner does not care what it trains: `examples` gives a dict of inputs for the units of a batch, `measure` gives the
scores of the model as it is now. Where a run stands is a few numbers and the arrays of model and optimizer; batches,
dropout and learning rates follow from them, so that a run which was killed ends with the same weights, bit by bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from glassbert.errors import TrainingError
from glassbert.finetuning.batches import epoch_batches
from glassbert.finetuning.display import TuningStatus
from glassbert.finetuning.rates import layer_rates
from glassbert.finetuning.scoring import COMPILED_MULTIPLE
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.finetuning.tuner_state import Learnable, ParameterFile, SeedFolder, Tuned, TuningState
from glassbert.metrics import Metric, Scores
from glassbert.models.model import Model
from glassbert.training.budget import Allowance, Clock, Interval
from glassbert.training.checkpointing import prune, read_checkpoint, write_checkpoint
from glassbert.training.display import Display, NoDisplay
from glassbert.training.ema import EMA
from glassbert.training.log import NoLog, RunLog
from glassbert.training.optimizers import make_optimizer
from glassbert.training.schedules import make_schedule
from glassbert.training.step import TrainingStep
from glassbert.training.step_results import explain_bad_step

LINES = 200  # of the log, for the steps of one seed
SMOOTHING = 0.97
BAD_IN_A_ROW = 10
SAVING_SHARE = 0.03  # of the time that checkpoints between evaluations may take


class FineTuner:
    """Trains `model`, which afterwards has the weights of its best evaluation.

    measure     scores of the model now; the one that `metric` names decides
    settings    with learning_rate and epochs chosen
    folder      where checkpoints go
    asked_to_stop   looked at between two steps; where it says yes, the state is saved and `tune` returns
    """

    def __init__(
        self,
        model: Model,
        examples: Learnable,
        measure: Callable[[Model], Scores],
        settings: FineTuningSettings,
        folder: SeedFolder,
        *,
        metric: Metric,
        seed: int = 0,
        log: RunLog | None = None,
        display: Display | None = None,
        status: TuningStatus | None = None,
        asked_to_stop: Callable[[], bool] = lambda: False,
    ):
        if settings.learning_rate is None or settings.epochs is None:
            raise TrainingError("a tuner needs to be told learning_rate and epochs; `finetune` chooses them")
        self.model, self.examples, self.measure, self.settings = model, examples, measure, settings
        self.folder, self.metric, self.seed = folder, metric, seed
        self.rate, self.epochs = settings.learning_rate, settings.epochs
        self.log, self.display = log or NoLog(), display or NoDisplay()
        self.status = status or TuningStatus()
        self.status.metric, self.status.epochs, self.status.seed = metric.name, self.epochs, seed
        self.asked_to_stop = asked_to_stop
        self.lengths = examples.lengths
        self.multiple = min(COMPILED_MULTIPLE if model.engine.compiles else 1, model.config.max_position_embeddings)
        self.optimizer = make_optimizer(
            settings.optimizer,
            model,
            learning_rate=self.rate,
            weight_decay=settings.weight_decay,
            clip=settings.clip,
        )
        self.schedule = make_schedule(settings.schedule, warmup=settings.warmup)
        self.average = EMA(model, settings.ema) if settings.ema is not None else None
        rows = settings.physical_batch
        self.step = TrainingStep(model, self.optimizer, physical_batch=rows and rows * examples.group, ema=self.average)
        self.state = TuningState()
        self.evaluating = Interval(None, self.epochs * settings.evaluations)
        self.writing = Interval(None, LINES)
        self.drawing, self.saving = Allowance(0.01, least=0.2), Allowance(SAVING_SHARE, least=20.0)
        self.clock = Clock()
        self._batches: list[np.ndarray] = []
        self._losses: list[float] = []
        self._began = (0.0, 0)  # seconds and examples at the beginning of this sitting

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def tune(self) -> Tuned:
        """Train until the last epoch, until nothing gets better, or until somebody asks to stop."""
        self._resume()
        self.model.set_training(True)
        self.model.set_checkpointing(self.settings.gradient_checkpointing)
        self._began = (self.clock.elapsed, self.state.examples)
        interrupted = False
        if not self.state.stopped:
            self._open_epoch()
        while not self.state.stopped and not interrupted:
            self.one_step()
            interrupted = not self.state.stopped and self.asked_to_stop()
        if interrupted:
            self.save()
            return self._tuned("interrupted")
        self._take_best()
        self.model.set_training(False)
        return self._tuned(self.state.stopped)

    def one_step(self) -> None:
        state, before = self.state, self.progress
        units = self._batches[state.batch]
        batch: dict[str, Any] = self.examples.inputs(units, self.multiple)
        after = self._progress_at(state.batch + 1)
        self.optimizer.learning_rate = self.rate * self.schedule((before + after) / 2)
        result = self.step(**batch)
        state.step += 1
        state.batch += 1
        state.examples += len(units)
        self._note(float(result.loss), float(result.gradient_norm), batch, before, after)
        if self.evaluating.due(state.step, before, after):
            self.evaluate()
        if state.batch == len(self._batches) and not state.stopped:
            state.epoch, state.batch = state.epoch + 1, 0
            state.stopped = "finished" if state.epoch == self.epochs else ""
            if not state.stopped:
                self._open_epoch()
        if self.evaluating.due(state.step, before, after) or self.saving.permits(self.clock.elapsed):
            with self.saving.spending(self.clock):
                self.save()

    @property
    def progress(self) -> float:
        return self._progress_at(self.state.batch)

    def _progress_at(self, batch: int) -> float:
        return min(1.0, (self.state.epoch + batch / max(1, len(self._batches))) / self.epochs)

    def _open_epoch(self) -> None:
        """The batches of this epoch, and who learns in it."""
        settings = self.settings
        self._batches = epoch_batches(
            self.lengths,
            batch=settings.batch,
            batch_tokens=settings.batch_tokens,
            group=self.examples.group,
            seed=self.seed,
            epoch=self.state.epoch,
        )
        self.optimizer.rates = self._rates()

    def _rates(self) -> dict[str, float] | None:
        settings = self.settings
        chosen = (settings.layer_decay or 1.0, settings.head_factor or 1.0, settings.freeze, settings.unfreeze_every)
        if chosen == (1.0, 1.0, "none", None):
            return None
        unfrozen = None if settings.unfreeze_every is None else self.state.epoch // settings.unfreeze_every
        freeze = {"none": 0}.get(settings.freeze, settings.freeze)
        return layer_rates(
            self.model,
            decay=chosen[0],
            head_factor=chosen[1],
            freeze=int(freeze) if str(freeze).isdigit() else freeze,
            unfrozen_layers=unfrozen,
        )

    def _note(self, loss: float, norm: float, batch: dict[str, Any], before: float, after: float) -> None:
        """Log and show a step; stop where gradients are not finite again and again."""
        state, status = self.state, self.status
        status.step, status.progress, status.seconds = state.step, after, self.clock.elapsed
        status.learning_rate = self.optimizer.learning_rate
        if math.isfinite(loss) and math.isfinite(norm):
            state.skipped_in_a_row = 0
            status.note_loss(loss, SMOOTHING)
            self._losses.append(loss)
        else:
            self._note_bad_step(loss, norm, batch)
        if status.seconds - self._began[0] > 0.5:  # before that a speed would be a guess
            self._speed(after)
        if self._losses and self.writing.due(state.step, before, after):
            mean = float(np.mean(self._losses))
            self._losses.clear()
            status.curve.append(mean)
            self._write("train", loss=mean, learning_rate=status.learning_rate, examples=state.examples)
        if self.drawing.permits(status.seconds):
            with self.drawing.spending(self.clock):
                self.display.update(status)

    def _speed(self, progress: float) -> None:
        """Examples a second of this sitting, and how long the rest will take."""
        state, status = self.state, self.status
        seconds = max(status.seconds - self._began[0], 1e-9)
        status.examples_per_second = (state.examples - self._began[1]) / seconds
        total = state.examples / progress
        status.left = (total - state.examples) / max(status.examples_per_second, 1e-9)

    def _note_bad_step(self, loss: float, norm: float, batch: dict[str, Any]) -> None:
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        self.status.skipped = state.skipped
        if state.skipped == 1:
            why = explain_bad_step(self.model, batch)
            self.display.say(f"Step {state.step:,} was skipped, for it was not finite: {why}.")
        if state.skipped_in_a_row >= BAD_IN_A_ROW:
            raise TrainingError(
                f"{state.skipped_in_a_row} steps in a row had no finite gradient, so the run stops. Usually the "
                f"learning rate is too high ({self.rate:g}): begin anew with a lower --learning-rate"
            )

    # ---- now and then -----------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Measure the model (the moving average, where there is one) and remember whether it is the best so far."""
        state = self.state
        with self._averaged():
            scores = self.measure(self.model)
        value = scores[self.metric.name].value
        epoch = self._progress_at(state.batch) * self.epochs
        state.evaluations += 1
        if value is not None and (state.best is None or self.metric.better(value, state.best)):
            state.best, state.best_step, state.best_epoch = value, state.step, epoch
            state.evaluations_without_gain = 0
        else:
            state.evaluations_without_gain += 1
            if self.settings.patience and state.evaluations_without_gain >= self.settings.patience:
                state.stopped = "early"
        if value is not None:
            self.status.scores.append(value)
        self.status.best = state.best
        self._speed(epoch / self.epochs)
        self._write("evaluation", epoch=epoch, scores={name: score.value for name, score in scores.items()})
        self.display.update(self.status, last=True)

    def _averaged(self) -> Any:
        return nullcontext() if self.average is None else self.average.swapped(self.model)

    def _take_best(self) -> None:
        """The weights of the best evaluation become the model's own."""
        if self.state.best_step is not None and self.state.best_step != self.state.step:
            self._load(self.state.best_step)
        if self.average is not None:
            self.model.parameters = self.average.parameters

    def save(self) -> None:
        """Write a checkpoint of this moment, unless the last step went wrong."""
        if self.state.skipped_in_a_row:
            return
        self.state.seconds = self.clock.elapsed
        self.state.log_position = self.log.sync()
        arrays = {f"optimizer/{name}": array for name, array in self.optimizer.state_arrays().items()}
        if self.average is not None:
            arrays |= self.average.state_arrays()
        numbers = {"counters": dict(self.optimizer.state_numbers), "dropout_seed": self.model.dropout_seed}
        content = {**dataclasses.asdict(self.state), "machinery": numbers}
        write_checkpoint(self.folder, self.state.step, ParameterFile(self.model), arrays, content)
        prune(self.folder, 1, self.state.best_step)

    def _resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        steps = self.folder.steps()
        if steps:
            saved = self._load(steps[-1])
            self.state = TuningState.from_dict(saved)
            self.status.best, self.status.step = self.state.best, self.state.step
            self.display.say(f"Going on from step {steps[-1]:,}.")
        self.clock = Clock(self.state.seconds)

    def _load(self, step: int) -> dict[str, Any]:
        saved = read_checkpoint(self.folder, step, ParameterFile(self.model))
        own = {k.removeprefix("optimizer/"): a for k, a in saved.arrays.items() if k.startswith("optimizer/")}
        self.optimizer.load_state_arrays(own)
        self.optimizer.load_state_numbers(saved.state["machinery"]["counters"])
        self.model.dropout_seed = int(saved.state["machinery"]["dropout_seed"])
        if self.average is not None:
            self.average.load_state_arrays({k: a for k, a in saved.arrays.items() if k.startswith("ema/")})
        return saved.state

    def _write(self, kind: str, **values: Any) -> None:
        self.log.write(kind, self.state.step, self.clock.elapsed, seed=self.seed, progress=self.progress, **values)

    def _tuned(self, stopped: str) -> Tuned:
        state = self.state
        epochs = state.epoch + state.batch / max(1, len(self._batches)) if self._batches else float(state.epoch)
        return Tuned(stopped, state.best, state.best_epoch, epochs, state.step, state.examples, self.clock.elapsed)
