"""How good is a model on text it has not seen? Losses and accuracies over many batches, each question counted once.

Nothing is kept for backward and dropout is off. On MLX the pass is compiled, and nobody waits for a batch before the
next ones are on their way.
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

from glassbert.engines.threads import using_threads
from glassbert.errors import InputError
from glassbert.layers.scope import Forgetful, Scope
from glassbert.models.encoder import Batch, encode
from glassbert.models.heads import pad_rows
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.training.objectives import Answered, Objectives

ANSWERS = ("labels", "pair_labels")
IN_FLIGHT = 4  # batches on a device before the first is waited for: enough to keep it busy, few enough to fit


@dataclass(frozen=True)
class Evaluation:
    """`loss` is the weighted sum that was trained on, `losses`, `accuracies` and `asked` are by objective."""

    loss: float
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    asked: Mapping[str, int]

    @property
    def accuracy(self) -> float:
        """That of the first objective; NaN where it has none."""
        return next(iter(self.accuracies.values()), math.nan)

    @property
    def perplexity(self) -> float:
        """exp of the first objective's loss: among how many equally likely words the model hesitates."""
        return math.exp(min(next(iter(self.losses.values())), 700.0))

    def as_dict(self) -> dict[str, float]:
        each = {f"{name}_loss": loss for name, loss in self.losses.items()}
        each.update({f"{name}_accuracy": share for name, share in self.accuracies.items()})
        return {"loss": self.loss, "accuracy": self.accuracy, "perplexity": self.perplexity, **each}


def evaluate(model: Model, batches: Iterable[Any], *, objective: str | Objectives | None = None) -> Evaluation:
    """Losses and accuracies over all batches together.

    A batch is a mapping of what `model.loss` takes, or an object with these as attributes.
    """
    objectives = Objectives.of(model.head, objective)
    head: Any = model.head
    run = _on_device(model, objectives) if model.engine.compiles else partial(_with_threads, model, objectives)
    asked = np.zeros(len(objectives.names))
    losses = np.zeros(len(objectives.names))
    right: dict[str, float] = {}
    waiting: list[tuple[np.ndarray, Any]] = []

    def settle(count: int) -> None:
        while len(waiting) > count:
            number, answered = waiting.pop(0)
            losses[:] += number * [float(one.loss) for one in answered]
            for name, one in zip(objectives.names, answered, strict=True):
                if "accuracy" in one.sums:
                    right[name] = right.get(name, 0.0) + float(one.sums["accuracy"])

    with quietly(model):
        for batch in batches:
            given = _fields(batch)
            answers = {name: given.pop(name, None) for name in ANSWERS}
            checked = check_inputs(model.config, **given)
            prepared = objectives.prepare(head, answers, checked["ids"].shape)  # type: ignore[union-attr, arg-type]
            number = objectives.asked(prepared)
            asked += number
            waiting.append((number, run(checked, prepared)))
            settle(IN_FLIGHT)
        settle(0)
    if not asked.any():
        raise InputError("there is nothing to evaluate: no batch asks anything")
    mean = losses / np.maximum(asked, 1)
    of = dict(zip(objectives.names, asked.tolist(), strict=True))
    return Evaluation(
        float(objectives.weights @ mean),
        dict(zip(objectives.names, mean.tolist(), strict=True)),
        {name: count / max(of[name], 1) for name, count in right.items()},
        {name: int(count) for name, count in of.items()},
    )


@contextmanager
def quietly(model: Model) -> Iterator[None]:
    """Without dropout, and without moving the seed that the next step's dropout comes from."""
    training, seed = model.training, model.dropout_seed
    model.set_training(False)
    try:
        yield
    finally:
        model.set_training(training)
        model.dropout_seed = seed


INPUTS = ("input_ids", "attention_mask", "token_type_ids", "segment_ids", "position_ids")


def _fields(batch: Any) -> dict[str, Any]:
    names = (*INPUTS, *ANSWERS)
    found = batch if isinstance(batch, Mapping) else {name: getattr(batch, name, None) for name in names}
    for name in found:
        if name not in names:
            raise InputError(f"a batch has {name!r}; known are {', '.join(names)}")
    return dict(found)


def _with_threads(model: Model, objectives: Objectives, checked: dict[str, Any], prepared: Mapping[str, Any]) -> Any:
    with using_threads(model.engine.threads):
        hidden, cache = model.run_encoder(checked, Forgetful(), skip_padding=True)
        at = Scope(cache.parameters, cache.head).inside("head")
        answers = {name: model.on_engine(one) for name, one in prepared.items()}
        return objectives.loss(model.head, hidden, checked["mask"], answers, at, measure=True)  # type: ignore[arg-type]


_COMPILED: weakref.WeakKeyDictionary[Model, dict[str, Any]] = weakref.WeakKeyDictionary()


def _on_device(model: Model, objectives: Objectives) -> Any:
    import mlx.core as mx

    config, head = model.config, model.head  # not the model: what is compiled outlives it

    def forward(computing: Any, arrays: dict[str, Any], answers: Mapping[str, Any]) -> Any:
        batch = Batch(**arrays)
        hidden = encode(computing, config, batch, Forgetful())
        at = Scope(computing, Forgetful()).inside("head")
        return [tuple(one) for one in objectives.loss(head, hidden, batch.mask, answers, at, measure=True)]  # type: ignore[arg-type]

    compiled = _COMPILED.setdefault(model, {})
    function = compiled.setdefault(str(objectives), mx.compile(forward))

    def run(checked: dict[str, Any], prepared: Mapping[str, Any]) -> list[Answered]:
        answers = {name: model.on_engine(pad_rows(one)) for name, one in prepared.items()}
        arrays = {name: value for name, value in vars(model.batch_of(checked)).items() if value is not None}
        found = function(model.computing(model.parameters), arrays, answers)
        mx.async_eval(found)
        return [Answered(loss, sums) for loss, sums in found]

    return run
