"""Training objectives.

An objective names the targets that it needs, computes a loss from hidden states, and the gradient of the loss at the
hidden states. Several objectives are trained together as a weighted sum:

    loss = Σ wₜ · lossₜ          lossₜ: the mean over the targets of objective t in the whole batch

"mlm+0.5*sop" is such a sum. Because every lossₜ is a mean, the parts of a batch that is computed in parts (to save
memory, or by several workers) are weighted by their number of targets: Σⱼ (nₜⱼ / nₜ) lossₜⱼ. `count` gives that number.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import InputError, TrainingError
from glassbert.layers.registry import Registry
from glassbert.layers.scope import Scope
from glassbert.models.encoder import Batch
from glassbert.models.heads import Head, HeadPart
from glassbert.models.inputs import as_array
from glassbert.models.passes import head_loss, head_loss_backward
from glassbert.ops import IGNORED
from glassbert.ops.losses import softplus

SampleTargets = Callable[[str, Array, Array], Array]  # (name of the loss, output, targets) -> sampled targets


class ObjectiveResult(NamedTuple):
    """The mean loss of one objective, and sums over its targets, such as the number of correct predictions."""

    loss: Array
    sums: dict[str, Array]


class Objective(ABC):
    """A loss over hidden states. `needs` names the fields of a batch that hold its targets."""

    name: str
    needs: tuple[str, ...] = ("labels",)
    part: str = "mlm"  # the head, or the part of a head, that a model needs for it
    rows: str = "masked"  # the kind of rows that have its targets (`glassbert.training.data.ROWS`)

    def check(self, head: Head) -> None:
        """Raise an error where a model with this head cannot be trained on it."""
        if self.part not in head.parts:
            wanted = "pretraining" if self.part in ("mlm", "pair") else self.part
            raise TrainingError(
                f"the objective {self.name!r} needs the head {self.part!r}, but this model's head is {head.kind!r}; "
                f"create the model with head={wanted!r}"
            )

    @abstractmethod
    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """The checked targets of a batch of this shape, [rows, length]."""

    @abstractmethod
    def count(self, prepared: Mapping[str, np.ndarray]) -> int:
        """The number of targets that the mean loss is over."""

    @abstractmethod
    def loss(
        self,
        head: Head,
        hidden: Array,
        batch: Batch,
        targets: Mapping[str, Array],
        scope: Scope,
        measure: bool = False,
        sample: SampleTargets | None = None,
    ) -> ObjectiveResult:
        """`measure` computes the sums as well; `sample` replaces the targets by sampled ones."""

    @abstractmethod
    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        """The gradient at the hidden states."""


@dataclass(frozen=True)
class HeadObjective(Objective):
    """The loss of a head, or of a part of a head."""

    name: str
    part: str
    need: str = "labels"
    rows: str = "masked"

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.need,)

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if given.get(self.need) is None:
            raise InputError(f"the objective {self.name!r} needs {self.need} in every batch")
        return self._part(head).head.prepare_labels(as_array(self.need, given[self.need]), shape)

    def count(self, prepared: Mapping[str, np.ndarray]) -> int:
        return int((prepared["targets"] != IGNORED).sum())

    def loss(
        self,
        head: Head,
        hidden: Array,
        batch: Batch,
        targets: Mapping[str, Array],
        scope: Scope,
        measure: bool = False,
        sample: SampleTargets | None = None,
    ) -> ObjectiveResult:
        part, sums = self._part(head), {}
        loss_name = part.head.loss_name

        def on_output(output: Array, given: Array) -> Array:
            if measure and loss_name in MEASURES:  # before the loss, which may overwrite the output
                name, function = MEASURES[loss_name]
                sums[name] = function(output, given)
            return given if sample is None else sample(loss_name, output, given)

        loss = head_loss(part.head, hidden, batch, targets, scope.inside(part.name), on_output)
        return ObjectiveResult(loss, sums)

    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        part = self._part(head)
        return head_loss_backward(part.head, dloss, scope.inside(part.name))

    def _part(self, head: Head) -> HeadPart:
        return head.parts[self.part]


def right_choices(output: Array, targets: Array) -> Array:
    """The number of rows with the highest score at the target; an ignored target (-100) equals no index."""
    best = output.reshape(-1, output.shape[-1]).argmax(-1)
    return (best == targets).sum()


def right_signs(output: Array, targets: Array) -> Array:
    """The number of binary labels that are predicted correctly."""
    return (((output > 0) == (targets > 0.5)) & (targets != IGNORED)).sum()


def right_ranks(output: Array, targets: Array) -> Array:
    """The number of rows with the correct rank. The predicted rank is the number of k with P(rank > k) > 1/2."""
    log_passed = -softplus(-output).cumsum(-1)
    return ((log_passed > math.log(0.5)).sum(-1) == targets).sum()


MEASURES = {
    "cross_entropy": ("accuracy", right_choices),
    "binary_cross_entropy": ("accuracy", right_signs),
    "ordinal": ("accuracy", right_ranks),
}

OBJECTIVES: Registry[Objective] = Registry("objective", holds_objects=True)
for _objective in (
    HeadObjective("mlm", "mlm", "labels"),
    HeadObjective("nsp", "pair", "pair_labels", "next_sentence"),  # whether the second sentence follows the first
    HeadObjective("sop", "pair", "pair_labels", "sentence_order"),  # whether the two are in order
    *(HeadObjective(name, name, "labels") for name in ("sequence", "token", "span", "embedding", "forecast")),
):
    OBJECTIVES.register(_objective.name)(_objective)
# The default of other heads is the objective of the same name.
DEFAULT_OBJECTIVES = {"pretraining": "mlm+nsp", "causal": "clm"}


class Objectives:
    """A weighted sum of objectives over one head."""

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
                    f"{term.strip()!r} is not an objective; write a sum such as 'mlm' or 'mlm+0.5*nsp' "
                    f"of {', '.join(OBJECTIVES)}"
                )
            terms.append((OBJECTIVES[found[2]], _weight(found[1], text)))
        names = [objective.name for objective, _ in terms]
        if len(set(names)) < len(names):
            raise TrainingError(f"{text!r} names an objective twice; give it one weight")
        return cls(terms)

    @classmethod
    def of(cls, head: Head | None, given: str | Objectives | None = None) -> Objectives:
        """The given objectives, or the default of the head; raises if they do not fit the head."""
        if head is None:
            raise InputError("this model has no head, so it has no loss to train on")
        default = DEFAULT_OBJECTIVES.get(head.kind, head.kind)
        if given is None and default not in OBJECTIVES and head.kind not in DEFAULT_OBJECTIVES:  # of an extension
            return cls([(HeadObjective(head.kind, head.kind, head.needs[0]), 1.0)])
        found = given if isinstance(given, Objectives) else cls.parse(given or default)
        for objective, _ in found.terms:
            objective.check(head)
        return found

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(need for objective, _ in self.terms for need in objective.needs))

    @property
    def head_type(self) -> str:
        """The head that a model needs for these objectives."""
        parts = {objective.part for objective, _ in self.terms}
        return next(iter(parts)) if parts <= {"mlm"} or not parts & {"mlm", "pair"} else "pretraining"

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, dict[str, np.ndarray]]:
        return {objective.name: objective.prepare(head, given, shape) for objective, _ in self.terms}

    def counts(self, prepared: Mapping[str, Mapping[str, np.ndarray]]) -> np.ndarray:
        """The number of targets of each objective, [objectives]."""
        return np.array([objective.count(prepared[objective.name]) for objective, _ in self.terms], np.float64)

    def loss(
        self, head: Head, hidden: Array, batch: Batch, targets: Mapping[str, Any], scope: Scope, **options: Any
    ) -> list[ObjectiveResult]:
        """The result of every objective, with unweighted losses."""
        return [o.loss(head, hidden, batch, targets[o.name], scope, **options) for o, _ in self.terms]

    def backward(self, head: Head, dlosses: Sequence[Array], scope: Scope) -> Array:
        """The gradient at the hidden states of Σ dlossesₜ · lossₜ."""
        total = None
        for (objective, _), dloss in zip(self.terms, dlosses, strict=True):
            dhidden = objective.backward(head, dloss, scope)
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
        raise TrainingError(f"{written!r} in {text!r} is not a weight; it must be a number above 0")
    return weight
