"""Objectives: the questions that a model is trained to answer.

An objective says what it needs from a batch, and takes hidden states to a loss and the loss back to a gradient at the
hidden states. Several of them are learned at once as a weighted sum:

    loss = Σ wₜ · lossₜ          lossₜ: the mean over what objective t asks in the whole batch

"mlm+0.5*sop" is such a sum. Because every lossₜ is a mean, a batch that is computed in parts (to save memory, or by
several workers) must weigh each part by how much it asks: Σⱼ (nₜⱼ / nₜ) lossₜⱼ. `asked` keeps that account.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.errors import InputError, TrainingError
from glassbert.layers.scope import Scope
from glassbert.models.heads import Head, HeadPart
from glassbert.models.inputs import as_array
from glassbert.ops import IGNORED
from glassbert.ops.losses import softplus

Draw = Callable[[str, Array, Array], Array]  # (name of the loss, output, targets) -> targets that count instead


class Answered(NamedTuple):
    """What came of one objective: its mean loss, and sums over what was asked, such as how often it was right."""

    loss: Array
    sums: dict[str, Array]


class Objective(ABC):
    """One question. `needs` names the fields of a batch that hold its answers."""

    name: str
    needs: tuple[str, ...]

    @abstractmethod
    def check(self, head: Head) -> None:
        """An error where a model with this head cannot be asked."""

    @abstractmethod
    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """The checked answers of a batch of this shape, [rows, length]."""

    @abstractmethod
    def asked(self, prepared: Mapping[str, np.ndarray]) -> int:
        """How many answers the mean loss is over."""

    @abstractmethod
    def loss(
        self,
        head: Head,
        hidden: Array,
        mask: Array | None,
        answers: Mapping[str, Array],
        at: Scope,
        source: Any = None,
        measure: bool = False,
        draw: Draw | None = None,
    ) -> Answered:
        """`measure` asks for the sums; `draw` exchanges the answers for sampled ones."""

    @abstractmethod
    def backward(self, head: Head, dloss: Array, at: Scope) -> Array:
        """The gradient at the hidden states."""


@dataclass(frozen=True)
class AskHead(Objective):
    """Ask a head, or the part of a head, that brings its own loss."""

    name: str
    part: str
    need: str

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.need,)

    def check(self, head: Head) -> None:
        if self.part not in head.parts:
            wanted = "pretraining" if self.part in ("mlm", "pair") else self.part
            raise TrainingError(
                f"the objective {self.name!r} asks the head {self.part!r}, and this model's head is {head.kind!r}; "
                f"make the model with the head {wanted!r}"
            )

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if given.get(self.need) is None:
            raise InputError(f"the objective {self.name!r} needs {self.need} in every batch")
        return self._part(head).head.prepare_labels(as_array(self.need, given[self.need]), shape)

    def asked(self, prepared: Mapping[str, np.ndarray]) -> int:
        return int((prepared["targets"] != IGNORED).sum())

    def loss(
        self,
        head: Head,
        hidden: Array,
        mask: Array | None,
        answers: Mapping[str, Array],
        at: Scope,
        source: Any = None,
        measure: bool = False,
        draw: Draw | None = None,
    ) -> Answered:
        part, sums = self._part(head), {}
        kind = part.head.loss_name

        def before_loss(output: Array, targets: Array) -> Array:
            if measure and kind in MEASURES:  # now: the loss may overwrite the output
                name, function = MEASURES[kind]
                sums[name] = function(output, targets)
            return targets if draw is None else draw(kind, output, targets)

        loss = part.head.answer(hidden, mask, answers, part.scope(at), source, before_loss)
        return Answered(loss, sums)

    def backward(self, head: Head, dloss: Array, at: Scope) -> Array:
        part = self._part(head)
        return part.head.answer_backward(dloss, part.scope(at))

    def _part(self, head: Head) -> HeadPart:
        return head.parts[self.part]


def right_choices(output: Array, targets: Array) -> Array:
    """How many rows have their highest score at the target; an ignored target is below every index."""
    best = output.reshape(-1, output.shape[-1]).argmax(-1)
    return (best == targets).sum()


def right_signs(output: Array, targets: Array) -> Array:
    """How many yes-or-no answers fall on the right side."""
    return (((output > 0) == (targets > 0.5)) & (targets != IGNORED)).sum()


def right_ranks(output: Array, targets: Array) -> Array:
    """How many rows have the right rank: the number of steps k with P(rank > k) above one half."""
    log_passed = -softplus(-output).cumsum(-1)
    return ((log_passed > math.log(0.5)).sum(-1) == targets).sum()


MEASURES = {
    "cross_entropy": ("accuracy", right_choices),
    "binary_cross_entropy": ("accuracy", right_signs),
    "ordinal": ("accuracy", right_ranks),
}

OBJECTIVES: dict[str, Objective] = {
    "mlm": AskHead("mlm", "mlm", "labels"),
    "nsp": AskHead("nsp", "pair", "pair_labels"),  # does the second sentence follow the first, or is it from elsewhere?
    "sop": AskHead("sop", "pair", "pair_labels"),  # are the two in their order, or exchanged? The data decide which
    "sequence": AskHead("sequence", "sequence", "labels"),
    "token": AskHead("token", "token", "labels"),
    "span": AskHead("span", "span", "labels"),
    "embedding": AskHead("embedding", "embedding", "labels"),
    "forecast": AskHead("forecast", "forecast", "labels"),
}
NATURAL = {"pretraining": "mlm+nsp"}  # other heads are trained on the objective of their own name


class Objectives:
    """A weighted sum of objectives, put to one head."""

    def __init__(self, terms: Sequence[tuple[Objective, float]]):
        self.terms = tuple(terms)
        self.names = tuple(objective.name for objective, _ in self.terms)
        self.weights = np.array([weight for _, weight in self.terms])

    @classmethod
    def parse(cls, text: str) -> Objectives:
        """ "mlm", "mlm+sop", "mlm + 0.5*nsp"."""
        terms = []
        for term in text.split("+"):
            found = re.fullmatch(r"\s*(?:([0-9.eE-]+)\s*\*)?\s*([a-z_]+)\s*", term)
            if found is None or found[2] not in OBJECTIVES:
                raise TrainingError(
                    f"{term.strip()!r} is no objective; write a sum such as 'mlm' or 'mlm+0.5*nsp' "
                    f"of {', '.join(OBJECTIVES)}"
                )
            terms.append((OBJECTIVES[found[2]], _weight(found[1], text)))
        names = [objective.name for objective, _ in terms]
        if len(set(names)) < len(names):
            raise TrainingError(f"{text!r} names an objective twice; give it one weight")
        return cls(terms)

    @classmethod
    def of(cls, head: Head | None, wanted: str | Objectives | None = None) -> Objectives:
        """What is wanted, or what such a head is naturally trained on; checked against the head."""
        if head is None:
            raise InputError("this model has no head, so it has no loss to train on")
        found = wanted if isinstance(wanted, Objectives) else cls.parse(wanted or NATURAL.get(head.kind, head.kind))
        for objective, _ in found.terms:
            objective.check(head)
        return found

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(need for objective, _ in self.terms for need in objective.needs))

    @property
    def head_type(self) -> str:
        """The head that a model needs for these objectives."""
        parts = {part for objective, _ in self.terms if isinstance(objective, AskHead) for part in (objective.part,)}
        return next(iter(parts)) if parts <= {"mlm"} or not parts & {"mlm", "pair"} else "pretraining"

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, dict[str, np.ndarray]]:
        return {objective.name: objective.prepare(head, given, shape) for objective, _ in self.terms}

    def asked(self, prepared: Mapping[str, Mapping[str, np.ndarray]]) -> np.ndarray:
        """How much each objective asks, [objectives]."""
        return np.array([objective.asked(prepared[objective.name]) for objective, _ in self.terms], np.float64)

    def loss(
        self, head: Head, hidden: Array, mask: Array | None, answers: Mapping[str, Any], at: Scope, **options: Any
    ) -> list[Answered]:
        """One `Answered` for every objective, unweighted."""
        return [o.loss(head, hidden, mask, answers[o.name], at, **options) for o, _ in self.terms]

    def backward(self, head: Head, dlosses: Sequence[Array], at: Scope) -> Array:
        """The gradient at the hidden states of Σ dlossesₜ · lossₜ."""
        total = None
        for (objective, _), dloss in zip(self.terms, dlosses, strict=True):
            dhidden = objective.backward(head, dloss, at)
            total = dhidden if total is None else total + dhidden.reshape(total.shape)
        return total

    def __str__(self) -> str:
        return "+".join(o.name if weight == 1 else f"{weight:g}*{o.name}" for o, weight in self.terms)


def _weight(written: str | None, text: str) -> float:
    try:
        weight = float(written) if written is not None else 1.0
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise TrainingError(f"{written!r} in {text!r} is no weight; it must be a number above 0")
    return weight
