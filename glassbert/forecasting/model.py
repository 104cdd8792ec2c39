"""Creates the forecasting model: a small new encoder, or the layers of a pretrained text encoder.

Layers work on word tokens and on patches of a series alike. Projection, positions and head are always new.

With a "line" shortcut, the shortcut is initialised by least squares and the output weights of the encoder with zeros.
The model then starts as an autoregression. Gradient steps alone hardly find that solution, because neighbouring values
of a window are strongly correlated.
"""

from __future__ import annotations

import warnings
from typing import Any

from glassbert.checkpoints import load
from glassbert.families.bert import BertConfig
from glassbert.families.factory import create_model
from glassbert.forecasting.baselines import LinearForecast
from glassbert.forecasting.settings import ForecastSettings
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.models.series import SeriesConfig, with_series

HEADS = 4
COPIED = ("layers.", "final_norm.")  # parameters from a pretrained encoder
SINGLE_THREAD_SIZE = 128  # up to this hidden size one thread is fastest


def small_encoder(hidden: int, layers: int) -> BertConfig:
    """The config of a pre-norm encoder, which learns faster from few windows than a post-norm one."""
    heads = next(n for n in (HEADS, 3, 2, 1) if hidden % n == 0)
    return BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=2 * hidden,
        norm_position="pre", final_norm=True, embedding_norm=False, attention_dropout=0.0,
    )  # fmt: skip


def new_model(
    settings: ForecastSettings, series: SeriesConfig, seed: int, linear: LinearForecast | None = None
) -> Model:
    """A model for `series` before training; `linear` initialises its shortcut."""
    encoder = pretrained(settings.model, settings) if settings.model else None
    config = small_encoder(settings.hidden_size, settings.num_hidden_layers) if encoder is None else encoder.config
    options = device_options(settings, config)
    if settings.loss == "huber":
        options["huber_delta"] = settings.huber_delta
    model = create_model(
        "bert_with_head",
        head_type="forecast",
        horizon=settings.horizon,
        pooling=settings.pooling,
        loss=settings.loss,
        config=with_series(_with_dropout(config, settings.dropout), series),
        seed=seed,
        **options,
    )
    for name, values in encoder.parameters.items() if encoder is not None else ():
        if name.startswith(COPIED) and name in model.parameters:
            model.parameters[name] = values
    if linear is not None:
        model.parameters["head.shortcut.weight"] = model.engine.array(linear.slope)
        model.parameters["head.output.bias"] = model.engine.array(linear.constant)
        model.parameters["head.output.weight"] = 0.0 * model.parameters["head.output.weight"]
    return model


def pretrained(path: str, settings: ForecastSettings) -> Model:
    """The encoder of a saved model or run, without its head."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a random pooler, which is not used
        return load(path, head="core", engine=settings.engine, dtype=settings.precision)


def device_options(settings: ForecastSettings, config: EncoderConfig) -> dict[str, Any]:
    threads = settings.threads or (1 if config.hidden_size <= SINGLE_THREAD_SIZE else None)
    return {"engine": settings.engine, "dtype": settings.precision, "threads": threads}


def _with_dropout(config: EncoderConfig, rate: float) -> EncoderConfig:
    return config.replace(embedding_dropout=rate, hidden_dropout=rate, classifier_dropout=rate)
