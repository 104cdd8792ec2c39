"""The trainer: from settings and a corpus to a trained model, watched, saved and able to go on.

    trainer = Trainer(preset="mini", corpus="corpora/mine", minutes=5)
    result = trainer.train()

The loop is short: order batches ahead, take one, make a step, read the results that are ready, and now and then
evaluate and save. Results are read late, because on a GPU asking for a loss means waiting for it. A run with a budget
in steps or tokens is a pure function of its settings: killed at any moment and resumed it ends with the same weights,
bit by bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from glassbert.errors import TrainingError
from glassbert.training.bad_steps import note_bad_step, stop_if_too_many
from glassbert.training.building import Machinery, flops_per_token
from glassbert.training.checkpointing import prune, read_checkpoint, write_checkpoint
from glassbert.training.clock import Allowance, Budget, Clock, Pace, times_in_a_run
from glassbert.training.data import TrainingData, open_data
from glassbert.training.display import Display, NoDisplay, display_for
from glassbert.training.distributed import find_workers
from glassbert.training.feed import Feed, Order, threads_for
from glassbert.training.finishing import Result, finish, rehearse, report_on_the_way
from glassbert.training.history import read_result
from glassbert.training.interrupts import Interrupts
from glassbert.training.log import NoLog, RunLog, Sink, read_log
from glassbert.training.receipt import changed_since, check_same_run, receipt
from glassbert.training.run_folder import RunFolder, new_run_folder
from glassbert.training.settings import TrainingSettings
from glassbert.training.sinks import require_sinks, sinks_for
from glassbert.training.snapshots import drop_later_snapshots, snapshot_due, write_snapshot
from glassbert.training.state import RunState
from glassbert.training.watching import Watcher
from glassbert.training.workers import WorkerLost, Workers, digest_of

LATE = 2  # steps between submitting a step and reading its loss, on an engine that works behind our back
EVALUATIONS, CHECKPOINTS = 20, 10  # in a run that does not say otherwise


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
    """A run. `train` begins it, or goes on with it where `Trainer.resume` made it."""

    preset = "mini"

    def __init__(
        self,
        settings: TrainingSettings | None = None,
        run: str | Path | None = None,
        *,
        data: TrainingData | None = None,
        display: Display | None = None,
        workers: Workers | None = None,
        **changes: Any,
    ):
        self._began = time.monotonic()
        if settings is None:
            settings = TrainingSettings.from_dict({"preset": self.preset, **changes})
        elif changes:
            settings = settings.replace(**changes)
        require_sinks(settings)
        self.settings = settings
        self.workers = workers or find_workers(settings.engine, precision=settings.precision)
        self.leads = self.workers.leads
        self.run = RunFolder(run or self.workers.share(str(new_run_folder("runs", settings.preset).path)))
        self.data = data or self.workers.leader_first(lambda: open_data(settings, self.run.path))
        self._began += self.data.seconds_to_build  # making a corpus is not training
        self.machinery = Machinery(settings, self.data, self.workers)
        self.model = self.machinery.model
        self.display = display or (display_for() if self.leads else NoDisplay())
        self.state = RunState()
        self.budget = Budget(*settings.budget)
        often = partial(times_in_a_run, *settings.budget, self.data.tokens_of(settings.length))
        self.evaluations = Pace(settings.evaluate_every, often(EVALUATIONS))
        self.checkpoints = Pace(settings.checkpoint_every, often(CHECKPOINTS))
        self.reporting = Allowance(0.01)
        self.progress = 0.0
        self._stride = 0.0
        self.stopped = ""
        self._resuming = False
        self._pending: deque[Pending] = deque()

    @classmethod
    def resume(cls, run: str | Path, **options: Any) -> Trainer:
        """The run in a folder, at its last checkpoint (or at its beginning, if it had none)."""
        folder = RunFolder.existing(run)
        content = folder.read_settings()
        if read_result(folder) is not None:
            raise TrainingError(
                f"the run {folder.path} is finished, and its model is in {folder.model}; to train that further, "
                f"begin a new run with --start-from {folder.path}"
            )
        trainer = cls(TrainingSettings.from_dict(content["settings"]), run, **options)
        check_same_run(content, trainer)
        trainer._resuming = True
        return trainer

    # ---- the run ----------------------------------------------------------------------------------------------------

    def train(self) -> Result:
        with self.prepared():
            while not self._over():
                self.one_step()
            self._read(0)
            if self.stopped == "interrupted":
                self.save()
            return finish(self)

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Inside, the folder is locked, everything is loaded and `one_step` may be called."""
        with ExitStack() as stack:
            stack.enter_context(self.workers)
            rows = self.data.rows_for(self.workers)
            if self.leads:
                stack.enter_context(self.run.locked())
                copies = self.settings.keep + 3 + self.settings.snapshots
                self.run.require_space(self.machinery.checkpoint_bytes * copies)
            self._open()
            stack.callback(self.log.close)
            self.interrupts = stack.enter_context(Interrupts())
            self.workers.told_to_stop = lambda: self.interrupts.asked
            stack.enter_context(warnings.catch_warnings())
            # An overflow is noticed by the step, skipped and explained; NumPy need not mention it as well.
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="glassbert")
            stack.enter_context(self.display)
            threads = threads_for(self.model.engine)
            self.feed = stack.enter_context(
                Feed(self.data.sources, self.state.taken, rows, threads, self.machinery.prepare)
            )
            if self.state.step == 0:
                rehearse(self)
                if self.leads and self.settings.snapshots:
                    write_snapshot(self.run, 0, self.model)
                if self.model.engine.compiles:
                    length = self.data.length_at(0.0)
                    self.machinery.rehearse(self.data.sources[length].batch(0, 0, rows=rows[length]))
            if self.state.begun is None:
                self.state.begun = self.clock.elapsed
            self.budget.begun = self.state.begun
            self._agree()
            self._ordered = [self.state.step, self.state.tokens]
            yield

    def _open(self) -> None:
        """A new folder for a new run; weights, counters and log of the last checkpoint for a resumed one."""
        if not self._resuming and self.leads:
            self.run.begin({"settings": self.settings.to_dict(), **receipt(self)})
            self.data.tokenizer.save(self.run.path / "tokenizer")
        steps = self.run.steps() if self._resuming else []
        if steps:
            saved = read_checkpoint(self.run, steps[-1], self.model)
            self.machinery.load(saved.arrays, saved.state["machinery"])
            self.state = RunState.from_dict(saved.state)
        self.workers.check_same(digest_of(self.settings.to_dict()), "other settings than worker 0")
        self.workers.check_same(
            digest_of(self.state.to_dict()),
            f"another last checkpoint than worker 0; {self.run.path} must be on a disk that all of them share",
        )
        self.workers.check_equal(self.model, "at the start")
        self.clock = Clock(self.state.seconds, began=self._began)
        self.log = RunLog(self.run.log_file, self.state.log_position, self._sinks()) if self.leads else NoLog()
        self.watcher = self._watcher()
        if self._resuming and self.leads:
            drop_later_snapshots(self.run, self.state.step)
        if steps:
            self.watcher.event(f"Going on from step {steps[-1]:,}.")
            for change in changed_since(self.run.read_settings(), self):
                self.watcher.event(f"Not bit by bit the run it would have been: {change}.")

    def _sinks(self) -> list[Sink]:
        try:
            return sinks_for(self.settings, self.run.path, self.run.name)
        except TrainingError:
            if not self._resuming:
                self.run.undo()
            raise

    def _watcher(self) -> Watcher:
        parameters = self.model.get_parameter_count()
        title = f"{self.settings.preset}, {parameters:,} parameters, {self.model.engine.name}: {self.run.path}"
        watcher = Watcher(
            self.model, self.data.tokenizer, self.clock, self.log, self.display, self.settings.sentence, title
        )
        watcher.restore(read_log(self.run.log_file))
        watcher.status.step, watcher.status.tokens = self.state.step, self.state.tokens
        watcher.flops_per_token = flops_per_token(self.model.config, self.settings)
        watcher.matmul_rate = self.machinery.matmul_rate()
        return watcher

    def one_step(self) -> None:
        """Train on the next batch, and do whatever else is due."""
        state, watcher, machinery = self.state, self.watcher, self.machinery
        self._order_ahead()
        inputs, prepared = self.feed.take()
        before = self.progress
        length = inputs["input_ids"].shape[1]
        self._lengthen(length)
        tokens = self.data.tokens_of(length)
        middle = self.budget.middle_of_step(before, state.step, state.tokens, tokens, self._stride)
        rate = machinery.optimizer.learning_rate = self.settings.learning_rate * machinery.schedule(middle)
        looking = machinery.step.watch = self._looking
        with machinery.costs.measuring("step"), self._kept_if_a_worker_is_lost():
            result = machinery.step.run(prepared)
        state.step += 1
        state.tokens += tokens
        state.taken = dict(self.feed.taken)
        self._agree()
        self._stride = self.progress - before
        self._pending.append(Pending(state.step, state.tokens, before, self.progress, rate, inputs, result))
        self._read(LATE if self.model.engine.compiles else 0)
        if self.leads and looking and result.watched is not None:
            with watcher.looking.spending(self.clock):
                watcher.look(inputs, result.watched, result.metrics)
        if self.leads and watcher.wants_answers():
            watcher.ask()
        if self.evaluations.due(state.step, before, self.progress) and self.progress < 1:
            if self.leads:
                self.evaluate()
            self._lose_patience()
        if self.leads and snapshot_due(self.settings.snapshots, before, self.progress):
            write_snapshot(self.run, state.step, self.model)
        if self.checkpoints.due(state.step, before, self.progress) and self.progress < 1:
            self.workers.check_equal(self.model, f"at step {state.step:,}")
            self.save()
            if self.leads and self.budget.kind == "minutes" and self.reporting.permits(self.clock.elapsed):
                report_on_the_way(self)

    def _order_ahead(self) -> None:
        """Keep a few batches in the making. What a batch is like depends on its own step, not on when it is made."""
        while len(self.feed) < self.feed.ahead:
            step, tokens = self._ordered
            exact = self.budget.deterministic
            progress = self.budget.progress(step, tokens, 0.0) if exact else self.progress
            length = self.data.length_at(progress)
            self.feed.order(Order(length, self.settings.mask_rate_at(progress)))
            self._ordered = [step + 1, tokens + self.data.tokens_of(length)]

    def _agree(self) -> None:
        """What all workers must see alike: how far the run is, whether to look inside, and whether to stop."""
        self.budget.reserve = self.machinery.costs.of_the_end(self.settings)
        progress = self.budget.progress(self.state.step, self.state.tokens, self.clock.elapsed)
        wishes = [progress, self.watcher.wants_a_look()]
        (self.progress, looking), (interrupted,) = self.workers.decide(wishes, [self.interrupts.asked])
        self._looking = bool(looking)
        if interrupted:
            self.stopped = "interrupted"

    def _lengthen(self, length: int) -> None:
        """Where the curriculum comes to its long rows, losses begin a new curve: nothing before is the best of it."""
        if self.state.length not in (None, length):
            self.state.forget_best()
            self.watcher.event(f"Rows of {length:,} tokens from here on, held-out rows too.")

    def _lose_patience(self) -> None:
        """Stop early where the leader, who evaluates, has seen no gain for too long."""
        if self.settings.patience is not None:
            (late,), _ = self.workers.decide([self.state.evaluations_without_gain >= self.settings.patience])
            self.stopped = self.stopped or ("early" if late else "")

    def _over(self) -> bool:
        return self.progress >= 1 or bool(self.stopped)

    @contextmanager
    def _kept_if_a_worker_is_lost(self) -> Iterator[None]:
        """A step that fails for want of a fellow has moved nothing: what came before it is saved."""
        numbers = self.machinery.state_numbers()
        try:
            yield
        except WorkerLost as lost:
            self.machinery.load_numbers(numbers)
            self.save()
            raise WorkerLost(f"{lost}. Step {self.state.step:,} is saved: glassbert resume {self.run.path}") from lost

    # ---- what happens now and then ----------------------------------------------------------------------------------

    def _read(self, keep: int) -> None:
        """Read the losses of all but the last `keep` steps."""
        while len(self._pending) > keep:
            done = self._pending.popleft()
            loss, norm = float(done.result.loss), float(done.result.gradient_norm)
            if math.isfinite(loss) and math.isfinite(norm):
                self.state.skipped_in_a_row = 0
            else:
                note_bad_step(done.step, loss, norm, done.inputs, self.model, self.state, self.watcher)
                stop_if_too_many(self.state, self.settings, self.run)
            self.watcher.step(done.step, done.tokens, done.before, done.after, loss, norm, done.learning_rate)
            self.watcher.status.left = self.budget.seconds_left(done.after, self.clock.elapsed)

    def evaluate(self) -> float:
        """The held-out loss now, logged; also keeps the best checkpoint and the patience.

        Held-out rows are as long as those of the last step: longer ones would ask for what was not taught yet.
        """
        self._read(0)
        state, costs = self.state, self.machinery.costs
        rows = costs.rows_on_the_way(self.settings)
        length = state.length or self.data.length_at(0.0)
        with costs.measuring("row", rows):
            found = self.machinery.evaluate(self.data.held_out(rows, length=length))
        self.watcher.evaluation(found.loss, found.accuracy, length)
        if state.best_loss is None or found.loss < state.best_loss:
            state.best_loss, state.best_step, state.evaluations_without_gain = found.loss, state.step, 0
            if state.step > 0 and self.progress < 1:
                self.save()
        else:
            state.evaluations_without_gain += 1
        return found.loss

    def save(self) -> None:
        """Write a checkpoint of this moment, unless there is one or the last step went wrong."""
        self._read(0)
        if not self.leads or self.state.skipped_in_a_row or self.state.step in self.run.steps():
            return
        with self.machinery.costs.measuring("save"):
            self.state.seconds = self.clock.elapsed
            self.state.log_position = self.log.settle()
            content = {**self.state.to_dict(), "machinery": self.machinery.state_numbers()}
            write_checkpoint(self.run, self.state.step, self.model, self.machinery.state_arrays(), content)
            prune(self.run, self.settings.keep, self.state.best_step)


class LargerBERTTrainer(Trainer):
    """A trainer whose preset is the Larger one, with that preset's defaults."""

    preset = "larger"
