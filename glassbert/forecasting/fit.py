"""Training of one model on windows of a series, with early stopping on the validation windows.

The result is a function of settings and seed: batches depend only on the seed and the step. The kept weights are a
moving average, because single steps on few windows are noisy.
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
PREDICTION_BATCH = 512  # windows

Progress = Callable[[int, int, float | None], None]  # step, steps, best error so far


@dataclass(frozen=True)
class FitResult:
    """The step with the smallest mean absolute error on the validation windows, and the errors at all evaluations."""

    step: int
    error: float
    curve: tuple[tuple[int, float], ...]


def predict(model: Model, inputs: np.ndarray) -> np.ndarray:
    """Forecasts [W, horizon] in the units of the series."""
    assert model.head is not None
    parts = [inputs[i : i + PREDICTION_BATCH] for i in range(0, len(inputs), PREDICTION_BATCH)]
    return np.concatenate([model.head.decode(model.engine.to_numpy(model.predict(part))) for part in parts])


def mean_error(model: Model, windows: Forecasts) -> float:
    return float(np.abs(predict(model, windows.inputs) - windows.targets).mean())


def fit(
    model: Model, train: Forecasts, validation: Forecasts, settings: ForecastSettings, seed: int, progress: Progress
) -> FitResult:
    """Train with early stopping. The model ends with the weights of the best evaluation."""
    curve: list[tuple[int, float]] = []
    best_weights: dict[str, np.ndarray] = {}
    best = (0, np.inf)
    for step, averaged in _steps(model, train, settings, seed, settings.steps):
        if step % settings.evaluate_every and step != settings.steps:
            continue
        with averaged():
            error = mean_error(model, validation)
            curve.append((step, error))
            if error < best[1]:
                best = (step, error)
                best_weights = copy_parameters(model)
        progress(step, settings.steps, best[1])
        if settings.patience and (step - best[0]) >= settings.patience * settings.evaluate_every:
            break
    if not best_weights:
        raise TrainingError("no step gave a finite error on the validation windows; reduce --learning-rate")
    set_parameters(model, best_weights)
    return FitResult(best[0], best[1], tuple(curve))


def refit(
    model: Model, train: Forecasts, settings: ForecastSettings, seed: int, steps: int, progress: Progress
) -> None:
    """Train for `steps` steps with the schedule of the full number of steps."""
    for step, averaged in _steps(model, train, settings, seed, steps):
        progress(step, steps, None)
        if step == steps:
            with averaged():
                weights = copy_parameters(model)
            set_parameters(model, weights)


def _steps(
    model: Model, train: Forecasts, settings: ForecastSettings, seed: int, count: int
) -> Iterator[tuple[int, Callable[[], contextlib.AbstractContextManager[object]]]]:
    """Yield the number of each training step and a context in which the model has its averaged weights."""
    optimizer = AdamW(model, settings.learning_rate, weight_decay=settings.weight_decay)
    ema = EMA(model, settings.ema) if settings.ema else None
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
    """Endless batches of equal size. Each epoch shuffles all windows and drops the incomplete last batch."""
    size = min(size, windows)
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(windows)
        for start in range(0, windows - size + 1, size):
            yield order[start : start + size]
        epoch += 1


def copy_parameters(model: Model) -> dict[str, np.ndarray]:
    return {name: np.array(model.engine.to_numpy(array)) for name, array in model.parameters.items()}


def set_parameters(model: Model, weights: dict[str, np.ndarray]) -> None:
    for name, values in weights.items():
        model.parameters[name] = model.engine.array(values)
