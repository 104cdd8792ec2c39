"""`FineTuner`: fine-tuning with one seed. It trains for epochs, keeps the best weights and resumes from checkpoints.

    tuner = FineTuner(model, examples, measure, settings, folder, metric=get_metric("accuracy"), log=log)
    result = tuner.tune()

The tuner works with any model: `examples` gives the inputs of a batch as a dict, `measure` computes the scores of the
current model. Of two evaluations with the same score, the one with the lower loss is better. At the end the weights of
the best evaluations are averaged, one after the other, as long as the average scores better.

A checkpoint holds a few counters and the arrays of model and optimizer. Batches, dropout and learning rates are
functions of these, so a resumed run ends with bit-identical weights.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from glassbert.errors import TrainingError
from glassbert.files import CHECKSUMS, verify_checksums, write_checksums
from glassbert.finetuning.averaging import Measured, average_greedily, measured
from glassbert.finetuning.display import TuningStatus
from glassbert.finetuning.rates import NUMBERS, layer_rates
from glassbert.finetuning.scoring import COMPILED_MULTIPLE
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.metrics import Metric, Scores
from glassbert.models.model import Model
from glassbert.text.buckets import batches_by_length
from glassbert.training.budget import Allowance, Clock, Interval
from glassbert.training.checkpointing import last_intact, prune, read_checkpoint, set_aside_after, write_checkpoint
from glassbert.training.display import Display, NoDisplay
from glassbert.training.ema import EMA
from glassbert.training.log import NoLog, RunLog
from glassbert.training.objectives import Objectives
from glassbert.training.optimizers import make_optimizer
from glassbert.training.optimizers.base import check_fit
from glassbert.training.run_folder import RunFolder
from glassbert.training.schedules import make_schedule
from glassbert.training.step import TrainingStep
from glassbert.training.step_results import explain_bad_step

WEIGHTS = "weights.safetensors"
KEPT = 2  # checkpoints; if the last one is damaged, the one before it is used
AVERAGE = 3  # evaluations whose weights may be averaged
LOG_LINES = 200  # log lines for the training steps of one seed
SMOOTHING = 0.97
MAX_SKIPPED_IN_A_ROW = 10
SAVING_SHARE = 0.03  # share of the time that checkpoints between evaluations may take


class TrainingExamples(Protocol):
    """Training examples: units with a length. `inputs` returns a batch of units as a dict of arrays."""

    @property
    def lengths(self) -> np.ndarray: ...

    @property
    def group(self) -> int: ...

    def inputs(self, units: np.ndarray, multiple: int = 1) -> dict[str, np.ndarray]: ...


@dataclass
class TuningState:
    """Counters of the training of one seed, stored in every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # index of the next batch in this epoch
    examples: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: float = 0.0
    top: list[dict[str, float]] = field(default_factory=list)  # the best evaluations: step, epoch, score, loss
    evaluations: int = 0
    evaluations_without_gain: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    stopped: str = ""  # "finished" or "early"; empty during training
    log_position: int = 0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TuningState:
        try:
            return cls(**{f.name: values[f.name] for f in dataclasses.fields(cls)})
        except (KeyError, TypeError) as error:
            raise TrainingError(f"the state of the checkpoint is incomplete: {error}") from error


class TuningResult(NamedTuple):
    """Result of one seed. `stopped` is "finished", "early" or "interrupted"."""

    stopped: str
    best: float | None
    epoch: float  # of the best weights
    averaged: tuple[float, ...]  # the epochs whose weights were averaged; empty: none
    epochs: float  # trained
    steps: int
    examples: int
    seconds: float
    loss: float | None = None  # of the best weights


class SeedFolder(RunFolder):
    """The folder of a run, with the checkpoints of one seed in RUN/seed-N."""

    def __init__(self, path: str | Path, seed: int = 0):
        super().__init__(path)
        self.checkpoints = self.path / f"seed-{seed}"


