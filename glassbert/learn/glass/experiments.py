"""Experiments on one look: nudge a weight, read what a step moved, switch off every head in turn, saliency.

Each returns a plain dictionary. Nothing here changes the model of the look.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.aims import Aim
from glassbert.insight.pruning import without_heads
from glassbert.insight.saliency import baseline_ids, gradient_x_input, integrated_gradients
from glassbert.learn.glass.cells import rms
from glassbert.learn.glass.look import Look
from glassbert.learn.glass.recorder import record
from glassbert.learn.glass.variants import plain_model
from glassbert.models.model import Model

MOVED = 12  # weights and parameters that are listed
LARGEST_STEP = 1.0


class Nudge:
    """The loss at w - ε, w and w + ε for single weights, in float64, beside what the gradient predicts.

    predicted = g · ε          measured = (loss(w + ε) - loss(w - ε)) / 2

    In float32 the difference of two losses would be mostly rounding, so a float64 copy of the model computes both.
    """

    def __init__(self, look: Look):
        if look.labels is None:
            raise InputError("without a loss there is nothing to nudge; " + look.why_no_loss())
        self.look = look
        self.model: Model = plain_model(look.model, "float64")
        if self.model.parameters is look.model.parameters:  # it was float64 already
            self.model.parameters = copy.deepcopy(look.model.parameters)
        recording = record(self.model, look.tokens.ids, look.labels)
        assert recording.gradients is not None and recording.loss is not None
        self.gradients, self.loss = recording.gradients, recording.loss

    def _loss(self) -> float:
        assert self.look.labels is not None
        loss, _ = self.model.loss(self.look.tokens.ids, **self.look.labels)
        return float(loss)

    def __call__(self, parameter: str, index: list[int], epsilon: float) -> dict[str, Any]:
        if parameter not in self.model.parameters:
            raise InputError(f"this model has no parameter {parameter!r}")
        weights, place = self.model.parameters[parameter], tuple(index)
        if len(place) != weights.ndim or any(not 0 <= i < n for i, n in zip(place, weights.shape, strict=True)):
            raise InputError(f"{index} is no cell of {parameter}, whose shape is {list(weights.shape)}")
        if not isinstance(epsilon, (int, float)) or not 0 < abs(epsilon) <= LARGEST_STEP:
            raise InputError(f"ε must be a number of at most {LARGEST_STEP:g} that is not 0, got {epsilon!r}")
        before = float(weights[place])
        try:
            weights[place] = before + epsilon
            up = self._loss()
            weights[place] = before - epsilon
            down = self._loss()
        finally:
            weights[place] = before
        gradient = float(self.gradients[parameter][place])
        return {
            "parameter": parameter, "index": list(place), "weight": before, "gradient": gradient, "epsilon": epsilon,
            "loss": self.loss, "loss_up": up, "loss_down": down, "predicted": gradient * epsilon,
            "measured": (up - down) / 2, "one_sided": up - self.loss,
        }  # fmt: skip


def moved_most(before: Look, after: Look) -> dict[str, Any]:
    """Which parameters and which single weights differ most between two looks of one architecture."""
    parameters, single = [], []
    for name, old in before.model.parameters.items():
        new = after.model.parameters.get(name)
        if new is None or new.shape != old.shape:
            raise InputError("the two models have different parameters; compare two variants of one model")
        change = np.asarray(new, np.float64) - np.asarray(old, np.float64)
        size = rms(old)
        moved = rms(change)
        parameters.append({"name": name, "change": moved, "relative": moved / size if size else None})
        for flat in (
            np.argsort(-np.abs(change), axis=None, kind="stable")[:MOVED] if change.size < 4_096 else _top(change)
        ):
            place = tuple(int(i) for i in np.unravel_index(flat, change.shape))
            single.append({"name": name, "index": list(place), "before": float(old[place]),
                           "after": float(new[place]), "change": float(change[place])})  # fmt: skip
    parameters.sort(key=lambda one: -(one["relative"] or 0.0))
    single.sort(key=lambda one: -abs(one["change"]))
    return {"parameters": parameters[:MOVED], "weights": single[:MOVED]}


def _top(change: np.ndarray) -> np.ndarray:
    return np.argpartition(-np.abs(change), MOVED, axis=None)[:MOVED]


def heads_in_turn(look: Look) -> dict[str, Any]:
    """The loss without each head: [layers, heads]. A rise says that this text needs the head."""
    if look.labels is None or look.loss is None:
        raise InputError(look.why_no_loss())
    config = look.model.config
    losses = [
        [
            float(without_heads(look.model, [(layer, head)]).loss(look.tokens.ids, **look.labels)[0])
            for head in range(config.num_attention_heads)
        ]
        for layer in range(config.num_hidden_layers)
    ]
    return {"loss": look.loss, "without": losses, "rise": [[one - look.loss for one in row] for row in losses]}


def saliency(look: Look, position: int | None, target: int, method: str) -> dict[str, Any]:
    """How much every token contributes to the log-probability of one answer."""
    head = look.model.head
    if head is None or not {"mlm", "sequence"} & set(head.parts):
        raise InputError("saliency explains a masked word or a class; this model has neither")
    is_mask = "mlm" in head.parts
    if is_mask and position not in look.tokens.masked:
        raise InputError("choose a masked word first")
    if not 0 <= target < (look.model.config.vocab_size if is_mask else head.num_labels):
        raise InputError(f"{target} is no answer of this model")
    aim = Aim(target, position if is_mask else None)
    if not is_mask and head.loss_name == "binary_cross_entropy" and head.num_labels == 1:
        aim = Aim(0)
    ids = look.tokens.ids
    if method == "gradient":
        values = gradient_x_input(look.model, ids, aim)
        return {"method": method, "values": values.tolist(), "sum": float(values.sum())}
    if method != "integrated":
        raise InputError(f"the method must be 'gradient' or 'integrated', got {method!r}")
    tokenizer = look.loaded.tokenizer
    found = integrated_gradients(look.model, ids, baseline_ids(ids, tokenizer.mask_id, tokenizer.special_ids), aim)
    return {
        "method": method, "values": found.attributions.tolist(), "sum": float(found.attributions.sum()),
        "score": found.score, "baseline": found.baseline_score, "remainder": found.error,
    }  # fmt: skip
