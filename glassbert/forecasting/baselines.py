"""What a forecast must be better than: the last value, the last period, and a straight line.

    naive              tomorrow is as today
    seasonal naive     tomorrow is as one period ago
    linear             autoregression (`glassbert.forecasting.line`), without a frame

The linear one is given what the model is given: the same windows, the same logarithms, the validation part to choose
by, and everything before the test to learn from.
"""

from __future__ import annotations

import numpy as np

from glassbert.forecasting.choices import SeriesPlan
from glassbert.forecasting.line import Line, best_ridge
from glassbert.tasks.series import Forecasts, seasonal_naive


def baselines(plan: SeriesPlan, asked: Forecasts) -> dict[str, np.ndarray]:
    """Forecasts [W, horizon] of every baseline for the windows in `asked`."""
    last_period = np.stack([plan.values[cut - plan.period : cut] for cut in asked.cuts])  # may reach before the window
    line = Line.fit(plan.before_test, plan.config, best_ridge(plan.train, plan.validation, plan.config))
    return {
        "naive": seasonal_naive(asked.inputs, plan.horizon),
        "seasonal naive": seasonal_naive(last_period, plan.horizon, plan.period),
        "linear": line.forecast(asked.inputs),
    }
