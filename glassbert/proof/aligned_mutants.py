"""Wrong gradients of the comparison of two texts."""

from __future__ import annotations

from glassbert import ops
from glassbert.models.heads.aligned import AlignedHead
from glassbert.proof.mutants import wrong, wrong_in

right_backward = AlignedHead.backward


@wrong("compare_backward", "compare: the distance has the same slope on both sides")
def _(dy, state):
    x, _ = state
    dx, da = ops.compare_backward(dy, state)
    return dx, 2 * x * dy[..., x.shape[-1] :] - da


@wrong("compare_backward", "compare: the product passes its gradient to the wrong factor")
def _(dy, state):
    x, a = state
    dx, da = ops.compare_backward(dy, state)
    dproduct = dy[..., x.shape[-1] :]
    return dx + (x - a) * dproduct, da + (a - x) * dproduct


@wrong("compare_backward", "compare: the slope of the distance is forgotten")
def _(dy, state):
    x, a = state
    dproduct = dy[..., x.shape[-1] :]
    return a * dproduct, x * dproduct


def _compare_backward(self, dcompared, scope, terms):
    dx, daligned = scope.run_backward("compare", dcompared)
    dquery, dkey, dvalue, _ = scope.run_backward("align", daligned[:, None])
    dunit = scope.run_backward("unit", ("q" in terms) * dquery[:, 0] + ("k" in terms) * dkey[:, 0])
    return dx + ("v" in terms) * dvalue[:, 0] + dunit


@wrong_in({AlignedHead: "compare_backward"}, "aligned: a token is no counterpart in the gradient", "aligned")
def _(self, dcompared, scope):
    return _compare_backward(self, dcompared, scope, "qk")


@wrong_in({AlignedHead: "compare_backward"}, "aligned: the weights are constants", "aligned")
def _(self, dcompared, scope):
    return _compare_backward(self, dcompared, scope, "v")


@wrong_in({AlignedHead: "compare_backward"}, "aligned: only the token that looks moves the weights", "aligned")
def _(self, dcompared, scope):
    return _compare_backward(self, dcompared, scope, "qv")


@wrong_in({AlignedHead: "compare_backward"}, "aligned: the length of the vectors is not removed", "aligned")
def _(self, dcompared, scope):
    dx, daligned = scope.run_backward("compare", dcompared)
    dquery, dkey, dvalue, _ = scope.run_backward("align", daligned[:, None])
    return dx + (dvalue + dquery + dkey)[:, 0]


@wrong_in({AlignedHead: "backward"}, "aligned: both texts get the gradient of the first", "aligned")
def _(self, doutput, scope):
    run_backward = scope.run_backward
    scope.run_backward = lambda name, dy, **hints: run_backward("mean.0" if name == "mean.1" else name, dy, **hints)
    return right_backward(self, doutput, scope)
