"""Pictures of a forecast: what was known, what came, what the model and the seasonal naive forecast said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glassbert.forecasting.forecast import OURS, Forecasted
from glassbert.reports import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_HISTORY = 4  # horizons, at least as many values as make a window
TRUTH, MODEL, SEASONAL, LINEAR, NAIVE = 5, 1, 2, 3, 4  # colours
COLOURS = {OURS: MODEL, "seasonal naive": SEASONAL, "linear": LINEAR, "naive": NAIVE}


def window_picture(result: Forecasted, window: int) -> Figure:
    """One test window: history, truth, model, seasonal naive."""
    plan, cut = result.plan, int(result.test.cuts[window])
    first = max(0, cut - max(SHOWN_HISTORY * plan.horizon, result.series.window))
    ahead = np.arange(cut, cut + plan.horizon)

    def from_now(values: np.ndarray) -> np.ndarray:
        """A forecast drawn from the last known value on, so that its line hangs together with the history."""
        return np.concatenate([[plan.values[cut - 1]], values])

    places = np.concatenate([[cut - 1], ahead])
    return figures.lines(
        {
            "_history": figures.Series(np.arange(first, cut), plan.values[first:cut], colour=TRUTH),
            "truth": figures.Series(places, from_now(result.test.targets[window]), colour=TRUTH),
            "seasonal naive": figures.Series(
                places, from_now(result.baselines["seasonal naive"][window]), colour=SEASONAL, dashed=True
            ),
            OURS: figures.Series(places, from_now(result.predicted[window]), colour=MODEL),
        },
        xlabel="step",
        ylabel=plan.series.name,
        marks={"now": cut - 1},
    )


def future_picture(result: Forecasted) -> Figure:
    """The end of the series and what comes after it, with the range of eight futures in ten."""
    plan, end = result.plan, len(result.plan.values)
    first = max(0, end - max(SHOWN_HISTORY * plan.horizon, result.series.window))
    places = np.arange(end - 1, end + plan.horizon)
    last = plan.values[-1:]
    return figures.lines(
        {
            "_history": figures.Series(np.arange(first, end), plan.values[first:], colour=TRUTH),
            "forecast": figures.Series(
                places, np.concatenate([last, result.future]), colour=MODEL,
                low=np.concatenate([last, result.low]), high=np.concatenate([last, result.high]),
            ),
        },
        xlabel="step",
        ylabel=plan.series.name,
        marks={"now": end - 1},
    )  # fmt: skip


def horizon_picture(result: Forecasted) -> Figure:
    """The mean absolute error of every step ahead."""
    steps = np.arange(1, result.plan.horizon + 1)
    forecasts = {OURS: result.predicted, **result.baselines}
    errors = {name: np.abs(p - result.test.targets).mean(0) for name, p in forecasts.items()}
    return figures.lines(
        {
            name: figures.Series(steps, error, colour=COLOURS[name], dashed=name != OURS)
            for name, error in errors.items()
        },
        xlabel="steps ahead",
        ylabel="mean absolute error",
    )


def learning_picture(result: Forecasted) -> Figure:
    """The validation error along every seed's training; a mark where the best one was kept."""
    best = next(seed for seed in result.seeds if seed.seed == result.best)
    curves = {f"seed {s.seed}": figures.Series(*np.array(s.fitted.curve).T) for s in result.seeds}
    return figures.lines(
        curves, xlabel="step", ylabel="mean absolute error, validation", marks={"kept": best.fitted.step}, height=2.6
    )


def typical_window(result: Forecasted) -> int:
    """The test window whose error is the median: neither the best nor the worst to show."""
    errors = np.abs(result.predicted - result.test.targets).mean(1)
    return int(np.argsort(errors, kind="stable")[len(errors) // 2])
