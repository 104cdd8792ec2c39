"""Which heads are needed? Switch them off, one by one or ever more of them, and see what it costs.

A head is switched off by its parameters: the columns of the output projection that read its context become zero, so
that nothing of it reaches the residual stream. The mathematics stays as it is and does not know of it.

    output = [context_1 ... context_h ... context_n] Wᵀ + b         columns of W for head h := 0
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import InputError
from glassbert.models.model import Model
from glassbert.training.evaluate import evaluate

Head = tuple[int, int]  # layer and head, counted from 0
Told = Callable[[], object]


def without_heads(model: Model, heads: Iterable[Head]) -> Model:
    """A twin of the model in which these heads say nothing. It shares all other weights with the original."""
    twin = copy.copy(model)
    twin.parameters = {**model.parameters, **_silenced(model, heads)}  # type: ignore[assignment]
    return twin


def _silenced(model: Model, heads: Iterable[Head]) -> dict[str, Array]:
    """The output projections that change, by name."""
    config = model.config
    changed: dict[str, np.ndarray] = {}
    for layer, head in heads:
        if not (0 <= layer < config.num_hidden_layers and 0 <= head < config.num_attention_heads):
            raise InputError(
                f"there is no head {head} in layer {layer}: this model has {config.num_hidden_layers} layers of "
                f"{config.num_attention_heads} heads, both counted from 0"
            )
        name = f"layers.{layer}.attention.output.weight"
        weight = changed.get(name)
        if weight is None:
            weight = np.array(model.engine.to_numpy(model.parameters[name]))
        weight[:, head * config.head_size : (head + 1) * config.head_size] = 0
        changed[name] = weight
    return {name: model.engine.array(weight) for name, weight in changed.items()}


@dataclass(frozen=True)
class HeadImportance:
    """The held-out loss with all heads, and by how much it rises without each of them, [layers, heads]."""

    loss: float
    rise: np.ndarray


def head_importance(model: Model, batches: Sequence[Any], told: Told = lambda: None) -> HeadImportance:
    """Every head switched off by itself. A batch is what `evaluate` takes: inputs and labels."""
    measure = _Losses(model, batches)
    whole = measure(())
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    rise = np.zeros((layers, heads))
    for layer in range(layers):
        for head in range(heads):
            rise[layer, head] = measure([(layer, head)]) - whole
            told()
    return HeadImportance(whole, rise)


@dataclass(frozen=True)
class Removal:
    """Heads in the order in which they were removed, and the loss with none of them, one of them, two of them, ..."""

    order: list[Head]
    losses: np.ndarray  # [len(order) + 1]


def remove_greedily(
    model: Model, batches: Sequence[Any], most: int | None = None, told: Told = lambda: None
) -> Removal:
    """Remove ever more heads, each time the one whose loss is cheapest now, until `most` (all) are gone."""
    measure = _Losses(model, batches)
    config = model.config
    left = [(layer, head) for layer in range(config.num_hidden_layers) for head in range(config.num_attention_heads)]
    gone: list[Head] = []
    losses = [measure(())]
    for _ in range(len(left) if most is None else min(most, len(left))):
        tried = []
        for head in left:
            tried.append((measure([*gone, head]), head))
            told()
        loss, cheapest = min(tried)
        left.remove(cheapest)
        gone.append(cheapest)
        losses.append(loss)
    return Removal(gone, np.array(losses))


class _Losses:
    """Losses of one twin, whose heads are switched on and off: an engine that compiles does so once."""

    def __init__(self, model: Model, batches: Sequence[Any]):
        if model.head is None:
            raise InputError("this model has no head, so it has no loss that could rise")
        self.model, self.batches = model, list(batches)
        self.twin = copy.copy(model)

    def __call__(self, heads: Iterable[Head]) -> float:
        self.twin.parameters = {**self.model.parameters, **_silenced(self.model, heads)}  # type: ignore[assignment]
        return evaluate(self.twin, self.batches).loss
