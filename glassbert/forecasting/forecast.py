"""From a series to a forecast: what it must beat, a model that was judged on the end of the series, and the future.

    result = forecast(Series.of("passengers.csv"), ForecastSettings(horizon=12))
    print(result.table())
    result.future                      # the twelve values after the last one

The series is cut in time: a part to learn from, then one that chooses when to stop and how windows are framed, then one
that judges and is looked at once, at the end. Everything is compared on the same windows of that last part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from glassbert.finetuning.seeds import Spread
from glassbert.forecasting.baselines import baselines
from glassbert.forecasting.choices import Recipe, SeriesPlan, plan_for
from glassbert.forecasting.fit import Fitted, fit, predict, refit
from glassbert.forecasting.line import Line, best_ridge
from glassbert.forecasting.model import new_model
from glassbert.forecasting.settings import ForecastSettings
from glassbert.metrics import Undefined, mase, smape
from glassbert.models.model import Model
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Forecasts, Series

OURS, TOGETHER = "this model", "its seeds together"
WITHIN = 0.8  # of the errors on the validation windows are smaller than the margin

Report = Callable[[str, int, int, float | None], None]  # what is done, step, steps, the best error so far


def silent(what: str, step: int, steps: int, best: float | None) -> None:
    """For `report`, where nobody watches."""


@dataclass(frozen=True)
class ForecastScores:
    """Errors over all test windows: MASE against the seasonal naive forecast of what was known, RMSE and sMAPE."""

    mase: float | None  # none where the known part repeats itself exactly
    rmse: float
    smape: float

    @classmethod
    def of(cls, truth: np.ndarray, predicted: np.ndarray, plan: SeriesPlan) -> ForecastScores:
        error = float(np.sqrt(np.mean((truth - predicted) ** 2)))
        try:
            scaled = float(mase(truth, predicted, plan.known, plan.period))
        except Undefined:
            scaled = None
        return cls(scaled, error, float(smape(truth, predicted)))


@dataclass(frozen=True)
class SeedForecast:
    """One seed: how it was fitted, and its forecasts of the test windows."""

    seed: int
    fitted: Fitted
    predicted: np.ndarray
    scores: ForecastScores


@dataclass(frozen=True)
class Forecasted:
    """Everything that came of it. `model` is that of the seed with the smallest validation error."""

    plan: SeriesPlan
    settings: ForecastSettings
    series: SeriesConfig
    recipe: Recipe
    tried: Mapping[Recipe, float]  # with its mean absolute error on the validation windows
    seeds: list[SeedForecast]
    baselines: Mapping[str, np.ndarray]
    model: Model
    best: int  # the seed of `model`
    future: np.ndarray
    margin: np.ndarray  # [horizon], on the model's scale: eight in ten errors on validation and test were smaller
    coverage: float  # how many of the test values lay within a margin by the validation windows alone

    @property
    def test(self) -> Forecasts:
        return self.plan.test

    @property
    def low(self) -> np.ndarray:
        """Where the range begins in which eight in ten futures should lie."""
        return self.series.unscaled(self.series.scaled(self.future) - self.margin)

    @property
    def high(self) -> np.ndarray:
        return self.series.unscaled(self.series.scaled(self.future) + self.margin)

    @property
    def predicted(self) -> np.ndarray:
        """The test forecasts of `model`."""
        return next(seed.predicted for seed in self.seeds if seed.seed == self.best)

    def scores(self) -> dict[str, ForecastScores]:
        """By name: the model (its best seed), its seeds together, and the baselines."""
        truth = self.test.targets
        together = np.mean([seed.predicted for seed in self.seeds], 0)
        ours = {OURS: self.predicted, **({TOGETHER: together} if len(self.seeds) > 1 else {})}
        return {name: ForecastScores.of(truth, p, self.plan) for name, p in {**ours, **self.baselines}.items()}

    def spread(self, metric: str = "mase") -> Spread | None:
        """Mean and spread of a metric over the seeds, where it has a value."""
        values = [getattr(seed.scores, metric) for seed in self.seeds]
        return None if None in values else Spread.of(values)


@contextmanager
def quietly() -> Iterator[None]:
    """An overflow shows in the validation error, and a step with one is skipped; NumPy need not mention it as well."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="glassbert")
        yield


@quietly()
def forecast(series: Series, settings: ForecastSettings, report: Report = silent) -> Forecasted:
    """Train, judge, and look ahead. The same settings and seeds give the same numbers."""
    plan = plan_for(series, settings)
    train, validation, test = plan.train, plan.validation, plan.test

    def fresh(recipe: Recipe, seed: int, windows: Forecasts) -> Model:
        config = recipe.on(plan.config)
        if recipe.shortcut != "line":
            return new_model(settings, config, seed)
        return new_model(settings, config, seed, Line.fit(windows, config, best_ridge(train, validation, config)))

    def fitted(recipe: Recipe, seed: int, what: str) -> tuple[Model, Fitted]:
        model = fresh(recipe, seed, train)
        done = fit(model, train, validation, settings, seed, lambda *where: report(what, *where))
        return model, done

    first = {recipe: fitted(recipe, settings.seed, str(recipe)) for recipe in plan.recipes}
    tried = {recipe: done.error for recipe, (_, done) in first.items()}
    recipe = min(tried, key=lambda one: tried[one])
    found, models, errors = [], {}, []
    for nth in range(settings.seeds):
        seed, what = settings.seed + nth, f"seed {nth + 1} of {settings.seeds}"
        model, done = first[recipe] if nth == 0 else fitted(recipe, seed, what)
        errors.append(_errors(model, validation))
        if settings.refit:
            model = fresh(recipe, seed, plan.before_test)
            again = f"{what}, with the validation part"
            refit(model, plan.before_test, settings, seed, done.step, lambda *where, a=again: report(a, *where))
        predicted = predict(model, test.inputs)
        found.append(SeedForecast(seed, done, predicted, ForecastScores.of(test.targets, predicted, plan)))
        models[seed] = model
    chosen = min(range(len(found)), key=lambda i: found[i].fitted.error)
    best, config = found[chosen].seed, recipe.on(plan.config)
    before, after = errors[chosen], _errors_of(config, test.targets, found[chosen].predicted)
    margin = np.quantile(np.concatenate([before, after]), WITHIN, axis=0)  # the future follows on the test part
    coverage = float((after <= np.quantile(before, WITHIN, axis=0)).mean())
    future = predict(models[best], plan.values[None, -config.window :])[0]
    return Forecasted(
        plan, settings, config, recipe, tried, found, baselines(plan, test), models[best], best, future, margin,
        coverage,
    )  # fmt: skip


def _errors(model: Model, windows: Forecasts) -> np.ndarray:
    """How far forecasts are from the truth on the model's own scale, [W, horizon]."""
    series = model.config.series
    assert series is not None
    return _errors_of(series, windows.targets, predict(model, windows.inputs))


def _errors_of(series: SeriesConfig, truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return np.abs(series.scaled(truth) - series.scaled(predicted))
