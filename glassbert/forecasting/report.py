"""The page of a forecast: is it better than simple forecasts, what does it look like, and what comes next?"""

from __future__ import annotations

from pathlib import Path

from glassbert.forecasting import pictures
from glassbert.forecasting.forecast import OURS, Forecasted, ForecastScores
from glassbert.reports import Page, number, share

SEASONAL, LINEAR = "seasonal naive", "linear"


def write_report(path: Path, result: Forecasted) -> Path:
    plan = result.plan
    page = Page(
        f"{plan.series.name}: the next {plan.horizon} values",
        f"{len(plan.values):,} values of {Path(plan.series.source).name}; judged on {len(result.test):,} windows at "
        "its end that no training has seen",
    )
    _verdict(page, result)
    page.heading("What comes next")
    page.figure(lambda: pictures.future_picture(result), "The end of the series and its forecast. Eight in ten values "
                "should lie in the band, going by the errors on validation and test windows. A band by the validation "
                f"windows alone held {share(result.coverage)} of the test values.")  # fmt: skip
    with page.details("The values") as inside:
        rows = zip(result.future, result.low, result.high, strict=True)
        inside.table(["step", "forecast", "low", "high"], [(str(i), *row) for i, row in enumerate(rows, 1)])
    page.heading("How it did where the truth is known")
    typical = pictures.typical_window(result)
    page.figure(lambda: pictures.window_picture(result, typical), "A typical window of the test part: half of all "
                "windows went better than this one, half went worse.")  # fmt: skip
    page.figure(lambda: pictures.window_picture(result, len(result.test) - 1), "The last window of all.")
    page.figure(lambda: pictures.horizon_picture(result), "The mean error of every step ahead.")
    _scores(page, result)
    _making(page, result)
    return page.write(path)


def _verdict(page: Page, result: Forecasted) -> None:
    scores = result.scores()
    ours, seasonal, linear = scores[OURS], scores[SEASONAL], scores[LINEAR]
    spread = result.spread()
    page.facts([
        ("MASE", "–" if ours.mase is None else ours.mase, "" if spread is None else f"{spread} over seeds"),
        ("RMSE", ours.rmse, "in the units of the series"),
        (f"RMSE of {SEASONAL}", seasonal.rmse, f"the value {plan_period(result)} before"),
        (f"RMSE of {LINEAR}", linear.rmse, "autoregression by least squares"),
    ])  # fmt: skip
    better = [name for name, other in scores.items() if name in result.baselines and _beats(ours, other)]
    worse = [name for name in result.baselines if name not in better]
    if not worse:
        page.good(f"Better than all of {', '.join(result.baselines)}.")
    else:
        page.message(
            "warning",
            f"Not better than {' and '.join(worse)}" + (f", but than {' and '.join(better)}." if better else "."),
            "A simpler forecast that errs less is the better one: use it, or give the model more of the past.",
        )


def plan_period(result: Forecasted) -> str:
    return "one step" if result.plan.period == 1 else f"{result.plan.period} steps"


def _beats(ours: ForecastScores, other: ForecastScores) -> bool:
    """By MASE, or by RMSE where that has no value."""
    return ours.rmse < other.rmse if ours.mase is None or other.mase is None else ours.mase < other.mase


def _scores(page: Page, result: Forecasted) -> None:
    rows = [
        (name, "–" if s.mase is None else number(s.mase), number(s.rmse), number(s.smape))
        for name, s in result.scores().items()
    ]
    page.table(["forecast", "MASE", "RMSE", "sMAPE, %"], rows, "All test windows; smaller is better. MASE divides the "
               f"mean error by that of the value {plan_period(result)} before, in the known part.")  # fmt: skip


def _making(page: Page, result: Forecasted) -> None:
    plan, settings = result.plan, result.settings
    page.heading("How it was made")
    for note in plan.notes:
        page.text(note)
    page.text(
        f"Learned from the first {plan.validated_from:,} values; the next {plan.tested_from - plan.validated_from:,} "
        f"chose the recipe and when to stop"
        + (", and then joined the training of the final model." if settings.refit else ".")
    )
    page.table(
        ["recipe", "mean absolute error, validation"],
        [
            (f"{recipe}{' (chosen)' if recipe == result.recipe else ''}", error)
            for recipe, error in result.tried.items()
        ],
    )
    page.figure(lambda: pictures.learning_picture(result), "Every seed on its way; what is kept is the average of the "
                "weights where the validation error was smallest.")  # fmt: skip
    page.code('from glassbert.forecasting import Forecaster\n\nForecaster.load("RUN")(values).values')
