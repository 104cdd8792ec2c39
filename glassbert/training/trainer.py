"""The trainer: trains a model from settings and a corpus, with evaluation, checkpoints, log and report.

    trainer = Trainer(preset="mini", corpus="corpora/mine", minutes=5)
    result = trainer.train()

The loop orders batches ahead, takes one, runs a step, reads the losses that are ready, and evaluates and saves at
intervals. On a GPU losses are read two steps late, because reading one waits for the device. A run with a budget in
steps or tokens is a pure function of its settings: killed at any moment and resumed, it ends with identical weights.
"""

from __future__ import annotations

import math
import shlex
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from glassbert.errors import TrainingError
from glassbert.training.budget import (
    CHECKPOINTS,
    EVALUATIONS,
    Allowance,
    Budget,
    Clock,
    Interrupts,
    Interval,
    times_in_a_run,
)
from glassbert.training.building import (
    OF_THE_TEACHER,
    TrainingComponents,
    config_of,
    flops_per_token,
    require_teacher,
)
from glassbert.training.checkpointing import (
    RunState,
    drop_later_snapshots,
    last_intact,
    prune,
    read_checkpoint,
    set_aside_after,
    snapshot_due,
    write_checkpoint,
    write_snapshot,
)
from glassbert.training.data import TrainingData, open_data
from glassbert.training.display import Display, NoDisplay, display_for
from glassbert.training.distributed import find_workers
from glassbert.training.feed import Feed, Order, threads_for
from glassbert.training.finishing import Result, evaluate_before_first_step, finish, write_interim_report
from glassbert.training.history import read_result
from glassbert.training.log import NoLog, RunLog, Sink, read_run_log, require_sinks, sinks_for
from glassbert.training.monitor import Monitor
from glassbert.training.planning import receipt
from glassbert.training.run_folder import (
    RunFolder,
    changed_since,
    check_begun,
    check_same_data,
    check_same_model,
    check_same_run,
    new_run_folder,
    run_info,
)
from glassbert.training.settings import TrainingSettings
from glassbert.training.settings_base import document
from glassbert.training.step_results import count_bad_step, stop_if_too_many
from glassbert.training.verification import CorpusVerification
from glassbert.training.workers import WorkerLost, Workers, digest_of

READ_DELAY = 2  # steps between submitting a step and reading its loss, on an engine that computes asynchronously


class Pending(NamedTuple):
    """A step whose loss has not been read yet."""

    step: int
    tokens: int
    before: float
    after: float
    learning_rate: float
    inputs: dict[str, Any]
    result: Any


