"""Planted faults of models of series (patches, window scales, shortcuts, Huber loss) and of low-rank adapters."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.finetuning.low_rank.gradients import AdapterGradients
from glassbert.layers.embeddings import SeriesEmbeddings
from glassbert.layers.positions import LearnedPositions
from glassbert.layers.scope import Scope
from glassbert.models.heads.forecast import ForecastHead
from glassbert.ops import low_rank_backward
from glassbert.proof.mutants import wrong, wrong_in

right_forecast_backward: Any = ForecastHead.backward
right_embed_backward = LearnedPositions.embed_backward
right_linear_backward = Scope.linear_backward
right_norm_backward = Scope.norm_backward
right_add_factors = AdapterGradients.add_factors


# ---- series ----------------------------------------------------------------------------------------------------------


class WithSpread:
    """A scope that gives another spread of the windows."""

    def __init__(self, scope, change):
        self.scope, self.change = scope, change

    def saved(self, name):
        found = self.scope.saved(name)
        return (self.change(found[0]), *found[1:]) if name == "frame" else found

    def __getattr__(self, name):
        return getattr(self.scope, name)


@wrong_in({ForecastHead: "backward"}, "forecast: the spread of the window is left out", "forecast: frame")
def _(self, doutput, scope):
    return right_forecast_backward(self, doutput, WithSpread(scope, np.ones_like))


@wrong_in({ForecastHead: "backward"}, "forecast: divided by the spread once more", "forecast: frame")
def _(self, doutput, scope):
    return right_forecast_backward(self, doutput, WithSpread(scope, lambda spread: 1.0 / spread))


@wrong_in({Scope: "linear_backward"}, "forecast: the shortcut gets no gradient", "forecast: frame")
def _(self, dy, name):
    return right_linear_backward(self, 0.0 * dy if name == "shortcut" else dy, name)


@wrong_in({SeriesEmbeddings: "backward"}, "values: the projection learns from the first patch only", "values")
def _(self, dx, batch, scope):
    dx = self.after_sum_backward(dx, scope)
    self.positions.embed_backward(dx, scope)
    scope.linear_backward(np.concatenate([dx[:, :1], 0.0 * dx[:, 1:]], 1), "projection")


@wrong_in({LearnedPositions: "embed_backward"}, "values: positions learn from the first window only", "values")
def _(self, dx, scope):
    right_embed_backward(self, np.concatenate([dx[:1], 0.0 * dx[1:]]), scope)


@wrong_in({Scope: "norm_backward"}, "values: the norm is left out of the backward", "values: patches")
def _(self, dy, name):
    return dy


@wrong("huber_loss_backward", "huber: the slope goes on growing")
def _(dloss, state):
    near, count = state
    return np.where(np.abs(near) >= near.max(), 2.0 * near, near) * dloss / count


@wrong("huber_loss_backward", "huber: the factor of the squared error, 2")
def _(dloss, state):
    near, count = state
    return 2.0 * near * dloss / count


@wrong("huber_loss_backward", "huber: beyond delta only the sign is left")
def _(dloss, state):
    near, count = state
    return np.where(np.abs(near) >= near.max(), np.sign(near), near) * dloss / count


# ---- low-rank adapters -----------------------------------------------------------------------------------------------


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
