"""Wrong gradients of series: of patches, frames, shortcuts and the Huber loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.layers import basics, embeddings, values
from glassbert.models.heads import forecast
from glassbert.proof.mutants import wrong, wrong_in

right_forecast_backward: Any = forecast.ForecastHead.backward
right_learn_positions = embeddings.learn_positions
right_dense_backward = basics.dense_backward


class Remembering:
    """A scope that answers one name differently."""

    def __init__(self, at, **other):
        self.at, self.other = at, other

    def __getitem__(self, name):
        return self.other[name] if name in self.other else self.at[name]

    def __getattr__(self, name):
        return getattr(self.at, name)


@wrong_in(
    {forecast.ForecastHead: "backward"}, "forecast: the window's spread is forgotten on the way back", "forecast: frame"
)
def _(self, doutput, at):
    return right_forecast_backward(self, doutput, Remembering(at, spread=np.ones_like(at["spread"])))


@wrong_in({forecast.ForecastHead: "backward"}, "forecast: divided by the spread once more", "forecast: frame")
def _(self, doutput, at):
    return right_forecast_backward(self, doutput, Remembering(at, spread=1.0 / at["spread"]))


@wrong_in({forecast: "dense_backward"}, "forecast: the shortcut never learns", "forecast: frame")
def _(dy, x, at, name):
    return right_dense_backward(0.0 * dy if name == "shortcut" else dy, x, at, name)


@wrong_in({values: "dense_backward"}, "values: the projection learns from the first patch only", "values")
def _(dy, x, at, name):
    return right_dense_backward(np.concatenate([dy[:, :1], 0.0 * dy[:, 1:]], 1), x, at, name)


@wrong_in({values: "learn_positions"}, "values: positions learn from the first window only", "values")
def _(dx, at):
    right_learn_positions(dx[:1], at)


@wrong_in({embeddings: "norm_backward"}, "values: the norm is skipped on the way back", "values: patches")
def _(dy, at, name):
    return dy


@wrong("huber_loss_backward", "huber: the slope goes on growing")
def _(dloss, cache):
    near, count = cache
    return np.where(np.abs(near) >= near.max(), 2.0 * near, near) * dloss / count


@wrong("huber_loss_backward", "huber: the factor of the squared error, 2")
def _(dloss, cache):
    near, count = cache
    return 2.0 * near * dloss / count


@wrong("huber_loss_backward", "huber: beyond delta only the sign is left")
def _(dloss, cache):
    near, count = cache
    return np.where(np.abs(near) >= near.max(), np.sign(near), near) * dloss / count