class Trainer:
    """A pretraining run. `train` starts it, or continues it if the trainer was made with `Trainer.resume`.

    Trainer(preset="mini", corpus="corpus", minutes=30, run="runs/mine").train()

    `run` is the folder of the run; all other arguments are fields of `TrainingSettings`:
    """

    preset = "mini"

    def __init__(
        self,
        settings: TrainingSettings | None = None,
        run: str | Path | None = None,
        *,
        data: TrainingData | None = None,
        display: Display | None = None,
        workers: Workers | None = None,
        begun: dict[str, Any] | None = None,
        **changes: Any,
    ):
        """`begun` is the settings.json of a run that is resumed; what differs from it raises before it is built."""
        self._started = time.monotonic()
        if settings is None:
            chosen = {} if changes.get("recipe") or changes.get("family") else {"preset": self.preset}
            settings = TrainingSettings.from_dict({**chosen, **changes})
        elif changes:
            settings = settings.replace(**changes)
        require_sinks(settings)
        require_teacher(settings)
        self.settings = settings
        self.workers = workers or find_workers(settings.engine, precision=settings.precision)
        self.leads = self.workers.leads
        self.run = RunFolder(run or self.workers.broadcast(str(new_run_folder("runs", settings.preset).path)))
        if begun is not None:
            check_begun(begun, self.run, settings)
        new = self.leads and not self.run.settings_file.exists()
        self.data = data or self.workers.leader_first(lambda: open_data(settings, self.run.path, new=new))
        if begun is not None:
            check_same_data(begun, self.run, settings, self.data)
            check_same_model(begun, self.run, config_of(settings, self.data), but=OF_THE_TEACHER)
        self._started += self.data.seconds_to_build  # building a corpus does not count as training time
        self.components = TrainingComponents(settings, self.data, self.workers)
        self.model = self.components.model
        self.display = display or (display_for() if self.leads else NoDisplay())
        self.state = RunState()
        self.budget = Budget(*settings.budget)
        times = partial(times_in_a_run, *settings.budget, self.data.tokens_of(settings.length))
        self.evaluations = Interval(settings.evaluate_every, times(EVALUATIONS))
        self.checkpoints = Interval(settings.checkpoint_every, times(CHECKPOINTS))
        self.reporting = Allowance(0.01)
        self.progress = 0.0
        self._stride = 0.0
        self._inspect_next = False
        self._evaluated: tuple[int, float] | None = None  # step and loss of the last evaluation
        self.stopped = ""
        self._resuming = False
        self._planning_since: float | None = None  # seconds on the clock after the first steps
        self._pending: deque[Pending] = deque()

    @classmethod
    def resume(cls, run: str | Path, **options: Any) -> Trainer:
        """The run in a folder, at its last checkpoint (at its start if it has none)."""
        folder = RunFolder.existing(run)
        content = folder.read_settings()
        if read_result(folder) is not None:
            raise TrainingError(
                f"the run {folder.path} is finished, and its model is in {folder.model}; to train it further, "
                f"start a new run with --start-from {shlex.quote(str(folder.path))}"
            )
        trainer = cls(folder.settings_of(TrainingSettings), run, begun=content, **options)
        check_same_run(content, trainer)
        trainer._resuming = True
        return trainer

    # ---- the run ----------------------------------------------------------------------------------------------------

    def train(self) -> Result:
        """Train until the budget is used, patience ends or a stop signal arrives; write the results."""
        with self.prepared():
            while not self._over():
                self.one_step()
            self._read_losses(0)
            if self.stopped == "interrupted":
                self.save()
            else:
                self.verification.finish()
            return finish(self)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Lock the folder and load everything; inside, `one_step` may be called."""
        with ExitStack() as stack:
            stack.enter_context(self.workers)
            rows = self.data.rows_for(self.workers)
            if self.leads:
                stack.enter_context(self.run.locked())
                copies = self.settings.keep + 3 + self.settings.snapshots
                self.run.require_space(self.components.checkpoint_bytes * copies)
            self._open()
            stack.callback(self.log.close)
            self.interrupts = stack.enter_context(Interrupts())
            self.workers.stop_requested = lambda: self.interrupts.requested
            stack.enter_context(warnings.catch_warnings())
            # The step detects, skips and explains an overflow; NumPy's warning would only repeat it.
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="glassbert")
            stack.enter_context(self.display)
            self.verification = stack.enter_context(CorpusVerification(self.data.corpora if self.leads else ()))
            threads = threads_for(self.model.engine)
            self.feed = stack.enter_context(
                Feed(self.data.sources, self.state.taken, rows, threads, self.components.prepare)
            )
            if self.state.step == 0:
                evaluate_before_first_step(self)
                if self.leads and self.settings.snapshots:
                    write_snapshot(self.run, 0, self.model)
                if self.model.engine.compiles:
                    length = self.data.length_at(0.0)
                    self.components.compile_step(self.data.sources[length].batch(0, 0, rows=rows[length]))
            if self.state.begun is None:
                self.state.begun = self.clock.elapsed
            self.budget.begun = self.state.begun
            self._synchronise()
            self._ordered = [self.state.step, self.state.tokens]
            yield

    def _open(self) -> None:
        """Create the folder of a new run, or load weights, counters and log of the last checkpoint."""
        if self.leads:
            if not self._resuming:
                self.run.begin({"settings": self.settings.to_dict(), **run_info(self)})
            self.data.tokenizer.save(self.run.path / "tokenizer")  # again: the process may have been killed here
        step, problems = last_intact(self.run) if self._resuming else (None, [])
        if step is not None:
            saved = read_checkpoint(self.run, step, self.model)
            self.components.load(saved.arrays, saved.state["machinery"])
            self.state = RunState.from_dict(saved.state)
        self.workers.check_same(digest_of(self.settings.to_dict()), "other settings than worker 0")
        self.workers.check_same(
            digest_of(self.state.to_dict()),
            f"another last checkpoint than worker 0; {self.run.path} must be on a disk that all workers share",
        )
        self.workers.check_weights(self.model, "at the start")
        self.clock = Clock(self.state.seconds, started=self._started)
        self.log = RunLog(self.run.log_file, self.state.log_position, self._sinks()) if self.leads else NoLog()
        self.monitor = self._new_monitor()
        if self._resuming and self.leads:
            set_aside_after(self.run, step)
            drop_later_snapshots(self.run, self.state.step)
        if step is not None:
            for problem in problems:
                self.monitor.event(f"A damaged checkpoint was set aside: {problem}.")
            self.monitor.event(f"Resumed from step {step:,}.")
            for change in changed_since(self.run.read_settings(), self):
                self.monitor.event(f"The run will not be identical bit by bit to an uninterrupted one: {change}.")

    def _sinks(self) -> list[Sink]:
        try:
            return sinks_for(self.settings, self.run.path, self.run.name)
        except TrainingError:
            if not self._resuming:
                self.run.undo()
            raise

    def _new_monitor(self) -> Monitor:
        parameters = self.model.get_parameter_count()
        title = f"{self.settings.preset}, {parameters:,} parameters, {self.model.engine.name}: {self.run.path}"
        monitor = Monitor(
            self.model, self.data.tokenizer, self.clock, self.log, self.display, self.settings.sentence, title
        )
        monitor.restore(read_run_log(self.run.log_file))
        monitor.status.step, monitor.status.tokens = self.state.step, self.state.tokens
        teacher = self.components.objectives.teacher
        monitor.flops_per_token = flops_per_token(self.model.config, self.settings, teacher and teacher.model.config)
        monitor.matmul_rate = self.components.matmul_rate()
        return monitor

    def one_step(self) -> None:
        """Train on the next batch; then evaluate, save and log whatever is due."""
        state, monitor, components = self.state, self.monitor, self.components
        self.run.require_own(every=1.0)
        self.verification.check()
        self._order_batches()
        inputs, prepared = self.feed.take()
        before = self.progress
        length = inputs["input_ids"].shape[1]
        self._note_length(length)
        tokens = self.data.tokens_of(length)
        middle = self.budget.middle_of_step(before, state.step, state.tokens, tokens, self._stride)
        rate = components.optimizer.learning_rate = self.settings.learning_rate * components.schedule(middle)
        inspecting = components.step.detailed = self._inspect_next
        with components.costs.measuring("step"), self._save_if_worker_lost():
            result = components.step.run(prepared)
        state.step += 1
        state.tokens += tokens
        state.taken = dict(self.feed.taken)
        self._synchronise()
        self._stride = self.progress - before
        self._pending.append(Pending(state.step, state.tokens, before, self.progress, rate, inputs, result))
        self._read_losses(READ_DELAY if self.model.engine.compiles else 0)
        self._write_plan()
        if self.leads and inspecting and result.norms is not None:
            with monitor.inspecting.spending(self.clock):
                losses = {f"{name}_loss": loss for name, loss in result.losses.items()}
                monitor.inspect(inputs, result.norms, {**result.metrics, **losses})
        if self.leads and monitor.filling_due():
            monitor.fill_sentence()
        if self.leads and snapshot_due(self.settings.snapshots, before, self.progress):
            write_snapshot(self.run, state.step, self.model)  # before a checkpoint: a resumed run begins after it
        if self.evaluations.due(state.step, before, self.progress) and self.progress < 1:
            if self.leads:
                self.evaluate()
            self._check_patience()
        if self.checkpoints.due(state.step, before, self.progress) and self.progress < 1:
            self.workers.check_weights(self.model, f"at step {state.step:,}")
            self.save()
            if self.leads and self.budget.kind == "minutes" and self.reporting.permits(self.clock.elapsed):
                write_interim_report(self)

    def _order_batches(self) -> None:
        """Order batches ahead. With a budget in steps or tokens a batch depends only on the step it is for."""
        while len(self.feed) < self.feed.ahead:
            step, tokens = self._ordered
            exact = self.budget.deterministic
            progress = self.budget.progress(step, tokens, 0.0) if exact else self.progress
            length = self.data.length_at(progress)
            self.feed.order(Order(length, self.settings.mask_rate_at(progress)))
            self._ordered = [step + 1, tokens + self.data.tokens_of(length)]

    def _synchronise(self) -> None:
        """Give all workers the same progress, the same decision to inspect the next step, and any stop request."""
        self.budget.reserve = self.components.costs.of_ending(self.settings)
        progress = self.budget.progress(self.state.step, self.state.tokens, self.clock.elapsed)
        due = not self._inspect_next and self.monitor.inspection_due()  # the cost of one counts when it is done
        values = [progress, due]
        (self.progress, inspect), (interrupted,) = self.workers.decide(values, [self.interrupts.requested])
        self._inspect_next = bool(inspect)
        if interrupted:
            self.stopped = "interrupted"

    def _write_plan(self) -> None:
        """Log what the first steps let expect of the run; `finish` compares it with what came."""
        if self.state.step == receipt.FIRST:
            self._planning_since = self.clock.elapsed
        elif self._planning_since is not None and self.leads and receipt.due(self.state.step, self.progress):
            planned = receipt.predict(self, self._planning_since)
            self._planning_since = None
            if planned is not None:
                self.log.write(receipt.KIND, self.state.step, self.clock.elapsed, **planned)

    def _note_length(self, length: int) -> None:
        """Where a curriculum changes to long rows, forget the best loss: losses of short rows are not comparable."""
        if self.state.length not in (None, length):
            self.state.reset_best()
            self.monitor.event(f"Rows of {length:,} tokens from here on, held-out rows too.")

    def _check_patience(self) -> None:
        """Stop early after `patience` evaluations without a lower loss; worker 0 evaluates and decides for all."""
        if self.settings.patience is not None:
            (exhausted,), _ = self.workers.decide([self.state.evaluations_without_gain >= self.settings.patience])
            self.stopped = self.stopped or ("early" if exhausted else "")

    def _over(self) -> bool:
        return self.progress >= 1 or bool(self.stopped)

    @contextmanager
    def _save_if_worker_lost(self) -> Iterator[None]:
        """If a step fails because a worker is lost, restore the counters and save the state before the step."""
        numbers = self.components.state_numbers()
        try:
            yield
        except WorkerLost as lost:
            self.components.load_numbers(numbers)
            self.save()
            raise WorkerLost(
                f"{lost}. Step {self.state.step:,} is saved: glassbert resume {shlex.quote(str(self.run.path))}"
            ) from lost

    # ---- at intervals -----------------------------------------------------------------------------------------------

    def _read_losses(self, delay: int) -> None:
        """Read the losses of all but the last `delay` steps."""
        while len(self._pending) > delay:
            done = self._pending.popleft()
            loss, norm = float(done.result.loss), float(done.result.gradient_norm)
            if math.isfinite(loss) and math.isfinite(norm):
                self.state.skipped_in_a_row = 0
            else:
                count_bad_step(done.step, loss, norm, done.inputs, self.components.step, self.state, self.monitor)
                stop_if_too_many(self.state, self.settings, self.run)
            self.monitor.step(done.step, done.tokens, done.before, done.after, loss, norm, done.learning_rate)
            self.monitor.status.left = self.budget.seconds_left(done.after, self.clock.elapsed)

    def evaluate(self) -> float:
        """Measure and log the held-out losses; save a checkpoint if what can be compared is the lowest so far.

        Held-out rows have the length of the last step, since a curriculum has not trained longer rows yet.
        """
        self._read_losses(0)
        state, costs = self.state, self.components.costs
        rows = costs.evaluation_rows(self.settings)
        length = state.length or self.data.length_at(0.0)
        with costs.measuring("row", rows):
            found = self.components.evaluate(self.data.held_out(rows, length=length))
        self.monitor.evaluation(found, length)
        self._evaluated = (state.step, found.comparable)
        if not math.isfinite(found.comparable):
            self.monitor.event(
                f"The held-out loss after step {state.step:,} is {found.comparable}: the run diverges. Start a new run "
                f"with a lower --learning-rate, a longer --warmup or a smaller --clip."
            )
            state.evaluations_without_gain += 1
        elif state.best_loss is None or found.comparable < state.best_loss:
            state.best_loss, state.best_step, state.evaluations_without_gain = found.comparable, state.step, 0
            if state.step > 0 and self.progress < 1:
                self.save()
        else:
            state.evaluations_without_gain += 1
        return found.comparable

    def evaluate_once(self) -> float:
        """The held-out loss of this step, measured unless it just was."""
        if self._evaluated is not None and self._evaluated[0] == self.state.step:
            return self._evaluated[1]
        return self.evaluate()

    def save(self) -> None:
        """Write a checkpoint, unless this step has one or the last step was skipped."""
        self._read_losses(0)
        if not self.leads or self.state.skipped_in_a_row or self.state.step in self.run.steps():
            return
        with self.components.costs.measuring("save"):
            self.state.seconds = self.clock.elapsed
            self.state.log_position = self.log.sync()
            content = {**self.state.to_dict(), "machinery": self.components.state_numbers()}
            write_checkpoint(self.run, self.state.step, self.model, self.components.state_arrays(), content)
            prune(self.run, self.settings.keep, self.state.best_step)


class LargerBERTTrainer(Trainer):
    """A trainer with the preset "larger" and its defaults."""

    preset = "larger"


document(Trainer, TrainingSettings)
