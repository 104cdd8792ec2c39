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
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch
from glassbert.models.heads import Head, HeadPart
from glassbert.models.inputs import as_array
from glassbert.models.model import Model
from glassbert.models.passes import Pass, output_loss, output_loss_backward
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
    fixed_targets: bool = True  # False: its targets change while a model learns, so its losses cannot be compared
    beside: tuple[str, ...] = ()  # objectives that must be in the same sum
    taught: str = ""  # what it compares with a teacher, "scores" or "states"; then held-out losses leave it out

    def with_teacher(self, teacher: Any) -> Objective:
        """This objective with a teacher, where it needs one."""
        return self

    def projection(self, config: EncoderConfig) -> int | None:
        """The width to which it projects the hidden states of a student with this config; None: it does not."""
        return None

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
        """The checked targets of a batch of this shape, [rows, length].

        `given` has the fields of `needs`, "input_ids" and "real_tokens" (None: no token is padding).
        """

    @abstractmethod
    def count(self, prepared: Mapping[str, np.ndarray]) -> int:
        """The number of targets that the mean loss is over."""

    def begin(  # noqa: B027 (most objectives have nothing to begin with)
        self, run: Pass, targets: Mapping[str, Array], measure: bool = False, sample: SampleTargets | None = None
    ) -> None:
        """Called before the encoder: an objective may run another encoder, and replace the tokens that ours reads."""

    def rows_read(self, head: Head, batch: Batch, targets: Mapping[str, Array]) -> Array | None:
        """The tokens whose hidden states `loss` reads (`Head.rows_read`); None: all."""
        return None

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
    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array | None:
        """The gradient at the hidden states; None: the loss does not depend on them."""


class OutputObjective(Objective):
    """A loss over the output of a head, or of a part of a head. Objectives of one part compute its output once."""

    @abstractmethod
    def output_loss(
        self,
        head: Head,
        output: Array,
        targets: Mapping[str, Array],
        scope: Scope,
        donate: bool = True,
        measure: bool = False,
        sample: SampleTargets | None = None,
    ) -> ObjectiveResult:
        """`head` is the part, `scope` its scope. `donate`: the loss may overwrite the output."""

    @abstractmethod
    def output_backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        """The gradient at the output of the part."""

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        need = self.needs[0]
        if given.get(need) is None:
            raise InputError(f"the objective {self.name!r} needs {need} in every batch")
        return self.part_of(head).head.prepare_labels(as_array(need, given[need]), shape)

    def count(self, prepared: Mapping[str, np.ndarray]) -> int:
        return int((prepared["targets"] != IGNORED).sum())

    def rows_read(self, head: Head, batch: Batch, targets: Mapping[str, Array]) -> Array | None:
        return self.part_of(head).head.rows_read(batch, targets.get("rows"))

    def output(self, head: Head, hidden: Array, batch: Batch, targets: Mapping[str, Array], scope: Scope) -> Array:
        part = self.part_of(head)
        return part.head.forward(hidden, batch, scope.inside(part.name), targets.get("rows"))

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
        part, output = self.part_of(head), self.output(head, hidden, batch, targets, scope)
        return self.output_loss(part.head, output, targets, scope.inside(part.name), measure=measure, sample=sample)

    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        part = self.part_of(head)
        inner = scope.inside(part.name)
        return part.head.backward(self.output_backward(part.head, dloss, inner), inner)

    def part_of(self, head: Head) -> HeadPart:
        return head.parts[self.part]


@dataclass(frozen=True)
class HeadObjective(OutputObjective):
    """The loss of a head, or of a part of a head."""

    name: str
    part: str
    need: str = "labels"
    rows: str = "masked"

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.need,)

    def output_loss(
        self,
        head: Head,
        output: Array,
        targets: Mapping[str, Array],
        scope: Scope,
        donate: bool = True,
        measure: bool = False,
        sample: SampleTargets | None = None,
    ) -> ObjectiveResult:
        sums = {}

        def on_output(output: Array, given: Array) -> Array:
            if measure and head.loss_name in MEASURES:  # before the loss, which may overwrite the output
                name, function = MEASURES[head.loss_name]
                sums[name] = function(output, given)
            return given if sample is None else sample(head.loss_name, output, given)

        return ObjectiveResult(output_loss(head, output, targets["targets"], scope, on_output, donate), sums)

    def output_backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        return output_loss_backward(head, dloss, scope)


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
    *(
        HeadObjective(name, name, "labels", "labelled")
        for name in ("sequence", "token", "span", "embedding", "forecast")
    ),
):
    OBJECTIVES.register(_objective.name)(_objective)
SHORT_SUMS: dict[str, str] = {}  # names of whole sums
# The default of other heads is the objective of the same name.
DEFAULT_OBJECTIVES = {"pretraining": "mlm+nsp", "causal": "clm"}


