"""Autoregression: one linear map from a window to its horizon, by least squares. The model to beat, and to begin with.

    out = A · z + b          z: the window in its frame          forecast = out · spread + centre

Errors count outside the frame, so each row of the least squares is weighted by its window's spread. A small ridge
keeps A quiet where values of a window say almost the same; how much of it, windows decide that were not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glassbert.layers.values import frame
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Forecasts

RIDGES = (1e-4, 1e-2, 1.0, 10.0, 100.0)  # in units of the windows' mean square


@dataclass(frozen=True)
class Line:
    """`slope` [horizon, window] and `constant` [horizon], in the frame and on the scale of `config`."""

    slope: np.ndarray
    constant: np.ndarray
    config: SeriesConfig

    @classmethod
    def fit(cls, windows: Forecasts, config: SeriesConfig, ridge: float) -> Line:
        z, centre, spread = _framed(windows.inputs, config)
        x = np.concatenate([z, np.ones_like(spread)], 1) * spread  # [W, window + 1]
        y = config.scaled(windows.targets) - centre
        quiet = np.full(x.shape[1], ridge * (float(np.mean(x[:, :-1] ** 2)) or 1.0))
        quiet[-1] = 1e-9  # the constant may be what it wants
        solution = np.linalg.solve(x.T @ x + np.diag(quiet), x.T @ y)
        return cls(solution[:-1].T, solution[-1], config)

    def forecast(self, inputs: np.ndarray) -> np.ndarray:
        z, centre, spread = _framed(inputs, self.config)
        return self.config.unscaled((z @ self.slope.T + self.constant) * spread + centre)


def best_ridge(train: Forecasts, validation: Forecasts, config: SeriesConfig) -> float:
    """The ridge whose line has the smallest mean absolute error on the validation windows."""

    def error(ridge: float) -> float:
        return float(np.abs(Line.fit(train, config, ridge).forecast(validation.inputs) - validation.targets).mean())

    return min(RIDGES, key=error)


def _framed(inputs: np.ndarray, config: SeriesConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scaled = config.scaled(inputs)
    centre, spread = frame(scaled, config)
    return (scaled - centre) / spread, centre, spread
