"""Planted faults of the projection to the width of a teacher."""

from __future__ import annotations

from glassbert.proof.mutants import wrong_in
from glassbert.training.objectives.distillation import PROJECTION, HiddenStates

right_backward = HiddenStates.backward


@wrong_in({HiddenStates: "backward"}, "distillation: the projection learns nothing", "distillation")
def _(self, head, dloss, scope):
    if self.projection(head.config) is None:
        return right_backward(self, head, dloss, scope)
    shape, _ = scope.saved("hidden.input")
    return (scope.run_backward("hidden", dloss) @ scope.parameter(f"{PROJECTION}.weight")).reshape(shape)


@wrong_in({HiddenStates: "backward"}, "distillation: the student learns nothing through the projection", "distillation")
def _(self, head, dloss, scope):
    return 0.0 * right_backward(self, head, dloss, scope)
