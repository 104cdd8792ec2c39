"""Training one model on windows of a series, and stopping where the validation part says so.

A run is a function of its settings and seed. Which windows make a batch depends on the seed and the step alone, and the
weights that are kept are a moving average: with few windows, single steps jump about more than they learn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from glassbert.errors import TrainingError
from glassbert.forecasting.settings import ForecastSettings
from glassbert.models.model import Model
from glassbert.tasks.series import Forecasts
from glassbert.training.ema import EMA
from glassbert.training.optimizers.adamw import AdamW
from glassbert.training.schedules import make_schedule
from glassbert.training.step import TrainingStep

WARMUP = 0.05
SCORED_AT_ONCE = 512  # windows

Progress = Callable[[int, int, float | None], None]  # step, steps, the best error so far


@dataclass(frozen=True)
class Fitted:
    """The step with the smallest mean absolute error on the validation windows, and the errors on the way."""

    step: int
    error: float
    curve: tuple[tuple[int, float], ...]


def predict(model: Model, inputs: np.ndarray) -> np.ndarray:
    """Forecasts [W, horizon] in the units of the series."""
    assert model.head is not None
    parts = [inputs[i : i + SCORED_AT_ONCE] for i in range(0, len(inputs), SCORED_AT_ONCE)]
    return np.concatenate([model.head.decode(model.engine.to_numpy(model.predict(part))) for part in parts])


def mean_error(model: Model, windows: Forecasts) -> float:
    return float(np.abs(predict(model, windows.inputs) - windows.targets).mean())


def fit(
    model: Model, train: Forecasts, validation: Forecasts, settings: ForecastSettings, seed: int, progress: Progress
) -> Fitted:
    """Train until validation has not improved for a while; the model keeps the weights of the best evaluation."""
    curve: list[tuple[int, float]] = []
    kept: dict[str, np.ndarray] = {}
    best = (0, np.inf)
    for step, averaged in _steps(model, train, settings, seed, settings.steps):
        if step % settings.evaluate_every and step != settings.steps:
            continue
        with averaged():
            error = mean_error(model, validation)
            curve.append((step, error))
            if error < best[1]:
                best = (step, error)
                kept = {name: np.array(model.engine.to_numpy(a)) for name, a in model.parameters.items()}
        progress(step, settings.steps, best[1])
        if settings.patience and (step - best[0]) >= settings.patience * settings.evaluate_every:
            break
    if not kept:
        raise TrainingError("no step gave a finite error on the validation windows; try a smaller learning rate")
    _put(model, kept)
    return Fitted(best[0], best[1], tuple(curve))


def refit(
    model: Model, train: Forecasts, settings: ForecastSettings, seed: int, steps: int, progress: Progress
) -> None:
    """Train for a known number of steps, along the same schedule."""
    for step, averaged in _steps(model, train, settings, seed, steps):
        progress(step, steps, None)
        if step == steps:
            with averaged():
                kept = {name: np.array(model.engine.to_numpy(a)) for name, a in model.parameters.items()}
            _put(model, kept)


def _steps(
    model: Model, train: Forecasts, settings: ForecastSettings, seed: int, count: int
) -> Iterator[tuple[int, Callable[[], contextlib.AbstractContextManager[object]]]]:
    """One training step after another; with each a context in which the model has its averaged weights."""
    optimizer = AdamW(model, settings.learning_rate, weight_decay=settings.weight_decay)
    ema = EMA(model, settings.average) if settings.average else None
    step = TrainingStep(model, optimizer, ema=ema)
    schedule = make_schedule("cosine", warmup=WARMUP)

    @contextlib.contextmanager
    def averaged() -> Iterator[None]:
        model.set_training(False)
        with ema.swapped(model) if ema is not None else contextlib.nullcontext():
            yield

    for number, rows in zip(range(1, count + 1), _batches(len(train), settings.batch, seed), strict=False):
        optimizer.learning_rate = settings.learning_rate * schedule(number / settings.steps)
        model.set_training(True)
        step(train.inputs[rows], train.targets[rows])
        yield number, averaged
    model.set_training(False)


def _batches(windows: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Batches of one size for ever; an epoch is a new order of all windows, and its rest is left out."""
    size = min(size, windows)
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(windows)
        for start in range(0, windows - size + 1, size):
            yield order[start : start + size]
        epoch += 1


def _put(model: Model, weights: dict[str, np.ndarray]) -> None:
    for name, values in weights.items():
        model.parameters[name] = model.engine.array(values)
