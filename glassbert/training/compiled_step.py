"""The training step on MLX: pure functions of arrays, compiled.

A step with one micro-batch is one compiled function from the old parameters to the new ones. With several micro-batches
or workers, a compiled function computes the gradient of each micro-batch, and another one the update from their sum.

Nothing here synchronises with the device. The device also decides whether a step is skipped (`Optimizer.step_arrays`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from glassbert.models.encoder import Batch
from glassbert.models.heads import pad_rows
from glassbert.models.passes import Pass
from glassbert.training.curvature import target_sampler
from glassbert.training.step_results import ParameterNorms, StepResult
from glassbert.training.workers import SingleWorker

if TYPE_CHECKING:
    from glassbert.training.step import MicroBatch, TrainingStep

Tree = dict[str, Any]
FAILED_TO_COMPILE = ("_Map_base::at", "unordered_map::at")  # messages of MLX's compiler, by C++ library


def compiled_if_possible(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled function; with a warning the function itself, where MLX fails to compile it.

    MLX 0.32 ends so where an operation with several results is in the step twice, with the same elementwise input;
    `engines.mlx_kernels` keeps the mask of fused attention from being one.
    """
    chosen = mx.compile(function)

    def run(*arguments: Any) -> Any:
        nonlocal chosen
        try:
            return chosen(*arguments)
        except IndexError as error:
            if chosen is function or not any(text in str(error) for text in FAILED_TO_COMPILE):
                raise
            warnings.warn(
                f"MLX could not compile the training step ({error}); it runs uncompiled, which is slower and takes "
                f"more memory",
                stacklevel=2,
            )
            chosen = function
            return function(*arguments)

    return run