class ParameterFile:
    """Saves and loads the parameters of any model under their GlassBERT names."""

    def __init__(self, model: Model):
        self.model = model

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        to_numpy = self.model.engine.to_numpy
        arrays = {name: np.ascontiguousarray(to_numpy(array)) for name, array in self.model.parameters.items()}
        (folder / CHECKSUMS).unlink(missing_ok=True)
        save_file(arrays, folder / WEIGHTS)
        write_checksums(folder, (WEIGHTS,))

    @staticmethod
    def read(folder: Path) -> dict[str, np.ndarray]:
        """The saved arrays by name, verified."""
        verify_checksums(folder, TrainingError, (WEIGHTS,))
        try:
            return load_file(folder / WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise TrainingError(f"{folder / WEIGHTS} cannot be read: {error}") from error

    def load_checkpoint(self, folder: Path) -> None:
        arrays = self.read(folder)
        wanted = {name: tuple(array.shape) for name, array in self.model.parameters.items()}
        check_fit("the checkpoint", wanted, arrays)
        for name in wanted:
            self.model.parameters[name] = self.model.engine.array(arrays[name])


def epoch_batches(
    lengths: np.ndarray, *, batch: int, batch_tokens: int, group: int = 1, seed: int = 0, epoch: int = 0
) -> list[np.ndarray]:
    """The units of every batch in an epoch: a pure function of (lengths, seed, epoch), so that runs can be resumed.

    `lengths` are those of units with `group` rows each. Units of similar length share a batch of at most `batch` units
    and at most `batch_tokens` tokens including padding.
    """
    budget = max(batch_tokens // group, int(lengths.max(initial=1)))
    return batches_by_length(lengths, budget, batch, seed, epoch)


class FineTuner:
    """Trains `model`. Afterwards the model has the weights of its best evaluation.

    measure      returns the scores of the current model; the score named by `metric` selects the best weights
    settings     with learning_rate and epochs set
    folder       for checkpoints
    should_stop  called after every step; if it returns True, the state is saved and `tune` returns
    choose       False: scores choose nothing, and the weights of the last step are kept
    objective    what is trained on; by default the loss of the head
    """

    def __init__(
        self,
        model: Model,
        examples: TrainingExamples,
        measure: Callable[[Model], Scores],
        settings: FineTuningSettings,
        folder: SeedFolder,
        *,
        metric: Metric,
        seed: int = 0,
        log: RunLog | None = None,
        display: Display | None = None,
        status: TuningStatus | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        choose: bool = True,
        objective: Objectives | None = None,
    ):
        if settings.learning_rate is None or settings.epochs is None:
            raise TrainingError("FineTuner needs learning_rate and epochs in its settings; `finetune` sets defaults")
        self.model, self.examples, self.measure, self.settings = model, examples, measure, settings
        self.folder, self.metric, self.seed = folder, metric, seed
        self.rate, self.epochs = settings.learning_rate, settings.epochs
        self.log, self.display = log or NoLog(), display or NoDisplay()
        self.status = status or TuningStatus()
        self.status.metric, self.status.epochs, self.status.seed = metric.name, self.epochs, seed
        self.should_stop, self.choose = should_stop, choose
        self.lengths = examples.lengths
        self.multiple = min(COMPILED_MULTIPLE if model.engine.compiles else 1, model.config.max_length)
        self.optimizer = make_optimizer(
            settings.optimizer,
            model,
            learning_rate=self.rate,
            weight_decay=settings.weight_decay,
            clip=settings.clip,
        )
        self.schedule = make_schedule(settings.schedule, warmup=settings.warmup)
        self.ema = EMA(model, settings.ema) if settings.ema is not None else None
        rows = settings.physical_batch
        self.step = TrainingStep(
            model, self.optimizer, objective=objective, physical_batch=rows and rows * examples.group, ema=self.ema
        )
        self.state = TuningState()
        self.evaluation_interval = Interval(None, self.epochs * settings.evaluations)
        self.log_interval = Interval(None, LOG_LINES)
        self.display_allowance, self.save_allowance = Allowance(0.01, least=0.2), Allowance(SAVING_SHARE, least=20.0)
        self.clock = Clock()
        self._batches: list[np.ndarray] = []
        self._losses: list[float] = []
        self.best_loss: float | None = None
        self._session_start = (0.0, 0)  # seconds and examples at the start or resume

    # ---- training loop ----------------------------------------------------------------------------------------------

    def tune(self) -> TuningResult:
        """Train until the last epoch, until patience runs out, or until `should_stop` returns True."""
        self._resume()
        self.model.set_training(True)
        self.model.set_checkpointing(self.settings.gradient_checkpointing)
        self._session_start = (self.clock.elapsed, self.state.examples)
        interrupted = False
        if not self.state.stopped:
            self._start_epoch()
        while not self.state.stopped and not interrupted:
            self.one_step()
            interrupted = not self.state.stopped and self.should_stop()
        if interrupted:
            self.save()
            return self._result("interrupted")
        self.model.set_training(False)
        return self._result(self.state.stopped, self._restore_best())

    def one_step(self) -> None:
        """Train on one batch; evaluate, start the next epoch and save a checkpoint if due."""
        self.folder.require_own(every=1.0)
        state, before = self.state, self.progress
        units = self._batches[state.batch]
        batch: dict[str, Any] = self.examples.inputs(units, self.multiple)
        if self.settings.token_dropout:
            batch["attention_mask"] = self._hide_tokens(batch["attention_mask"])
        after = self._progress_at(state.batch + 1)
        self.optimizer.learning_rate = self.rate * self.schedule((before + after) / 2)
        result = self.step(**batch)
        state.step += 1
        state.batch += 1
        state.examples += len(units)
        self._log_step(float(result.loss), float(result.gradient_norm), batch, before, after)
        if self.evaluation_interval.due(state.step, before, after):
            self.evaluate()
        if state.batch == len(self._batches) and not state.stopped:
            state.epoch, state.batch = state.epoch + 1, 0
            state.stopped = "finished" if state.epoch == self.epochs else ""
            if not state.stopped:
                self._start_epoch()
        if self.evaluation_interval.due(state.step, before, after) or self.save_allowance.permits(self.clock.elapsed):
            with self.save_allowance.spending(self.clock):
                self.save()

    def _hide_tokens(self, mask: np.ndarray) -> np.ndarray:
        """The mask [B, T] without a random share of the tokens; the first one of a row stays."""
        drawn = np.random.default_rng([self.seed, self.state.step]).random(mask.shape)
        hidden = drawn < (self.settings.token_dropout or 0.0)
        hidden[:, 0] = False
        return np.where(hidden, 0, mask).astype(mask.dtype)

    @property
    def progress(self) -> float:
        return self._progress_at(self.state.batch)

    def _progress_at(self, batch: int) -> float:
        return min(1.0, (self.state.epoch + batch / max(1, len(self._batches))) / self.epochs)

    def _start_epoch(self) -> None:
        """Compute the batches and the learning rate factors of this epoch."""
        settings = self.settings
        self._batches = epoch_batches(
            self.lengths,
            batch=settings.batch,
            batch_tokens=settings.batch_tokens,
            group=self.examples.group,
            seed=self.seed,
            epoch=self.state.epoch,
        )
        self.optimizer.rates = self._rate_factors()

    def _rate_factors(self) -> dict[str, float] | None:
        settings = self.settings
        chosen = (settings.layer_decay or 1.0, settings.head_factor or 1.0, settings.freeze, settings.unfreeze_every)
        if chosen == (1.0, 1.0, "none", None) and NUMBERS not in self.model.layout.shapes:
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

    def _log_step(self, loss: float, norm: float, batch: dict[str, Any], before: float, after: float) -> None:
        """Log and display a step. Raises after `MAX_SKIPPED_IN_A_ROW` steps with non-finite gradients."""
        state, status = self.state, self.status
        status.step, status.progress, status.seconds = state.step, after, self.clock.elapsed
        status.learning_rate = self.optimizer.learning_rate
        if math.isfinite(loss) and math.isfinite(norm):
            state.skipped_in_a_row = 0
            status.update_loss(loss, SMOOTHING)
            self._losses.append(loss)
        else:
            self._skip_bad_step(batch)
        if status.seconds - self._session_start[0] > 0.5:  # a shorter measurement is too noisy
            self._update_speed(after)
        if self._losses and self.log_interval.due(state.step, before, after):
            mean = float(np.mean(self._losses))
            self._losses.clear()
            status.curve.append(mean)
            self._write("train", loss=mean, learning_rate=status.learning_rate, examples=state.examples)
        if self.display_allowance.permits(status.seconds):
            with self.display_allowance.spending(self.clock):
                self.display.update(status)

    def _update_speed(self, progress: float) -> None:
        """Update examples per second since this start or resume, and the remaining time."""
        state, status = self.state, self.status
        seconds = max(status.seconds - self._session_start[0], 1e-9)
        status.examples_per_second = (state.examples - self._session_start[1]) / seconds
        total = state.examples / progress
        status.left = (total - state.examples) / max(status.examples_per_second, 1e-9)

    def _skip_bad_step(self, batch: dict[str, Any]) -> None:
        """Count a step that `TrainingStep` skipped, and explain the first one."""
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        self.status.skipped = state.skipped
        if state.skipped == 1:
            why = explain_bad_step(self.model, batch, self.step)
            self.display.say(f"Step {state.step:,} was skipped because its loss or gradient is not finite: {why}.")
        if state.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise TrainingError(
                f"{state.skipped_in_a_row} steps in a row had no finite gradient. The learning rate "
                f"({self.rate:g}) is probably too high: start a new run with a lower --learning-rate"
            )

    # ---- evaluation and checkpoints --------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Score the model (its moving average, if there is one) and record whether it is the best so far."""
        state = self.state
        with self._ema_weights():
            scores = self.measure(self.model)
        found = measured(scores, self.metric)
        value = None if found is None else found.score
        epoch = self._progress_at(state.batch) * self.epochs
        state.evaluations += 1
        rank = self._enter_top(found, epoch) if self.choose else 0
        if found is not None and rank == 0:
            state.best, state.best_epoch = found.score, epoch
            state.evaluations_without_gain = 0
        else:
            state.evaluations_without_gain += 1
            if self.settings.patience and state.evaluations_without_gain >= self.settings.patience:
                state.stopped = "early"
        if value is not None:
            self.status.scores.append(value)
        self.status.best = state.best
        self._update_speed(epoch / self.epochs)
        self._write("evaluation", epoch=epoch, scores={name: score.value for name, score in scores.items()})
        self.display.update(self.status, last=True)

    def _ema_weights(self) -> Any:
        return nullcontext() if self.ema is None else self.ema.swapped(self.model)

    def _enter_top(self, found: Measured | None, epoch: float) -> int | None:
        """Keep the weights of this evaluation if it is one of the best; returns its rank among them, from 0."""
        state, kept = self.state, self.settings.average or AVERAGE
        if found is None:
            return None
        rank = 0
        while rank < len(state.top) and not found.better(Measured.of_state(state.top[rank]), self.metric):
            rank += 1
        if rank >= kept:
            return None
        with self._ema_weights():
            ParameterFile(self.model).save(self._top_folder(state.step))
        loss = None if math.isinf(found.loss) else found.loss
        state.top.insert(rank, {"step": state.step, "epoch": epoch, "score": found.score, "loss": loss})  # type: ignore[dict-item]
        for left_out in state.top[kept:]:
            shutil.rmtree(self._top_folder(int(left_out["step"])), ignore_errors=True)
        del state.top[kept:]
        return rank

    def _top_folder(self, step: int) -> Path:
        return self.folder.checkpoints / f"top-step-{step:08d}"

    def _restore_best(self) -> tuple[float, ...]:
        """Load the weights of the best evaluation, or the average of several; returns the epochs of the latter."""
        top = self.state.top
        if not top:
            if self.ema is not None:
                self.model.parameters = self.ema.parameters
            return ()
        candidates = [ParameterFile.read(self._top_folder(int(one["step"]))) for one in top]

        def measure(weights: dict[str, np.ndarray]) -> Measured | None:
            self._set_weights(weights)
            return measured(self.measure(self.model), self.metric)

        weights, used, best = average_greedily(candidates, Measured.of_state(top[0]), measure, self.metric)
        self._set_weights(weights)
        self.state.best = best.score
        self.best_loss = None if math.isinf(best.loss) else best.loss
        return tuple(top[index]["epoch"] for index in used) if len(used) > 1 else ()

    def _set_weights(self, weights: dict[str, np.ndarray]) -> None:
        for name, array in weights.items():
            self.model.parameters[name] = self.model.engine.array(array)

    def save(self) -> None:
        """Write a checkpoint, unless the last step was skipped."""
        if self.state.skipped_in_a_row:
            return
        self.state.seconds = self.clock.elapsed
        self.state.log_position = self.log.sync()
        arrays = {f"optimizer/{name}": array for name, array in self.optimizer.state_arrays().items()}
        if self.ema is not None:
            arrays |= self.ema.state_arrays()
        numbers = {"counters": dict(self.optimizer.state_numbers), "dropout_seed": self.model.dropout_seed}
        content = {**dataclasses.asdict(self.state), "machinery": numbers}
        write_checkpoint(self.folder, self.state.step, ParameterFile(self.model), arrays, content)
        prune(self.folder, KEPT, None)

    def _resume(self) -> None:
        """Load the last checkpoint, if there is one."""
        step, problems = last_intact(self.folder)
        for problem in problems:
            self.display.say(f"A damaged checkpoint was set aside: {problem}.")
        set_aside_after(self.folder, step)
        if step is not None:
            saved = self._load(step)
            self.state = TuningState.from_dict(saved)
            self._drop_missing_top()
            self.status.best, self.status.step = self.state.best, self.state.step
            self.display.say(f"Resuming from step {step:,}.")
        self.clock = Clock(self.state.seconds)

    def _drop_missing_top(self) -> None:
        """Forget evaluations whose weights a later checkpoint, which was damaged, had replaced."""
        missing = [one for one in self.state.top if not self._top_folder(int(one["step"])).is_dir()]
        if missing:
            self.state.top = [one for one in self.state.top if one not in missing]
            steps = ", ".join(f"{int(one['step']):,}" for one in missing)
            self.display.say(f"The weights of the evaluation after step {steps} are lost; they cannot be chosen again.")

    def _load(self, step: int) -> dict[str, Any]:
        saved = read_checkpoint(self.folder, step, ParameterFile(self.model))
        own = {k.removeprefix("optimizer/"): a for k, a in saved.arrays.items() if k.startswith("optimizer/")}
        self.optimizer.load_state_arrays(own)
        self.optimizer.load_state_numbers(saved.state["machinery"]["counters"])
        self.model.dropout_seed = int(saved.state["machinery"]["dropout_seed"])
        if self.ema is not None:
            self.ema.load_state_arrays({k: a for k, a in saved.arrays.items() if k.startswith("ema/")})
        return saved.state

    def _write(self, kind: str, **values: Any) -> None:
        self.log.write(kind, self.state.step, self.clock.elapsed, seed=self.seed, progress=self.progress, **values)

    def _result(self, stopped: str, averaged: tuple[float, ...] = ()) -> TuningResult:
        state = self.state
        epochs = state.epoch + state.batch / max(1, len(self._batches)) if self._batches else float(state.epoch)
        return TuningResult(
            stopped, state.best, state.best_epoch, averaged, epochs, state.step, state.examples, self.clock.elapsed,
            self.best_loss,
        )  # fmt: skip
