"""The model that forecasts: a small encoder of its own, or the blocks of one that was pretrained on text.

Blocks do not care whether their tokens were words or patches of a series. What they were pretrained on may help or not;
what is before and after them (projection, positions, forecast) begins anew.

A shortcut may begin where least squares puts it, and the encoder's part of the forecast at zero: the model is then an
autoregression, and learns from there what a straight line cannot say. Steps alone would hardly find that line, for
neighbouring values of a window say almost the same.
"""

from __future__ import annotations

import warnings
from typing import Any

from glassbert.checkpoints import load
from glassbert.forecasting.line import Line
from glassbert.forecasting.settings import ForecastSettings
from glassbert.models.config import BertConfig, EncoderConfig
from glassbert.models.factory import create_model
from glassbert.models.model import Model
from glassbert.models.series import SeriesConfig, with_series

HEADS = 4
TAKEN = ("layers.", "final_norm.")  # from a pretrained encoder
SMALL_ENOUGH = 128  # of this width or less, threads cost more than they give


def small_encoder(hidden: int, layers: int) -> BertConfig:
    """A pre-norm encoder: a few windows teach it sooner than post-norm blocks."""
    heads = next(n for n in (HEADS, 3, 2, 1) if hidden % n == 0)
    return BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=2 * hidden,
        norm_position="pre", final_norm=True, embedding_norm=False, attention_dropout=0.0,
    )  # fmt: skip


def new_model(settings: ForecastSettings, series: SeriesConfig, seed: int, line: Line | None = None) -> Model:
    """A model for `series`, ready to be trained; its shortcut may begin as `line`."""
    found = pretrained(settings.model, settings) if settings.model else None
    config = small_encoder(settings.hidden, settings.layers) if found is None else found.config
    options = machine(settings, config)
    if settings.loss == "huber":
        options["huber_delta"] = settings.huber_delta
    model = create_model(
        "bert_with_head",
        head_type="forecast",
        horizon=settings.horizon,
        pooling=settings.pooling,
        loss=settings.loss,
        config=with_series(_dropping(config, settings.dropout), series),
        seed=seed,
        **options,
    )
    for name, values in found.parameters.items() if found is not None else ():
        if name.startswith(TAKEN) and name in model.parameters:
            model.parameters[name] = values
    if line is not None:
        model.parameters["head.shortcut.weight"] = model.engine.array(line.slope)
        model.parameters["head.output.bias"] = model.engine.array(line.constant)
        model.parameters["head.output.weight"] = 0.0 * model.parameters["head.output.weight"]
    return model


def pretrained(path: str, settings: ForecastSettings) -> Model:
    """The encoder of a saved model or run, without its head."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a pooler that begins at random: nobody looks through it
        return load(path, head="core", engine=settings.engine, dtype=settings.precision)


def machine(settings: ForecastSettings, config: EncoderConfig) -> dict[str, Any]:
    threads = settings.threads or (1 if config.hidden_size <= SMALL_ENOUGH else None)
    return {"engine": settings.engine, "dtype": settings.precision, "threads": threads}


def _dropping(config: EncoderConfig, rate: float) -> EncoderConfig:
    return config.replace(embedding_dropout=rate, hidden_dropout=rate, classifier_dropout=rate)
