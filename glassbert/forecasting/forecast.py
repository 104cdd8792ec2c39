"""`forecast`: trains and tests a model on a series and forecasts its next values.

    result = forecast(Series.of("passengers.csv"), ForecastSettings(horizon=12))
    result.scores()
    result.future                      # the next twelve values

The series is split in time into training, validation and test. Validation selects the number of steps, the frame and
the shortcut. The test part is used once, at the end; model and baselines are compared on the same test windows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from glassbert.finetuning.seeds import Spread
from glassbert.forecasting.bands import Bands, conformal_bands
from glassbert.forecasting.baselines import LinearForecast, baselines, best_ridge
from glassbert.forecasting.dates import date_texts, next_times
from glassbert.forecasting.fit import FitResult, fit, predict, refit
from glassbert.forecasting.model import new_model
from glassbert.forecasting.plan import Recipe, SeriesPlan, plan_for
from glassbert.forecasting.settings import ForecastSettings
from glassbert.forecasting.stored import StoredTrainings
from glassbert.metrics import Undefined, mase, smape
from glassbert.models.model import Model
from glassbert.models.series import SeriesConfig
from glassbert.tasks.series import Forecasts, Series

OURS, ALL_SEEDS = "this model", "its seeds together"

Progress = Callable[[str, int, int, float | None], None]  # description, step, steps, best error so far


def no_progress(description: str, step: int, steps: int, best: float | None) -> None:
    """The default `progress` callback: does nothing."""


@dataclass(frozen=True)
class ForecastScores:
    """Errors over all test windows: MASE (relative to seasonal naive on the values before the test), RMSE and sMAPE."""

    mase: float | None  # None if the values before the test are exactly periodic
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
    """One seed: its training and its forecasts of the test windows."""

    seed: int
    fitted: FitResult
    predicted: np.ndarray
    scores: ForecastScores


@dataclass(frozen=True)
class Forecasted:
    """Result of a forecast. `model` is that of the seed with the smallest validation error."""

    plan: SeriesPlan
    settings: ForecastSettings
    series: SeriesConfig
    recipe: Recipe
    tried: Mapping[Recipe, float]  # to the mean absolute error on the validation windows
    seeds: list[SeedForecast]
    baselines: Mapping[str, np.ndarray]
    model: Model
    best: int  # the seed of `model`
    future: np.ndarray
    bands: Bands

    @property
    def test(self) -> Forecasts:
        return self.plan.test

    @property
    def low(self) -> np.ndarray:
        """The lower end of the band that should contain 80 % of the future values."""
        return self.band(self.future, self.bands.margin)[0]

    @property
    def high(self) -> np.ndarray:
        return self.band(self.future, self.bands.margin)[1]

    def band(self, forecast: np.ndarray, margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of a band around forecasts; `margin` is on the scale of the model."""
        middle = self.series.scaled(forecast)
        return self.series.unscaled(middle - margin), self.series.unscaled(middle + margin)

    @property
    def future_times(self) -> list[str] | None:
        """The dates of the next values as text; None if the series has no dates."""
        times = self.plan.series.times
        return None if times is None else date_texts(next_times(times, self.plan.horizon))

    @property
    def predicted(self) -> np.ndarray:
        """The test forecasts of `model`."""
        return next(seed.predicted for seed in self.seeds if seed.seed == self.best)

    def scores(self) -> dict[str, ForecastScores]:
        """Scores by name: the best seed, the mean of all seeds, and the baselines."""
        truth = self.test.targets
        together = np.mean([seed.predicted for seed in self.seeds], 0)
        ours = {OURS: self.predicted, **({ALL_SEEDS: together} if len(self.seeds) > 1 else {})}
        return {name: ForecastScores.of(truth, p, self.plan) for name, p in {**ours, **self.baselines}.items()}

    def spread(self, metric: str = "mase") -> Spread | None:
        """Mean and spread of a metric over the seeds; None if it is undefined."""
        values = [getattr(seed.scores, metric) for seed in self.seeds]
        return None if None in values else Spread.of(values)


@contextmanager
def _ignore_overflow() -> Iterator[None]:
    """Suppress NumPy overflow warnings: such a step is skipped, and overflow shows in the validation error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="glassbert")
        yield


@_ignore_overflow()
def forecast(
    series: Series,
    settings: ForecastSettings,
    progress: Progress = no_progress,
    stored: StoredTrainings | None = None,
) -> Forecasted:
    """Train, test and forecast the next values. The same settings and seed give the same numbers.

    `stored` keeps finished trainings, for a run that may be interrupted.
    """
    plan = plan_for(series, settings)
    stored = stored or StoredTrainings()
    train, validation, test = plan.train, plan.validation, plan.test

    def initial_model(recipe: Recipe, seed: int, windows: Forecasts) -> Model:
        config = recipe.apply_to(plan.config)
        if recipe.shortcut != "line":
            return new_model(settings, config, seed)
        linear = LinearForecast.fit(windows, config, best_ridge(train, validation, config))
        return new_model(settings, config, seed, linear)

    def trained(recipe: Recipe, seed: int, description: str) -> tuple[Model, FitResult]:
        model, name = initial_model(recipe, seed, train), f"{recipe}, seed {seed}"
        result = stored.restore(name, model)
        if result is None:
            result = fit(model, train, validation, settings, seed, lambda *values: progress(description, *values))
            stored.store(name, model, result)
        return model, result

    def refitted(recipe: Recipe, seed: int, found: FitResult, description: str) -> Model:
        model, name = initial_model(recipe, seed, plan.before_test), f"{recipe}, seed {seed}, refitted"
        if stored.restore(name, model) is None:
            again = f"{description}, with the validation part"
            refit(model, plan.before_test, settings, seed, found.step, lambda *values: progress(again, *values))
            stored.store(name, model, found)
        return model

    first = {recipe: trained(recipe, settings.seed, str(recipe)) for recipe in plan.recipes}
    tried = {recipe: result.error for recipe, (_, result) in first.items()}
    recipe = min(tried, key=lambda recipe: tried[recipe])
    seed_forecasts, models, errors = [], {}, []
    for nth in range(settings.seeds):
        seed, description = settings.seed + nth, f"seed {nth + 1} of {settings.seeds}"
        model, result = first[recipe] if nth == 0 else trained(recipe, seed, description)
        errors.append(_model_errors(model, validation))
        if settings.refit:
            model = refitted(recipe, seed, result, description)
        predicted = predict(model, test.inputs)
        seed_forecasts.append(SeedForecast(seed, result, predicted, ForecastScores.of(test.targets, predicted, plan)))
        models[seed] = model
    chosen = min(range(len(seed_forecasts)), key=lambda i: seed_forecasts[i].fitted.error)
    best, config = seed_forecasts[chosen].seed, recipe.apply_to(plan.config)
    test_errors = _scaled_errors(config, test.targets, seed_forecasts[chosen].predicted)
    bands = conformal_bands(errors[chosen], validation.cuts, test_errors, test.cuts)
    future = predict(models[best], plan.values[None, -config.window :])[0]
    return Forecasted(
        plan, settings, config, recipe, tried, seed_forecasts, baselines(plan, test), models[best], best, future,
        bands,
    )  # fmt: skip


def _model_errors(model: Model, windows: Forecasts) -> np.ndarray:
    """Absolute errors on the scale of the model, [W, horizon]."""
    series = model.config.series
    assert series is not None
    return _scaled_errors(series, windows.targets, predict(model, windows.inputs))


def _scaled_errors(series: SeriesConfig, truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return np.abs(series.scaled(truth) - series.scaled(predicted))
