"""The HTML report of a forecast: comparison with the baselines, the next values, test windows, training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glassbert.forecasting.bands import COVERAGE
from glassbert.forecasting.dates import as_datetime64, date_texts, next_times
from glassbert.forecasting.forecast import OURS, Forecasted, ForecastScores
from glassbert.reports import Page, figures, number, share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEASONAL, LINEAR = "seasonal naive", "linear"
OPEN_UP_TO = 24  # rows
SHOWN_HISTORY = 4  # horizons of history in a figure, at least one window
TRUTH_COLOUR = 5
COLOURS = {OURS: 1, SEASONAL: 2, LINEAR: 3, "naive": 4}


def write_report(path: Path, result: Forecasted) -> Path:
    plan = result.plan
    page = Page(
        f"{plan.series.name}: the next {plan.horizon} values",
        f"{len(plan.values):,} values of {Path(plan.series.source).name}; tested on {len(result.test):,} windows at "
        "its end, which were not used in training",
    )
    _verdict(page, result)
    page.heading("Next values")
    page.figure(
        lambda: future_figure(result),
        f"The end of the series and its forecast. The band should contain {100 * COVERAGE:g} % of the values. "
        f"Bands made in the same way for the test windows, each from the errors known at its time, contained "
        f"{share(result.bands.coverage)} of the test values.",
    )
    names = result.future_times or [str(step) for step in range(1, plan.horizon + 1)]
    rows = list(zip(names, result.future, result.low, result.high, strict=True))
    headers = ["time" if result.future_times else "step", "forecast", "low", "high"]
    with page.details("The values", open=len(rows) <= OPEN_UP_TO) as inside:
        inside.table(headers, rows)
    page.heading("Test windows")
    median = median_window(result)
    page.figure(lambda: window_figure(result, median), f"The test window with the median error{_from(result, median)}.")
    last = len(result.test) - 1
    page.figure(lambda: window_figure(result, last), f"The last test window{_from(result, last)}.")
    page.figure(lambda: horizon_figure(result), "The mean error by forecast step.")
    _scores(page, result)
    _training(page, result)
    return page.write(path)


def _verdict(page: Page, result: Forecasted) -> None:
    scores = result.scores()
    ours, seasonal, linear = scores[OURS], scores[SEASONAL], scores[LINEAR]
    spread = result.spread()
    several = f"{spread} over seeds" if spread is not None and spread.seeds > 1 else ""
    page.facts([
        ("MASE", "–" if ours.mase is None else ours.mase, several),
        ("RMSE", ours.rmse, "in the units of the series"),
        (f"RMSE of {SEASONAL}", seasonal.rmse, f"the value {_period_text(result)} before"),
        (f"RMSE of {LINEAR}", linear.rmse, "autoregression by least squares"),
    ])  # fmt: skip
    better = [name for name, other in scores.items() if name in result.baselines and _beats(ours, other)]
    worse = [name for name in result.baselines if name not in better]
    if not worse:
        page.good(f"Better than all of {', '.join(result.baselines)}.")
    else:
        page.message(
            "warning",
            f"Not better than {' and '.join(worse)}"
            + (f", but better than {' and '.join(better)}." if better else "."),
            "Use the simpler forecast, or train on a longer series.",
        )


def _from(result: Forecasted, window: int) -> str:
    """The date at which the horizon of a window begins."""
    times = result.plan.series.times
    return "" if times is None else f", from {date_texts(times)[int(result.test.cuts[window])]}"


def _period_text(result: Forecasted) -> str:
    return "one step" if result.plan.period == 1 else f"{result.plan.period} steps"


def _beats(ours: ForecastScores, other: ForecastScores) -> bool:
    """By MASE, or by RMSE if MASE is undefined."""
    return ours.rmse < other.rmse if ours.mase is None or other.mase is None else ours.mase < other.mase


def _scores(page: Page, result: Forecasted) -> None:
    rows = [
        (name, "–" if s.mase is None else number(s.mase), number(s.rmse), number(s.smape))
        for name, s in result.scores().items()
    ]
    page.table(["forecast", "MASE", "RMSE", "sMAPE, %"], rows, "All test windows; smaller is better. MASE divides the "
               f"mean error by that of the value {_period_text(result)} before, outside of the test part.")  # fmt: skip


def _training(page: Page, result: Forecasted) -> None:
    plan, settings = result.plan, result.settings
    page.heading("Training")
    for note in plan.notes:
        page.text(note)
    page.text(
        f"Trained on the first {plan.validated_from:,} values. The next {plan.tested_from - plan.validated_from:,} "
        f"selected the recipe and the number of steps"
        + (", and were then added to the training of the final model." if settings.refit else ".")
    )
    page.table(
        ["recipe", "mean absolute error, validation"],
        [
            (f"{recipe}{' (chosen)' if recipe == result.recipe else ''}", error)
            for recipe, error in result.tried.items()
        ],
    )
    page.figure(lambda: learning_figure(result), "The validation error of every seed. The averaged weights "
                "with the smallest error are kept.")  # fmt: skip
    page.code('from glassbert.forecasting import Forecaster\n\nForecaster.load("RUN")(values).values')


# ---- figures -------------------------------------------------------------------------------------------------------


def positions(result: Forecasted) -> np.ndarray:
    """The positions of all values and of the next ones on the axis of a figure: dates, or numbers of steps."""
    plan = result.plan
    times = plan.series.times
    if times is None:
        return np.arange(len(plan.values) + plan.horizon)
    return as_datetime64(np.concatenate([times, next_times(times, plan.horizon)]))


def axis_label(result: Forecasted) -> str:
    return "step" if result.plan.series.times is None else ""


def window_figure(result: Forecasted, window: int) -> Figure:
    """One test window: history, truth, model with its band, seasonal naive."""
    plan, cut = result.plan, int(result.test.cuts[window])
    first = max(0, cut - max(SHOWN_HISTORY * plan.horizon, result.series.window))
    at = positions(result)
    low, high = result.band(result.predicted[window], result.bands.tested[window])

    def connected(values: np.ndarray) -> np.ndarray:
        """Prepend the last known value, so that the lines connect to the history."""
        return np.concatenate([[plan.values[cut - 1]], values])

    steps = at[cut - 1 : cut + plan.horizon]
    return figures.lines(
        {
            "_history": figures.Series(at[first:cut], plan.values[first:cut], colour=TRUTH_COLOUR),
            "truth": figures.Series(steps, connected(result.test.targets[window]), colour=TRUTH_COLOUR),
            SEASONAL: figures.Series(
                steps, connected(result.baselines[SEASONAL][window]), colour=COLOURS[SEASONAL], dashed=True
            ),
            OURS: figures.Series(
                steps, connected(result.predicted[window]), connected(low), connected(high), colour=COLOURS[OURS]
            ),
        },
        xlabel=axis_label(result),
        ylabel=plan.series.name,
        marks={"now": at[cut - 1]},
    )


def future_figure(result: Forecasted) -> Figure:
    """The end of the series and the forecast, with its 80 % range."""
    plan, end = result.plan, len(result.plan.values)
    first = max(0, end - max(SHOWN_HISTORY * plan.horizon, result.series.window))
    at = positions(result)
    steps = at[end - 1 :]
    last = plan.values[-1:]
    return figures.lines(
        {
            "_history": figures.Series(at[first:end], plan.values[first:], colour=TRUTH_COLOUR),
            "forecast": figures.Series(
                steps, np.concatenate([last, result.future]), colour=COLOURS[OURS],
                low=np.concatenate([last, result.low]), high=np.concatenate([last, result.high]),
            ),
        },
        xlabel=axis_label(result),
        ylabel=plan.series.name,
        marks={"now": at[end - 1]},
    )  # fmt: skip


def horizon_figure(result: Forecasted) -> Figure:
    """The mean absolute error by forecast step."""
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


def learning_figure(result: Forecasted) -> Figure:
    """The validation error of every seed during training, with a mark at the best step of the best seed."""
    best = next(seed for seed in result.seeds if seed.seed == result.best)
    curves = {f"seed {s.seed}": figures.Series(*np.array(s.fitted.curve).T) for s in result.seeds}
    return figures.lines(
        curves, xlabel="step", ylabel="mean absolute error, validation", marks={"kept": best.fitted.step}, height=2.6
    )


def median_window(result: Forecasted) -> int:
    """The test window with the median error."""
    errors = np.abs(result.predicted - result.test.targets).mean(1)
    return int(np.argsort(errors, kind="stable")[len(errors) // 2])
