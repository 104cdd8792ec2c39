"""Cases of series: values into the encoder, forecasts out of it, and whole models, with every option."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.models.config import CHOICES, EncoderConfig
from glassbert.models.encoder import Batch
from glassbert.models.heads import make_head
from glassbert.models.passes import head_loss, head_loss_backward
from glassbert.models.series import SeriesConfig, with_series
from glassbert.proof.cases import Fixture, case
from glassbert.proof.head_cases import parameters_of
from glassbert.proof.layer_cases import DROPOUT, TINY_BERT, TINY_MODERN, Rng, embeddings_of, layer_fixture
from glassbert.proof.loss_cases import loss_fixture
from glassbert.proof.model_cases import TINY_MINI
from glassbert.proof.model_cases import register as register_model

WINDOW, HORIZON = 8, 3
FORMS: dict[str, dict[str, Any]] = {
    "a token for every value": {},
    "patches side by side": {"patch": 4},
    "patches that overlap": {"patch": 4, "stride": 2},
    "one patch": {"patch": 8},
}
FRAMES: dict[str, dict[str, Any]] = {
    "mean, deviation": {},
    "last value, deviation": {"centre": "last"},
    "mean": {"divide": False},
    "last value": {"centre": "last", "divide": False},
    "deviation": {"centre": "none"},
    "no frame": {"centre": "none", "divide": False},
}
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "mean squared error": ("mean_squared_error", {}),
    "huber": ("huber", {"huber_delta": 0.7}),
}


def on_series(config: EncoderConfig, pooling: str = "flatten", **options: Any) -> EncoderConfig:
    series = SeriesConfig(window=WINDOW, mean=20.0, scale=5.0, **options)
    return with_series(config, series).replace(classifier_pooling=pooling)


def windows(rows: int = 3) -> np.ndarray:
    """Windows of different level and spread; one of them hardly moves."""
    steps = np.arange(rows * (WINDOW + HORIZON)).reshape(rows, -1)
    moving = np.array([3.0, 0.02, 9.0, 5.0])[:rows, None]
    return 20.0 + moving * (np.sin(1.7 * steps) + 0.4 * np.cos(0.3 * steps**2) + np.arange(rows)[:, None])


def batch_of_windows(engine: Any, config: EncoderConfig) -> Batch:
    positions = engine.integers(np.arange(config.series.tokens)[None])  # type: ignore[union-attr]
    return Batch(positions, windows=engine.array((windows()[:, :WINDOW] - 20.0) / 5.0))


def values_fixture(rng: Rng, config: EncoderConfig, dropout: bool = False) -> Fixture:
    layer = embeddings_of(config)
    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(batch_of_windows(engine, config), scope),
        lambda engine, dy, scope: layer.backward(dy, batch_of_windows(engine, config), scope),
        shape=None,
        dropout=dropout,
    )


def forecast_fixture(
    rng: Rng, config: EncoderConfig, loss: str = "mean_squared_error", options: Any = None, dropout: bool = False
) -> Fixture:
    """From hidden states to the loss of a forecast, and back."""
    head = make_head("forecast", config, HORIZON, loss, options)
    targets = head.prepare_labels(windows()[:, WINDOW:], (3, 0))["targets"]

    def forward(engine, x, scope):
        given = {"targets": engine.array(targets)}
        return head_loss(head, x, batch_of_windows(engine, config), given, scope.inside("head"))

    def backward(engine, dloss, scope):
        return head_loss_backward(head, dloss, scope.inside("head"))

    assert config.series is not None
    shape = (3, config.series.tokens, config.hidden_size)
    return layer_fixture(rng, parameters_of(head), forward, backward, shape, dropout=dropout)


@case("op", "huber_loss", "near and far, some ignored")
def _(rng):
    targets = rng.standard_normal((4, 3))
    targets[0, 1] = targets[2, 2] = -100
    signs = np.where(np.arange(12).reshape(4, 3) % 2, -1.0, 1.0)
    outputs = targets + signs * rng.choice([0.1, 0.4, 1.5, 20.0], (4, 3))  # none near the kink at 0.7
    return loss_fixture("huber_loss", outputs, targets, delta=0.7)


@case("op", "huber_loss", "all ignored")
def _(rng):
    return loss_fixture("huber_loss", rng.standard_normal((3, 2)), np.full((3, 2), -100.0))


def enter_values(situation: str, config: EncoderConfig) -> None:
    case("layer", "values", situation)(lambda rng: values_fixture(rng, config))


def enter_forecast(situation: str, config: EncoderConfig, *loss: Any) -> None:
    case("layer", "forecast", situation)(lambda rng: forecast_fixture(rng, config, *loss))


for form, options in FORMS.items():
    enter_values(form, on_series(TINY_BERT, **options))
for name, options in FRAMES.items():
    enter_values(f"frame: {name}", on_series(TINY_BERT, patch=4, stride=2, **options))
    enter_forecast(f"frame: {name}, shortcut", on_series(TINY_BERT, patch=4, stride=2, shortcut=True, **options))
for pooling in CHOICES["classifier_pooling"]:
    for name, loss in LOSSES.items():
        enter_forecast(f"{name}, {pooling}", on_series(TINY_BERT, pooling, patch=4), *loss)
enter_values("rotary: projection alone", on_series(TINY_MODERN, patch=2))
case("layer", "values", "no norm, dropout")(
    lambda rng: values_fixture(rng, on_series(TINY_BERT.replace(**DROPOUT, embedding_norm=False), patch=4), True)
)
case("layer", "forecast", "dropout, shortcut")(
    lambda rng: forecast_fixture(rng, on_series(TINY_BERT.replace(**DROPOUT), patch=2, shortcut=True), dropout=True)
)


def register(subject: str, situation: str, config: EncoderConfig, **options: Any) -> None:
    given = windows(options.pop("rows", 3))
    past, future = given[:, :WINDOW], given[:, WINDOW:]
    register_model(subject, situation, config, "forecast", num_labels=HORIZON, ids=past, labels=future, **options)


register("bert", "forecast, a token for every value, flattened", on_series(TINY_BERT))
register("bert", "forecast, overlapping patches, huber, dropout, checkpointing",
         on_series(TINY_BERT.replace(**DROPOUT), patch=4, stride=2, shortcut=True), loss="huber",
         loss_options={"huber_delta": 0.5}, training=True, checkpointing=True)  # fmt: skip
register("bert", "forecast, attention pooling, two threads", on_series(TINY_BERT, "attention", patch=2), threads=2)
register("mini", "forecast, patches, three threads, last value", on_series(TINY_MINI, patch=2, centre="last"), rows=4,
         threads=3)  # fmt: skip
register("modernbert", "forecast, local layers, shortcut", on_series(TINY_MODERN, shortcut=True))
register_model("modernbert", "classes of series, mean pooling", on_series(TINY_MODERN, "mean", patch=2), "sequence",
               num_labels=3, ids=windows()[:, :WINDOW], labels=[2, 0, 1])  # fmt: skip
