"""Baselines of a forecast, and the linear model that a shortcut can start from.

    naive              the last value
    seasonal naive     the values one period before
    linear             autoregression by least squares (`LinearForecast`), without normalised windows

`LinearForecast` is one linear map from a normalised window z to its horizon:

    out = A · z + b          forecast = out · spread + centre

Errors count in the units of the series, so each row of the least squares is weighted by the spread of its window. A
ridge regularises A, because neighbouring values are almost equal; its size is chosen on the validation windows. The
linear baseline gets the same data as the model: the same windows and logarithms, and everything before the test part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glassbert.forecasting.plan import SeriesPlan
from glassbert.layers.embeddings import frame
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Forecasts, seasonal_naive

RIDGES = (1e-4, 1e-2, 1.0, 10.0, 100.0)  # in units of the mean square of the windows


@dataclass(frozen=True)
class LinearForecast:
    """`slope` [horizon, window] and `constant` [horizon], for windows normalised as in `config`."""

    slope: np.ndarray
    constant: np.ndarray
    config: SeriesConfig

    @classmethod
    def fit(cls, windows: Forecasts, config: SeriesConfig, ridge: float) -> LinearForecast:
        z, centre, spread = _normalised(windows.inputs, config)
        x = np.concatenate([z, np.ones_like(spread)], 1) * spread  # [W, window + 1]
        y = config.scaled(windows.targets) - centre
        penalty = np.full(x.shape[1], ridge * (float(np.mean(x[:, :-1] ** 2)) or 1.0))
        penalty[-1] = 1e-9  # the constant is not regularised
        solution = np.linalg.solve(x.T @ x + np.diag(penalty), x.T @ y)
        return cls(solution[:-1].T, solution[-1], config)

    def forecast(self, inputs: np.ndarray) -> np.ndarray:
        z, centre, spread = _normalised(inputs, self.config)
        return self.config.unscaled((z @ self.slope.T + self.constant) * spread + centre)


def best_ridge(train: Forecasts, validation: Forecasts, config: SeriesConfig) -> float:
    """The ridge with the smallest mean absolute error on the validation windows."""

    def error(ridge: float) -> float:
        return float(
            np.abs(LinearForecast.fit(train, config, ridge).forecast(validation.inputs) - validation.targets).mean()
        )

    return min(RIDGES, key=error)


def _normalised(inputs: np.ndarray, config: SeriesConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scaled = config.scaled(inputs)
    centre, spread = frame(scaled, config)
    return (scaled - centre) / spread, centre, spread


def baselines(plan: SeriesPlan, windows: Forecasts) -> dict[str, np.ndarray]:
    """Forecasts [W, horizon] of every baseline for `windows`."""
    last_period = np.stack(
        [plan.values[cut - plan.period : cut] for cut in windows.cuts]
    )  # may reach before the window
    linear = LinearForecast.fit(plan.before_test, plan.config, best_ridge(plan.train, plan.validation, plan.config))
    return {
        "naive": seasonal_naive(windows.inputs, plan.horizon),
        "seasonal naive": seasonal_naive(last_period, plan.horizon, plan.period),
        "linear": linear.forecast(windows.inputs),
    }
