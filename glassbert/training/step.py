"""One training step: forward, backward, clip, update.

A logical batch that does not fit into memory is cut into micro-batches of `physical_batch` rows. Their gradients are
weighted by their share of the targets and added up, so that the sum is the gradient of the whole batch. Several workers
do the same with their parts of a batch. NumPy runs a step on threads, in place; MLX compiles it
(`glassbert.training.compiled_step`).

A step whose loss or gradient is not finite updates nothing; its result has `skipped` set.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from glassbert.arrays import READ_ONLY, Gradients
from glassbert.engines import DropoutSource
from glassbert.engines.threads import run_together
from glassbert.errors import TrainingError
from glassbert.models.heads import Head, pad_rows
from glassbert.models.inputs import labels_at_outputs, real_tokens, shape_of
from glassbert.models.model import Model
from glassbert.models.passes import Pass
from glassbert.training.curvature import target_sampler
from glassbert.training.ema import EMA
from glassbert.training.objectives import Objectives, SampleTargets
from glassbert.training.optimizers import AdamW
from glassbert.training.optimizers.base import Optimizer
from glassbert.training.segments import cut_rows
from glassbert.training.step_results import ParameterNorms, StepResult
from glassbert.training.workers import SingleWorker, Workers


class MicroBatch(NamedTuple):
    """Some rows of a logical batch: checked inputs, targets by objective, and the number of targets of each.

    Where rows are read in segments, `segment` counts from 0; a later one follows the one before it in the list.
    """

    rows: slice
    checked: dict[str, Any]
    targets: dict[str, dict[str, np.ndarray]]
    counts: np.ndarray  # [objectives]
    for_teacher: dict[str, Any] | None = None  # the inputs as the teacher reads them, where there is one
    segment: int = 0


class Prepared(NamedTuple):
    """A batch as checked micro-batches of NumPy arrays."""

    micro_batches: list[MicroBatch]
    skip_padding: bool


class TrainingStep:
    """Trains `model` a batch at a time with `optimizer`.

    step = TrainingStep(model, AdamW(model, 1e-3))
    result = step(input_ids, labels, attention_mask)

    objective       a weighted sum such as "mlm+0.5*nsp"; by default that of the head
    physical_batch  rows computed at a time; by default the whole batch
    segments        rows are read in so many segments, each with the memory of those before it
    workers         the processes that train this model
    ema             a moving average of the weights, which the step updates

    Derivation: docs/derivations/11-block-and-model.md (11.14), (11.15)
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        *,
        objective: str | Objectives | None = None,
        physical_batch: int | None = None,
        segments: int = 1,
        workers: Workers | None = None,
        ema: EMA | None = None,
    ):
        if physical_batch is not None and (not isinstance(physical_batch, int) or physical_batch < 1):
            raise TrainingError(f"physical_batch must be a number of rows, at least 1, got {physical_batch!r}")
        if optimizer.layout is not model.layout:
            raise TrainingError("the optimizer was created for another model; create it with this one")
        if getattr(model.parameters, "is_read_only", False):
            raise TrainingError(f"nothing can be trained: {READ_ONLY}")
        self.model = model
        self.optimizer = optimizer
        self.objectives = Objectives.of(model.head, objective)
        if self.objectives.teacher is not None and segments > 1:
            raise TrainingError("a teacher reads whole rows, so they cannot be read in segments; leave segments out")
        if self.objectives.teacher is not None and optimizer.curvature_every:
            raise TrainingError(
                f"{optimizer.name} measures curvature with sampled labels, and a teacher gives none; choose another "
                f"optimizer"
            )
        self.head: Head = model.head  # type: ignore[assignment]
        self.physical_batch = physical_batch
        self.segments = segments
        self.workers = workers or SingleWorker()
        self.ema = ema
        self.detailed = False  # whether steps also report metrics and norms by parameter
        self._gradients: Any = None
        self._compiled: Any = None
        if model.engine.compiles:
            from glassbert.training.compiled_step import CompiledStep

            self._compiled = CompiledStep(self)

    def __call__(self, input_ids: Any, labels: Any = None, attention_mask: Any = None, **more: Any) -> StepResult:
        """Train on a batch; the arguments are those of `prepare`."""
        return self.run(self.prepare(input_ids, labels, attention_mask, **more))

    def prepare(
        self,
        input_ids: Any,
        labels: Any = None,
        attention_mask: Any = None,
        *,
        pair_labels: Any = None,
        scores: Any = None,
        skip_padding: bool = False,
        **more: Any,
    ) -> Prepared:
        """Check a batch and cut it into micro-batches. May run in another thread, ahead of the step.

        `scores` are those that a teacher gave before, with the shape of the head's output (`GivenScores`).

        `more` are the other inputs of `model.forward`: token_type_ids, segment_ids, position_ids, fields, values.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, **more}
        teacher = self.objectives.teacher
        for_teacher = None if teacher is None else teacher.check(labels, **inputs)
        given = {"labels": labels, "pair_labels": pair_labels, "scores": scores}
        parts = cut_rows(self.model.config, inputs, given, self.segments)
        chains = [
            self._cut(self.model.check(**part.inputs, past=part.past), part.labels, number, for_teacher)
            for number, part in enumerate(parts)
        ]
        return Prepared([one for chain in zip(*chains, strict=True) for one in chain], skip_padding)

    def run(self, prepared: Prepared) -> StepResult:
        """Train on a prepared batch."""
        self.optimizer.attempts += 1
        if self._compiled is not None:
            return self._compiled(prepared.micro_batches)
        return self._in_place(prepared.micro_batches, prepared.skip_padding)

    def wants_curvature(self) -> bool:
        """Whether this step also gives the optimizer a gradient of sampled labels (`Optimizer.observe`)."""
        every = self.optimizer.curvature_every
        return bool(every) and (self.optimizer.attempts - 1) % every == 0

    def _cut(
        self,
        checked: Mapping[str, Any],
        given: Mapping[str, Any],
        segment: int,
        for_teacher: Mapping[str, Any] | None,
    ) -> list[MicroBatch]:
        """The micro-batches of a batch; arrays without a row for every example are not cut."""
        count, length = shape_of(checked)
        size = self.physical_batch or count
        given = {
            **given, "labels": labels_at_outputs(given["labels"], checked), "real_tokens": real_tokens(checked),
            "input_ids": checked["ids"], "pieces": None if for_teacher is None else for_teacher.get("pieces"),
        }  # fmt: skip
        micro_batches = []

        def cut(inputs: Mapping[str, Any], rows: slice) -> dict[str, Any]:
            return {k: v if v is None or v.shape[0] != count else v[rows] for k, v in inputs.items()}

        for start in range(0, count, size):
            rows = slice(start, min(start + size, count))
            part, taught = cut(checked, rows), None if for_teacher is None else cut(for_teacher, rows)
            labels = {k: v if v is None or size >= count else v[rows] for k, v in given.items()}
            targets = self.objectives.prepare(self.head, labels, (rows.stop - rows.start, length))
            micro_batches.append(MicroBatch(rows, part, targets, self.objectives.counts(targets), taught, segment))
        return micro_batches

    def trace(self, inputs: Mapping[str, Any]) -> tuple[Any, Pass]:
        """The loss of a whole batch, and the pass with every value. Nothing is trained.

        Rows that are trained in segments are read whole here, without a memory: one pass has all of their values.
        """
        step = copy.copy(self)
        step.physical_batch, step.segments = None, 1
        (one,) = step.prepare(**inputs).micro_batches
        model = self.model
        run = model.run(one.checked, dropout=model.draw_dropout(), trace=True)
        pad = pad_rows if model.engine.compiles else dict
        targets = {name: model.on_engine(pad(arrays)) for name, arrays in one.targets.items()}
        results = run.loss(self.objectives, self.objectives.teach(targets, one.for_teacher))
        weighted = zip(self.objectives.weights.tolist(), results, strict=True)
        return sum(weight * result.loss for weight, result in weighted), run

    def backward(self, run: Pass) -> Gradients:
        """The gradients of what `trace` returned."""
        gradients = self.model.new_gradients()
        dlosses = [self.model.engine.array(weight) for weight in self.objectives.weights]
        self.model.backward_into(gradients, run, dloss=dlosses)
        gradients.fill_missing()
        return gradients

    # ---- NumPy ----------------------------------------------------------------------------------------------------

    def _in_place(self, micro_batches: list[MicroBatch], skip_padding: bool) -> StepResult:
        model, optimizer, workers = self.model, self.optimizer, self.workers
        if self._gradients is None:
            self._gradients = model.new_gradients()
        counts = workers.all_reduce(np.sum([one.counts for one in micro_batches], 0))
        dropout = model.draw_dropout()
        if self.wants_curvature():
            scale = np.sqrt(self.objectives.weights * counts)
            sample = target_sampler(model.engine, [model.dropout_seed, optimizer.attempts, workers.rank])
            self._gradients_of(micro_batches, counts, scale, dropout, skip_padding, sample)
            optimizer.observe(self._gradients)
        sums, measured = self._gradients_of(micro_batches, counts, self.objectives.weights, dropout, skip_padding)
        losses = workers.all_reduce(sums)
        loss = float(self.objectives.weights @ losses)
        norm = optimizer.gradient_norm(self._gradients)
        skipped = not (math.isfinite(loss) and math.isfinite(norm))
        before = model.parameters.flat.copy() if self.detailed else None
        metrics = self._metrics(measured, counts)  # the last call that may fail, before anything changes
        if not skipped:
            optimizer.move(model.parameters, self._gradients, norm)
            if self.ema is not None:
                self.ema.update(model.parameters, optimizer.steps)
        return StepResult(
            loss,
            norm,
            skipped,
            dict(zip(self.objectives.names, losses.tolist(), strict=True)),
            metrics,
            None if before is None else self._norms(before),
        )

    def _gradients_of(
        self,
        micro_batches: list[MicroBatch],
        counts: np.ndarray,
        weights: np.ndarray,
        dropout: DropoutSource | None,
        skip_padding: bool,
        sample: SampleTargets | None = None,
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Compute the gradient of Σ weightsₜ · lossₜ into `self._gradients`; returns the losses and the metric sums."""
        model, gradients = self.model, self._gradients
        gradients.train_only(self.optimizer.trainable)
        gradients.clear()
        losses = np.zeros(len(counts))
        measured: dict[str, float] = {}
        share_rows = micro_batches[-1].rows.stop  # of this worker in the logical batch
        memory: Any = None
        for one, following in zip(micro_batches, [*micro_batches[1:], None], strict=True):
            last = one is micro_batches[-1]

            def on_complete(group: str, last: bool = last) -> None:
                if last:
                    self.workers.on_complete(group, gradients)

            share = one.counts / np.maximum(counts, 1)
            before = self.workers.rank + one.segment * self.workers.size  # shares: every segment has masks of its own
            masks = dropout and dropout.from_row(before * share_rows + one.rows.start)
            checked = {**one.checked, "memory": memory} if one.segment else one.checked
            run = model.run(checked, dropout=masks, skip_padding=skip_padding)
            targets = {name: model.on_engine(arrays) for name, arrays in one.targets.items()}
            targets = self.objectives.teach(targets, one.for_teacher)
            results = run.loss(self.objectives, targets, measure=self.detailed, sample=sample)
            dlosses = [model.engine.array(value) for value in weights * share]
            model.backward_into(gradients, run, dloss=dlosses, on_complete=on_complete)
            memory = run.memory() if following is not None and following.segment else None
            losses += share * [float(result.loss) for result in results]
            for name, result in zip(self.objectives.names, results, strict=True):
                for what, total in result.sums.items():
                    measured[f"{name}_{what}"] = measured.get(f"{name}_{what}", 0.0) + float(total)
        gradients.fill_missing()
        self._gradients = self.workers.sum_gradients(gradients)
        return losses, measured

    def _metrics(self, measured: dict[str, float], counts: np.ndarray) -> dict[str, float]:
        if not measured:
            return {}
        totals = self.workers.all_reduce(np.array(list(measured.values())))
        of = dict(zip(self.objectives.names, np.maximum(counts, 1), strict=True))
        return {name: total / of[name.partition("_")[0]] for name, total in zip(measured, totals.tolist(), strict=True)}

    def _norms(self, before: np.ndarray) -> ParameterNorms:
        model, names = self.model, tuple(self.model.layout.shapes)

        def squares(name: str) -> tuple[float, float, float]:
            span = model.layout.span(name)
            gradient, old, new = self._gradients.flat[span], before[span], model.parameters.flat[span]
            update = new - old
            return float(gradient @ gradient), float(update @ update), float(old @ old)

        found = np.array(run_together(lambda part: [squares(name) for name in part], [names])[0])
        return ParameterNorms(names, *found.T)


def overfit_one_batch(
    model: Model, ids: np.ndarray, labels: np.ndarray, mask: np.ndarray, steps: int = 300, learning_rate: float = 1e-3
) -> Iterator[float]:
    """Train on the same batch at every step and yield the losses.

    A model with correct gradients reaches a loss near 0. One with a wrong sign, a lost gradient or a leaking mask does
    not.
    """
    step = TrainingStep(model, AdamW(model, learning_rate, weight_decay=0.0))
    for done in range(steps):
        step.optimizer.learning_rate = learning_rate * min(1.0, (done + 1) / 20)  # post-norm needs a warm-up
        yield float(step(ids, labels, mask).loss)
