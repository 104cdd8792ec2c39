"""Distillation: a student learns what a teacher answers, besides the words themselves.

    distill   T² · KL(teacher ‖ student) of the scores, both softened by the temperature T
    given     the same, with scores that the teacher gave before: they are part of the batch
    hidden    1 - cosine of the last hidden states, over all real tokens; projected if the widths differ
    relations KL(teacher ‖ student) of the relations of each token to the others, softmax(x xᵀ / √d), of any widths

A score of its own, of a binary or multilabel head or of a step between ranks, is a choice between two: its distribution
is softmax([0, z]).

    DistilBERT:   --objective "2*mlm+5*distill+hidden" --teacher FOLDER --temperature 2

The teacher computes the same masked rows as the student inside the step (`glassbert.training.teacher`). It shares the
vocabulary, except where only hidden states are learned; its width may be another. For `hidden` a learned linear map,
`head.teacher.weight`, takes the student's states to the width of the teacher (`config.teacher_size`); it is left out
when the training ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.errors import TrainingError
from glassbert.layers.scope import Scope
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch
from glassbert.models.heads import Head
from glassbert.models.passes import ROW_LOSSES
from glassbert.ops import IGNORED
from glassbert.training.objectives.base import (
    OBJECTIVES,
    Objective,
    ObjectiveResult,
    OutputObjective,
    SampleTargets,
)

PROJECTION = "teacher"  # the map `head.teacher.weight`
MOST_RELATION_HEADS = 16  # parts into which both widths are cut
SEPARATE_LOSSES = ("binary_cross_entropy", "binary_focal_loss", "ordinal_loss")  # outputs that are scores of their own

if TYPE_CHECKING:
    from glassbert.training.teacher import Teacher


def check_teacher(name: str, teacher: Teacher | None) -> Teacher:
    if teacher is None:
        raise TrainingError(f"the objective {name!r} compares with a teacher; name its folder with --teacher FOLDER")
    return teacher


class SoftLoss(OutputObjective):
    """A loss against the scores of a teacher, `targets["scores"]`."""

    temperature: float

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
        scope.save(f"{self.name}.output", (output.shape, output.dtype))
        rows, wanted = as_rows(output, head), as_rows(targets["scores"].reshape(output.shape), head)  # [N, V]
        valid = targets["targets"]
        if head.criterion[0] not in ROW_LOSSES and valid.ndim == 1:  # one for all scores of a text
            valid = valid[:, None] + namespace(valid).zeros(output.shape, dtype=valid.dtype)
        valid = valid.reshape(-1)
        loss = scope.run("soft_target_loss", self.name, rows, wanted, valid, temperature=self.temperature)
        return ObjectiveResult(scope.record(self.name, loss), {})

    def output_backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        shape, dtype = scope.saved(f"{self.name}.output")
        drows = scope.run_backward(self.name, dloss)
        doutput = (drows if head.criterion[0] in ROW_LOSSES else drows[:, 1]).reshape(shape)
        return doutput if doutput.dtype == dtype else doutput.astype(dtype)


def as_rows(scores: Array, head: Head) -> Array:
    """Scores [..., outputs] as rows of classes [N, V]; a score of its own becomes the row [0, z]."""
    if head.criterion[0] in ROW_LOSSES:
        return scores.reshape(-1, scores.shape[-1])
    flat = scores.reshape(-1)
    return namespace(flat).stack([0 * flat, flat], -1)


def check_distribution(name: str, head: Head) -> None:
    """Raise if the outputs of a head are no scores of classes, labels or ranks."""
    if head.criterion[0] not in (*ROW_LOSSES, *SEPARATE_LOSSES):
        raise TrainingError(
            f"the objective {name!r} compares distributions over classes, and the loss of this {head.kind} head is "
            f"{head.loss_name}"
        )


@dataclass(frozen=True)
class GivenScores(SoftLoss):
    """Scores that a teacher gave before, as `scores` of the batch: [B, outputs] or [B, T, outputs]; NaN: none."""

    part: str = "sequence"
    temperature: float = 2.0
    name = "given"
    needs = ("scores",)

    def check(self, head: Head) -> None:
        super().check(head)
        check_distribution(self.name, self.part_of(head).head)

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if given.get("scores") is None:
            raise TrainingError(f"the objective {self.name!r} needs the scores of a teacher in every batch")
        scores = np.asarray(given["scores"], np.float64)
        known = np.asarray(np.isfinite(scores).all(-1))
        targets = np.where(known, 0, IGNORED).reshape(-1)
        return {"targets": targets, "scores": np.where(known[..., None], scores, 0.0)}


@dataclass(frozen=True)
class SoftTargets(SoftLoss):
    """The distribution of the teacher instead of one right answer."""

    teacher: Teacher | None = None
    part: str = "mlm"
    name = "distill"
    taught = "scores"

    @property
    def temperature(self) -> float:  # type: ignore[override]
        return check_teacher(self.name, self.teacher).temperature

    def with_teacher(self, teacher: Teacher) -> SoftTargets:
        return SoftTargets(teacher, teacher.part)

    def check(self, head: Head) -> None:
        teacher = check_teacher(self.name, self.teacher)
        if teacher.model.head is None:
            raise TrainingError(f"the objective {self.name!r} learns the scores of a teacher, and this one has no head")
        super().check(head)
        part = self.part_of(head).head
        check_distribution(self.name, part)
        teacher.check_outputs(part)


@dataclass(frozen=True)
class HiddenStates(Objective):
    """The direction of the teacher's last hidden state, at every real token."""

    teacher: Teacher | None = None
    name = "hidden"
    needs = ()
    taught = "states"

    def with_teacher(self, teacher: Teacher) -> HiddenStates:
        return HiddenStates(teacher)

    def check(self, head: Head) -> None:
        width = check_teacher(self.name, self.teacher).model.config.hidden_size
        if width not in (head.config.hidden_size, head.config.teacher_size):
            raise TrainingError(
                f"the objective {self.name!r} compares hidden states of one width, but the teacher has {width} and the "
                f"student {head.config.hidden_size}; give the student's config teacher_size={width}, for a projection"
            )

    def projection(self, config: EncoderConfig) -> int | None:
        width = check_teacher(self.name, self.teacher).model.config.hidden_size
        return None if width == config.hidden_size else width

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        real = given.get("real_tokens")
        compared = np.ones(shape, bool) if real is None else np.asarray(real, bool)
        if given.get("pieces") is not None:  # of a teacher with other tokens
            compared = compared & (given["pieces"] > 0)
        return {"targets": np.where(compared, 0, IGNORED).reshape(-1)}

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
        scope.save("hidden.input", (hidden.shape, hidden.dtype))
        rows = hidden.reshape(-1, hidden.shape[-1])  # [B·T, H]
        if self._projects(head):
            rows = scope.linear(rows, PROJECTION)  # [B·T, H of the teacher]
        wanted = targets["states"].reshape(rows.shape)
        loss = scope.run("cosine_distance_loss", "hidden", rows, wanted, targets["targets"])
        return ObjectiveResult(scope.record("hidden", loss), {})

    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        shape, dtype = scope.saved("hidden.input")
        drows = scope.run_backward("hidden", dloss)
        if self._projects(head):
            drows = scope.linear_backward(drows, PROJECTION)
        dhidden = drows.reshape(shape)
        return dhidden if dhidden.dtype == dtype else dhidden.astype(dtype)

    def _projects(self, head: Head) -> bool:
        return self.projection(head.config) is not None


@dataclass(frozen=True)
class Relations(HiddenStates):
    """How near the last hidden state of each token is to those of the others of its text, as in the teacher."""

    name = "relations"

    def with_teacher(self, teacher: Teacher) -> Relations:
        return Relations(teacher)

    def check(self, head: Head) -> None:
        check_teacher(self.name, self.teacher)

    def projection(self, config: EncoderConfig) -> int | None:
        return None

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
        wanted = targets["states"]
        real = (targets["targets"] != IGNORED).reshape(hidden.shape[:2])
        common = math.gcd(hidden.shape[-1], wanted.shape[-1])
        heads = max(n for n in range(1, MOST_RELATION_HEADS + 1) if common % n == 0)
        loss = scope.run("relation_loss", self.name, hidden, wanted, real, heads=heads)
        return ObjectiveResult(scope.record(self.name, loss), {})

    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        return scope.run_backward(self.name, dloss)


OBJECTIVES.register("distill")(SoftTargets())
OBJECTIVES.register("hidden")(HiddenStates())
OBJECTIVES.register("relations")(Relations())
