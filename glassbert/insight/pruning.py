"""Importance of attention heads: remove heads, one at a time or cumulatively, and measure the loss.

A head is removed through the parameters: the columns of the output projection that read its context are set to zero,
so nothing of it reaches the residual stream. The forward pass needs no change.

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

Head = tuple[int, int]  # layer and head, from 0
OnProgress = Callable[[], object]  # called after every evaluation


def without_heads(model: Model, heads: Iterable[Head]) -> Model:
    """A copy of the model without these heads. It shares all other weights with the original."""
    pruned = copy.copy(model)
    pruned.parameters = {**model.parameters, **_zeroed_projections(model, heads)}  # type: ignore[assignment]
    return pruned


def _zeroed_projections(model: Model, heads: Iterable[Head]) -> dict[str, Array]:
    """The output projections that change, by parameter name. Layers that share one lose the head together."""
    config = model.config
    changed: dict[str, np.ndarray] = {}
    for layer, head in heads:
        if not (0 <= layer < config.num_hidden_layers and 0 <= head < config.num_attention_heads):
            raise InputError(
                f"there is no head {head} in layer {layer}: this model has {config.num_hidden_layers} layers of "
                f"{config.num_attention_heads} heads, both counted from 0"
            )
        name = f"layers.{config.group_of(layer)}.attention.output.weight"
        weight = changed.get(name)
        if weight is None:
            weight = np.array(model.engine.to_numpy(model.parameters[name]))
        weight[:, head * config.head_size : (head + 1) * config.head_size] = 0
        changed[name] = weight
    return {name: model.engine.array(weight) for name, weight in changed.items()}


@dataclass(frozen=True)
class HeadImportance:
    """The loss with all heads, and its rise without each head, [layers, heads]."""

    loss: float
    rise: np.ndarray


def head_importance(model: Model, batches: Sequence[Any], on_progress: OnProgress = lambda: None) -> HeadImportance:
    """Remove every head on its own. A batch is an input of `training.evaluate`: inputs and labels."""
    loss_without = _LossWithoutHeads(model, batches)
    full = loss_without(())
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    rise = np.zeros((layers, heads))
    for layer in range(layers):
        for head in range(heads):
            rise[layer, head] = loss_without([(layer, head)]) - full
            on_progress()
    return HeadImportance(full, rise)


@dataclass(frozen=True)
class Removal:
    """Heads in the order of removal, and the loss with 0, 1, 2, ... heads removed."""

    order: list[Head]
    losses: np.ndarray  # [len(order) + 1]


def remove_greedily(
    model: Model, batches: Sequence[Any], limit: int | None = None, on_progress: OnProgress = lambda: None
) -> Removal:
    """Remove heads one after the other, always the one with the smallest loss, until `limit` (all) are removed."""
    loss_without = _LossWithoutHeads(model, batches)
    config = model.config
    left = [(layer, head) for layer in range(config.num_hidden_layers) for head in range(config.num_attention_heads)]
    removed: list[Head] = []
    losses = [loss_without(())]
    for _ in range(len(left) if limit is None else min(limit, len(left))):
        tried = []
        for head in left:
            tried.append((loss_without([*removed, head]), head))
            on_progress()
        loss, cheapest = min(tried)
        left.remove(cheapest)
        removed.append(cheapest)
        losses.append(loss)
    return Removal(removed, np.array(losses))


class _LossWithoutHeads:
    """Computes the loss without given heads. One model copy is reused, so an engine that compiles does so once."""

    def __init__(self, model: Model, batches: Sequence[Any]):
        if model.head is None:
            raise InputError("this model has no head, so it has no loss; load a model with a head")
        self.model, self.batches = model, list(batches)
        self.pruned = copy.copy(model)

    def __call__(self, heads: Iterable[Head]) -> float:
        changed = _zeroed_projections(self.model, heads)
        self.pruned.parameters = {**self.model.parameters, **changed}  # type: ignore[assignment]
        return evaluate(self.pruned, self.batches).loss
