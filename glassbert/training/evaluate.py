"""Losses and accuracies of a model over many batches, averaged over all targets.

Dropout is off and nothing is saved for a backward. On MLX the pass is compiled, and a few batches are submitted ahead.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.models.encoder import Batch
from glassbert.models.heads import pad_rows
from glassbert.models.inputs import labels_at_outputs, real_tokens, shape_of
from glassbert.models.model import Model
from glassbert.models.passes import Network, Pass
from glassbert.training.objectives import ObjectiveResult, Objectives
from glassbert.training.segments import cut_rows

LABELS = ("labels", "pair_labels")
IN_FLIGHT = 4  # batches submitted to a device before the first result is read


@dataclass(frozen=True)
class Evaluation:
    """`loss` is the weighted sum of the objectives; `losses`, `accuracies` and `counts` are by objective.

    `comparable` is the sum over the objectives whose losses can be compared during a run.
    """

    loss: float
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    counts: Mapping[str, int]
    comparable: float

    @property
    def accuracy(self) -> float:
        """The accuracy of the first objective that has one, or NaN."""
        return next(iter(self.accuracies.values()), math.nan)

    @property
    def perplexity(self) -> float:
        """exp of the loss of the first objective."""
        return math.exp(min(next(iter(self.losses.values())), 700.0))

    @property
    def parts(self) -> dict[str, dict[str, float]]:
        """Loss and accuracy of each objective, where there are several."""
        if len(self.losses) == 1:
            return {}
        return {name: {"loss": loss, "accuracy": self.accuracies.get(name, math.nan)} for name, loss in
                self.losses.items()}  # fmt: skip

    def as_dict(self) -> dict[str, float]:
        each = {f"{name}_loss": loss for name, loss in self.losses.items()}
        each.update({f"{name}_accuracy": share for name, share in self.accuracies.items()})
        return {"loss": self.loss, "accuracy": self.accuracy, "perplexity": self.perplexity, **each}


def evaluate(
    model: Model, batches: Iterable[Any], *, objective: str | Objectives | None = None, segments: int = 1
) -> Evaluation:
    """Losses and accuracies over all batches together.

    A batch is a mapping of arguments of `model.loss`, or an object with these attributes. Objectives that compare with
    a teacher are left out, so that losses can be compared with those of other runs. Rows are read in so many
    `segments`, each with the memory of those before it.
    """
    head: Any = model.head
    objectives = Objectives.of(head, objective).held_out(head)
    run = _on_device(model, objectives) if model.engine.compiles else partial(_on_numpy, model, objectives)
    counts = np.zeros(len(objectives.names))
    losses = np.zeros(len(objectives.names))
    right: dict[str, float] = {}
    pending: list[tuple[np.ndarray, Any]] = []

    def collect(count: int) -> None:
        while len(pending) > count:
            number, results = pending.pop(0)
            losses[:] += number * [float(one.loss) for one in results]
            for name, one in zip(objectives.names, results, strict=True):
                if "accuracy" in one.sums:
                    right[name] = right.get(name, 0.0) + float(one.sums["accuracy"])

    with evaluation_mode(model):
        for batch in batches:
            given = _fields(batch)
            labels = {name: given.pop(name, None) for name in LABELS}
            memory: Any = None
            parts = cut_rows(model.config, given, labels, segments)
            for place, part in enumerate(parts):
                checked = model.check(**part.inputs, past=part.past)
                own = {
                    **part.labels,
                    "labels": labels_at_outputs(part.labels["labels"], checked),
                    "real_tokens": real_tokens(checked),
                    "input_ids": checked["ids"],
                }
                prepared = objectives.prepare(head, own, shape_of(checked))
                number = objectives.counts(prepared)
                counts += number
                given_memory = {**checked, "memory": memory} if place else checked
                results, memory = run(given_memory, prepared, place + 1 < len(parts))
                pending.append((number, results))
                collect(IN_FLIGHT)
        collect(0)
    if not counts.any():
        raise InputError("nothing to evaluate: no batch has a target")
    mean = losses / np.maximum(counts, 1)
    of = dict(zip(objectives.names, counts.tolist(), strict=True))
    return Evaluation(
        float(objectives.weights @ mean),
        dict(zip(objectives.names, mean.tolist(), strict=True)),
        {name: count / max(of[name], 1) for name, count in right.items()},
        {name: int(count) for name, count in of.items()},
        float(objectives.comparable @ mean),
    )


@contextmanager
def evaluation_mode(model: Model) -> Iterator[None]:
    """Turn dropout off; the training mode and the dropout seed are restored at the end."""
    training, seed = model.training, model.dropout_seed
    model.set_training(False)
    try:
        yield
    finally:
        model.set_training(training)
        model.dropout_seed = seed


INPUTS = (
    *("input_ids", "attention_mask", "token_type_ids", "segment_ids", "position_ids", "fields", "values"),
    *("prediction_order", "global_attention_mask"),
)


def _fields(batch: Any) -> dict[str, Any]:
    names = (*INPUTS, *LABELS)
    found = batch if isinstance(batch, Mapping) else {name: getattr(batch, name, None) for name in names}
    for name in found:
        if name not in names:
            raise InputError(f"a batch has {name!r}; known fields are {', '.join(names)}")
    return dict(found)


def _on_numpy(
    model: Model, objectives: Objectives, checked: dict[str, Any], prepared: Mapping[str, Any], remember: bool
) -> Any:
    """The results of the objectives, and the memory for the next segment where it is wanted."""
    run = model.run(checked, inference=True, skip_padding=True, keep=_kept(model.network, remember))
    targets = {name: model.on_engine(one) for name, one in prepared.items()}
    return run.loss(objectives, targets, measure=True), run.memory() if remember else None


def _kept(network: Network, remember: bool) -> list[str]:
    return [name for names in network.encoder.memory_names() for name in names] if remember else []


_COMPILED: weakref.WeakKeyDictionary[Model, dict[str, Any]] = weakref.WeakKeyDictionary()


def _on_device(model: Model, objectives: Objectives) -> Any:
    import mlx.core as mx

    network = model.network  # not the model, which the compiled function would keep alive

    def forward(remember: bool, computing: Any, arrays: dict[str, Any], targets: Mapping[str, Any]) -> Any:
        run = Pass(network, Batch(**arrays), computing, inference=True, keep=_kept(network, remember))
        results = [tuple(one) for one in run.loss(objectives, targets, measure=True)]
        return results, run.memory() if remember else ()

    compiled = _COMPILED.setdefault(model, {})
    functions = {
        remember: compiled.setdefault(f"{objectives} {remember}", mx.compile(partial(forward, remember)))
        for remember in (False, True)
    }

    def run(checked: dict[str, Any], prepared: Mapping[str, Any], remember: bool) -> tuple[list[ObjectiveResult], Any]:
        targets = {name: model.on_engine(pad_rows(one)) for name, one in prepared.items()}
        arrays = {name: value for name, value in vars(model.batch_of(checked)).items() if value is not None}
        found, memory = functions[remember](model.computing(model.parameters), arrays, targets)
        mx.async_eval(found, memory)
        return [ObjectiveResult(loss, sums) for loss, sums in found], memory

    return run
