"""Distillation: a student learns what a teacher answers, besides the words themselves.

    distill   T² · KL(teacher ‖ student) of the scores, both softened by the temperature T
    hidden    1 - cosine of the last hidden states, over all real tokens

    DistilBERT:   --objective "2*mlm+5*distill+hidden" --teacher FOLDER --temperature 2

The teacher computes the same masked rows as the student inside the step (`glassbert.training.teacher`). It shares the
vocabulary; its width may be another for `distill`, but not for `hidden`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import TrainingError
from glassbert.layers.scope import Scope
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

if TYPE_CHECKING:
    from glassbert.training.teacher import Teacher


def check_teacher(name: str, teacher: Teacher | None) -> Teacher:
    if teacher is None:
        raise TrainingError(f"the objective {name!r} compares with a teacher; name its folder with --teacher FOLDER")
    return teacher


@dataclass(frozen=True)
class SoftTargets(OutputObjective):
    """The distribution of the teacher instead of one right answer."""

    teacher: Teacher | None = None
    part: str = "mlm"
    name = "distill"
    taught = "scores"

    def with_teacher(self, teacher: Teacher) -> SoftTargets:
        return SoftTargets(teacher, teacher.part)

    def check(self, head: Head) -> None:
        teacher = check_teacher(self.name, self.teacher)
        super().check(head)
        part = self.part_of(head).head
        if part.criterion[0] not in ROW_LOSSES:
            raise TrainingError(
                f"the objective {self.name!r} compares distributions over classes, and the loss of this "
                f"{part.kind} head is {part.loss_name}"
            )
        teacher.check_outputs(part)

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
        scope.save("distill.output", (output.shape, output.dtype))
        rows = output.reshape(-1, output.shape[-1])  # [N, V]
        wanted = targets["scores"].reshape(rows.shape)
        temperature = check_teacher(self.name, self.teacher).temperature
        loss = scope.run("soft_target_loss", "distill", rows, wanted, targets["targets"], temperature=temperature)
        return ObjectiveResult(scope.record("distill", loss), {})

    def output_backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        shape, dtype = scope.saved("distill.output")
        doutput = scope.run_backward("distill", dloss).reshape(shape)
        return doutput if doutput.dtype == dtype else doutput.astype(dtype)


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
        if width != head.config.hidden_size:
            raise TrainingError(
                f"the objective {self.name!r} compares hidden states of one width, but the teacher has {width} and the "
                f"student {head.config.hidden_size}; leave it out, or choose --hidden-size {width}"
            )

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        real = given.get("real_tokens")
        return {"targets": np.where(np.ones(shape) if real is None else real, 0, IGNORED).reshape(-1)}

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
        wanted = targets["states"].reshape(rows.shape)
        loss = scope.run("cosine_distance_loss", "hidden", rows, wanted, targets["targets"])
        return ObjectiveResult(scope.record("hidden", loss), {})

    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        shape, dtype = scope.saved("hidden.input")
        dhidden = scope.run_backward("hidden", dloss).reshape(shape)
        return dhidden if dhidden.dtype == dtype else dhidden.astype(dtype)


OBJECTIVES.register("distill")(SoftTargets())
OBJECTIVES.register("hidden")(HiddenStates())
