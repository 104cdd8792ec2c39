"""Wrong gradients of adapters."""

from __future__ import annotations

from glassbert.finetuning.low_rank.gradients import AdapterGradients
from glassbert.ops import low_rank_backward
from glassbert.proof.mutants import wrong, wrong_in

right_add_factors = AdapterGradients.add_factors


@wrong("low_rank_backward", "low rank: alpha / rank forgotten on the way back", "low rank")
def _(factors, state):
    a, b, _ = state
    return low_rank_backward(factors, (a, b, 1.0))


@wrong("low_rank_backward", "low rank: alpha / rank counted twice for B", "low rank")
def _(factors, state):
    da, db = low_rank_backward(factors, state)
    return da, state[2] * db


@wrong("low_rank_backward", "low rank: A learns through A (noticed only if all sizes are equal)")
def _(factors, state):
    (dy, x), (a, b, scale) = factors, state
    da, db = low_rank_backward(factors, state)
    return ((scale * (dy @ a)).T @ x if a.shape == b.shape else da), db


@wrong("low_rank_backward", "low rank: B learns nothing", "low rank")
def _(factors, state):
    da, db = low_rank_backward(factors, state)
    return da, 0.0 * db


@wrong_in(
    {AdapterGradients: "add_factors"},
    "low rank: every adapter of a stacked matrix learns from its first rows",
    "low rank",
)
def _(self, name, dy, x, parameters):
    if name not in self.adapters:
        return False
    size = self.adapters[name][0].rows.stop - self.adapters[name][0].rows.start
    first = dy[..., :size]
    return right_add_factors(self, name, first.repeat(-(-dy.shape[-1] // size), -1)[..., : dy.shape[-1]], x, parameters)


@wrong_in({AdapterGradients: "add_factors"}, "low rank: adapters learn from the first sequence only", "low rank")
def _(self, name, dy, x, parameters):
    return right_add_factors(self, name, dy[:1], x[:1], parameters)