class CompiledStep:
    """Runs the steps of a `TrainingStep` whose engine compiles."""

    def __init__(self, step: TrainingStep):
        self.step = step
        self.model, self.optimizer, self.ema = step.model, step.optimizer, step.ema
        self.objectives, self.head = step.objectives, step.head
        self._compiled: dict[Any, Any] = {}

    def __call__(self, micro_batches: list[MicroBatch]) -> StepResult:
        model, workers = self.model, self.step.workers
        single = isinstance(workers, SingleWorker)
        model.dropout_seed += 1
        first = workers.rank * len(micro_batches)
        keys = [mx.random.key(model.dropout_seed + (first + i << 32)) for i in range(len(micro_batches))]
        inputs = [self._arrays(one) for one in micro_batches]
        counts = mx.array(np.maximum(np.sum([one.counts for one in micro_batches], 0), single), mx.float32)
        counts = counts if single else mx.maximum(workers.all_reduce(counts), 1)
        shares = [mx.array(one.counts, mx.float32) / counts for one in micro_batches]
        if self.step.wants_curvature():
            scale = mx.sqrt(mx.array(self.objectives.weights, mx.float32) * counts)
            gradients = self._add_up(micro_batches, inputs, shares, scale, keys, sample=True)["gradients"]
            self._replace_state(self._observe, workers.sum_gradients(gradients))
        if single and len(micro_batches) == 1:
            found = self._replace_state(self._whole, inputs[0], keys[0])
        else:
            weights = mx.array(self.objectives.weights, mx.float32)
            added = self._add_up(micro_batches, inputs, shares, weights, keys)
            losses, sums = (
                workers.all_reduce(added["losses"]),
                {k: workers.all_reduce(v) for k, v in added["sums"].items()},
            )
            found = self._replace_state(self._update, workers.sum_gradients(added["gradients"]), losses, sums)
        of = dict(zip(self.objectives.names, counts, strict=True)) if found["sums"] else {}
        return StepResult(
            found["loss"],
            found["norm"],
            found["skipped"],
            {name: found["losses"][i] for i, name in enumerate(self.objectives.names)},
            {name: total / of[name.partition("_")[0]] for name, total in found["sums"].items()},
            ParameterNorms(tuple(model.layout.shapes), **found["squares"]) if found["squares"] else None,
        )

    def _arrays(self, one: MicroBatch) -> Tree:
        batch = self.model.batch_of(one.checked)
        targets = {name: self.model.on_engine(pad_rows(arrays)) for name, arrays in one.targets.items()}
        targets = self.objectives.teach(targets, one.for_teacher)
        return {"targets": targets, **{name: value for name, value in vars(batch).items() if value is not None}}

    # ---- running compiled functions -------------------------------------------------------------------------------

    def _compile(self, function: Callable[..., Any], *fixed: Any) -> Any:
        """The compiled function; it is compiled again when one of these settings changes."""
        model, step = self.model, self.step
        settings = (model.training, model.checkpointing, step.detailed, *self.optimizer.compiled_with)
        key = (function.__name__, *fixed, *settings)
        if key not in self._compiled:
            self._compiled[key] = compiled_if_possible(partial(function, *fixed))
        return self._compiled[key]

    def _replace_state(self, function: Callable[..., Any], *inputs: Any) -> Tree:
        """Call function(state, *inputs) -> (new state, results) with the only reference to the old arrays.

        Then MLX can reuse their memory. If the call fails, the old state is restored.
        """
        model, optimizer, ema = self.model, self.optimizer, self.ema
        compiled = self._compile(function)
        average = ema.parameters if ema is not None else {}
        state = {"parameters": model.parameters, "buffers": optimizer.state, "steps": optimizer._steps, "ema": average}
        del average
        rates = mx.array(optimizer.learning_rates)
        self._set_state({"parameters": {}, "buffers": {}, "steps": None, "ema": {}})
        try:
            new, results = compiled(state, rates, *inputs)
        except BaseException:
            self._set_state(state)
            raise
        del state
        self._set_state(new)
        mx.async_eval(new, results)
        return results

    def _set_state(self, state: Tree) -> None:
        self.model.parameters, self.optimizer.state = state["parameters"], state["buffers"]
        self.optimizer._steps = state["steps"]
        if self.ema is not None:
            self.ema.parameters = state["ema"]

    def _add_up(
        self,
        micro_batches: list[MicroBatch],
        inputs: list[Tree],
        shares: list[Any],
        weights: Any,
        keys: list[Any],
        sample: bool = False,
    ) -> Tree:
        """Gradients, losses and sums over all micro-batches."""
        total: Tree = {}
        segments = [*(one.segment for one in micro_batches), 0]
        memory: Any = None
        for i, (arrays, share, key) in enumerate(zip(inputs, shares, keys, strict=True)):
            compiled = self._compile(self._micro_batch, sample, bool(total), segments[i + 1] > 0)
            given = {**arrays, "memory": memory} if segments[i] else arrays
            total, memory = compiled(self.model.parameters, given, share, weights, key, total)
            mx.async_eval(total, memory)  # start computing, to free its memory before the next micro-batch
        return total

    # ---- the functions that are compiled -----------------------------------------------------------------------

    def _whole(self, state: Tree, rates: Any, arrays: Tree, key: Any) -> tuple[Tree, Tree]:
        weights = [mx.array(weight, mx.float32) for weight in self.objectives.weights.tolist()]
        gradients, losses, sums, _ = self._gradients(state["parameters"], arrays, weights, key, False)
        return self._update(state, rates, gradients, mx.stack(losses), sums)

    def _micro_batch(
        self,
        sample: bool,
        more: bool,
        remember: bool,
        parameters: Tree,
        arrays: Tree,
        share: Any,
        weights: Any,
        key: Any,
        before: Tree,
    ) -> tuple[Tree, Any]:
        """The sums with those `before`, and the memory for the next segment where it is wanted."""
        gradients, losses, sums, memory = self._gradients(
            parameters, arrays, list(weights * share), key, sample, remember
        )
        found: Tree = {
            "gradients": {name: g.astype(mx.float32) for name, g in gradients.items()},
            "losses": share * mx.stack(losses),
            "sums": sums,
        }
        if not more:
            return found, memory
        added = {name: before["gradients"][name] + g for name, g in found["gradients"].items()}
        sums = {name: before["sums"][name] + value for name, value in sums.items()}
        return {"gradients": added, "losses": before["losses"] + found["losses"], "sums": sums}, memory

    def _gradients(
        self, parameters: Tree, arrays: Tree, dlosses: list[Any], key: Any, sample: bool, remember: bool = False
    ) -> tuple[Any, list[Any], Tree, Any]:
        """Forward and backward: the gradient of Σ dlossesₜ · lossₜ, the losses, the metric sums, and the memory."""
        model, engine = self.model, self.model.engine
        batch = Batch(**{name: value for name, value in arrays.items() if name != "targets"})
        gradients = model.new_gradients()
        gradients.train_only(self.optimizer.trainable)
        run = Pass(
            model.network, batch, model.computing(parameters), checkpointing=model.checkpointing,
            dropout=engine.dropout(key) if model.training else None,
        )  # fmt: skip
        sampler = target_sampler(engine, mx.random.split(key)[1]) if sample else None
        results = run.loss(self.objectives, arrays["targets"], measure=self.step.detailed, sample=sampler)
        run.backward(gradients, dlosses)
        gradients.fill_missing()
        named = zip(self.objectives.names, results, strict=True)
        sums = {f"{name}_{what}": total for name, one in named for what, total in one.sums.items()}
        memory = run.memory() if remember else ()
        return dict(gradients), [one.loss.astype(mx.float32) for one in results], sums, memory

    def _update(self, state: Tree, rates: Any, gradients: Tree, losses: Any, sums: Tree) -> tuple[Tree, Tree]:
        parameters, count = state["parameters"], state["steps"] + 1
        step = count.astype(mx.float32)
        weights = self.objectives.weights.tolist()
        loss = losses[0] if weights == [1.0] else (mx.array(weights, mx.float32) * losses).sum()
        moved, buffers, norm, fine = self.optimizer.step_arrays(
            parameters, gradients, state["buffers"], step, rates, loss
        )
        new: Tree = {"parameters": moved, "buffers": buffers, "steps": mx.where(fine, count, state["steps"])}
        new["ema"] = self.ema.moved(state["ema"], moved, step, fine) if self.ema is not None else {}
        squares = self._squares(parameters, gradients, moved) if self.step.detailed else {}
        results = {
            "loss": loss, "norm": norm, "skipped": mx.logical_not(fine), "losses": losses, "sums": sums,
            "squares": squares,
        }  # fmt: skip
        return new, results

    def _observe(self, state: Tree, rates: Any, gradients: Tree) -> tuple[Tree, Tree]:
        buffers = self.optimizer.observed(state["buffers"], gradients)
        return {**state, "buffers": buffers}, {}

    def _squares(self, parameters: Tree, gradients: Tree, moved: Tree) -> Tree:
        def each(values: Any) -> Any:
            return mx.stack([mx.square(value.astype(mx.float32)).sum() for value in values])

        names = list(self.model.layout.shapes)
        return {
            "gradient": each(gradients.get(name, mx.zeros(())) for name in names),
            "update": each(moved[name] - parameters[name] for name in names),
            "weight": each(parameters[name] for name in names),
        }