class Objectives:
    """A weighted sum of objectives over one head, perhaps with a teacher (`glassbert.training.teacher`)."""

    def __init__(self, terms: Sequence[tuple[Objective, float]], teacher: Any = None):
        self.terms = tuple(terms)
        self.teacher = teacher
        self.names = tuple(objective.name for objective, _ in self.terms)
        self.weights = np.array([weight for _, weight in self.terms])

    @classmethod
    def parse(cls, text: str) -> Objectives:
        """ "mlm", "mlm+sop", "mlm + 0.5*nsp"."""
        terms = []
        for term in SHORT_SUMS.get(text.strip(), text).split("+"):
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
        for objective, _ in terms:
            for other in set(objective.beside) - set(names):
                raise TrainingError(
                    f"the objective {objective.name!r} in {text!r} needs {other!r} beside it; write "
                    + " or ".join(f"{name!r} ({whole})" for name, whole in SHORT_SUMS.items() if other in whole)
                )
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
    def comparable(self) -> np.ndarray:
        """The weights of the objectives whose losses can be compared during a run; 0 for the others."""
        return np.array([weight * objective.fixed_targets for objective, weight in self.terms])

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(need for objective, _ in self.terms for need in objective.needs))

    @property
    def taught(self) -> frozenset[str]:
        """What these objectives compare with a teacher: "scores", "states", both or nothing."""
        return frozenset(objective.taught for objective, _ in self.terms if objective.taught)

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

    def check_taught(self) -> None:
        """Raise if no objective compares with a teacher."""
        if not self.taught:
            named = ", ".join(name for name, objective in OBJECTIVES.items() if objective.taught)
            raise TrainingError(
                f"the objective {str(self)!r} does not use a teacher; add one of {named}, as in 'mlm+distill'"
            )

    def with_teacher(self, teacher: Any) -> Objectives:
        """The same sum, with a teacher for the objectives that compare with one."""
        self.check_taught()
        return Objectives([(objective.with_teacher(teacher), weight) for objective, weight in self.terms], teacher)

    def prepared_student(self, model: Model) -> Model:
        """The model, with a map to the width of the teacher's hidden states where an objective compares these."""
        widths = {one.projection(model.config) for one, _ in self.terms} - {None}
        return model.with_config(model.config.replace(teacher_size=widths.pop())) if widths else model

    def held_out(self, head: Head) -> Objectives:
        """What held-out rows are measured by: the terms without a teacher, so that runs can be compared."""
        terms = [(objective, weight) for objective, weight in self.terms if not objective.taught]
        return Objectives(terms) if terms else Objectives.of(head)

    def teach(self, targets: dict[str, Any], checked: Mapping[str, Any] | None) -> dict[str, Any]:
        """Targets with the values of the teacher, which reads the same inputs; without a teacher, the targets."""
        if self.teacher is None:
            return targets
        taught = {objective.name: objective.taught for objective, _ in self.terms if objective.taught}
        rows = next((targets[name]["rows"] for name in taught if "rows" in targets[name]), None)
        values = self.teacher(checked, rows, self.taught)
        more = {name: {what: values[what]} for name, what in taught.items()}
        return {name: {**one, **more.get(name, {})} for name, one in targets.items()}

    def begin(self, run: Pass, targets: Mapping[str, Any], **options: Any) -> None:
        for objective, _ in self.terms:
            objective.begin(run, targets[objective.name], **options)

    def rows_read(self, head: Head, batch: Batch, targets: Mapping[str, Any]) -> Array | None:
        """The tokens whose hidden states are read; None: all. Objectives of one part read the same ones."""
        terms = [objective for objective, _ in self.terms]
        if len({objective.part for objective in terms}) > 1:
            return None
        read = [objective.rows_read(head, batch, targets[objective.name]) for objective in terms]
        return None if any(rows is None for rows in read) else read[0]

    def loss(
        self, head: Head, hidden: Array, batch: Batch, targets: Mapping[str, Any], scope: Scope, **options: Any
    ) -> list[ObjectiveResult]:
        """The result of every objective, with unweighted losses."""
        outputs: dict[str, Array] = {}
        last = {objective.part: objective for objective, _ in self.terms if isinstance(objective, OutputObjective)}
        results = []
        for objective, _ in self.terms:
            own = targets[objective.name]
            if not isinstance(objective, OutputObjective):
                results.append(objective.loss(head, hidden, batch, own, scope, **options))
                continue
            name = objective.part
            if name not in outputs:
                outputs[name] = objective.output(head, hidden, batch, own, scope)
            part, donate = head.parts[name], objective is last[name]
            inner = scope.inside(part.name)
            results.append(objective.output_loss(part.head, outputs[name], own, inner, donate=donate, **options))
        return results

    def backward(self, head: Head, dlosses: Sequence[Array], scope: Scope) -> Array:
        """The gradient at the hidden states of Σ dlossesₜ · lossₜ."""
        total, doutputs = None, {}  # type: Array, dict[str, Array]
        for (objective, _), dloss in zip(self.terms, dlosses, strict=True):
            if isinstance(objective, OutputObjective):
                name = objective.part
                part = head.parts[name]
                doutput = objective.output_backward(part.head, dloss, scope.inside(part.name))
                doutputs[name] = doutputs[name] + doutput if name in doutputs else doutput
            else:
                dhidden = objective.backward(head, dloss, scope)
                if dhidden is None:
                    continue
                total = dhidden if total is None else total + dhidden.reshape(total.shape)
        for name, doutput in doutputs.items():
            part = head.parts[name]
            dhidden = part.head.backward(doutput, scope.inside(part.name))
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
