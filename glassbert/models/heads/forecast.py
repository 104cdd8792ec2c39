"""Forecasts: from a window of a series to the next values.

    out = dense(concatenated or pooled tokens) [+ shortcut · normalised window]        [B, horizon]
    forecast = out · spread + centre                                                   undoes the normalisation

The loss is computed on the forecast and not on the normalised values, where a nearly constant window would count as
much as one with large changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import ConfigError
from glassbert.layers.embeddings import frame
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.models.heads.head import Head, number_labels
from glassbert.models.heads.pooling import pool, pool_backward, pool_parameters
from glassbert.models.series import SeriesConfig
from glassbert.ops import IGNORED

FLATTEN = "flatten"


class ForecastHead(Head):
    """Predicts the next `num_labels` values of a series."""

    kind = "forecast"
    labelled = True
    losses = ("mean_squared_error", "huber")
    takes_loss_options = True
    flattens = True
    default_pooling = FLATTEN

    def __init__(self, config: Any, num_labels: int = 0, loss: str | None = None, loss_options: Any = None):
        super().__init__(config, num_labels, loss, loss_options)
        if config.series is None:
            raise ConfigError(
                "a forecast head reads a series, but this encoder reads words; give a window: "
                'create_model("bert_with_head", head_type="forecast", horizon=12, window=36)'
            )
        if self.loss_options.target_mean or self.loss_options.target_scale:
            raise ConfigError(
                "a forecast is scaled by the mean and scale of its series; leave target_mean and target_scale out"
            )

    @property
    def series(self) -> SeriesConfig:
        assert self.config.series is not None
        return self.config.series

    @property
    def pooling(self) -> str:
        return self.config.classifier_pooling

    def parameters(self) -> list[Parameter]:
        flat = self.pooling == FLATTEN
        size = self.config.hidden_size * (self.series.tokens if flat else 1)
        parameters = [] if flat else pool_parameters(self.config, self.pooling)
        parameters += linear_parameters("output", size, self.num_labels, True)
        if self.series.shortcut:  # initialised with zeros
            parameters += linear_parameters("shortcut", self.series.window, self.num_labels, False, "zeros")
        return parameters

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """The next values, [B, horizon]. All of them count, also one that is equal to -100."""
        targets = self.series.scaled(number_labels(labels, shape[0], self.num_labels), "label")
        targets[targets == IGNORED] = np.nextafter(np.float32(IGNORED), np.float32(0))
        return {"targets": targets}

    def decode(self, output: np.ndarray) -> np.ndarray:
        """The forecast in the units of the series."""
        return self.series.unscaled(output)

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        centre, spread = frame(batch.windows, self.series)  # [B, 1]
        flat = self.pooling == FLATTEN
        x = hidden.reshape(hidden.shape[0], -1) if flat else pool(hidden, None, scope, self.pooling)  # [B, T·H or H]
        x = scope.dropout(x, "dropout", self.config.classifier_dropout)
        out = scope.linear(x, "output")  # [B, horizon]
        if self.series.shortcut:
            framed = ((batch.windows - centre) / spread).astype(out.dtype)
            out = out + scope.linear(framed, "shortcut")
        scope.save("frame", (spread, hidden.shape, out.dtype))
        scope.record("framed", out)
        return scope.record("forecast", out * spread + centre)

    @classmethod
    def flops(
        cls, config: Any, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        tokens = length if config.classifier_pooling == FLATTEN else 1
        window = config.series.window if config.series.shortcut else 0
        return {
            "head.output": 2 * batch * tokens * config.hidden_size * num_labels,
            "head.shortcut": 2 * batch * window * num_labels,
        }

    def backward(self, doutput: Array, scope: Scope) -> Array:
        spread, shape, dtype = scope.saved("frame")
        scope.record("d_forecast", doutput)
        dout = scope.record("d_framed", (doutput * spread).astype(dtype))
        if self.series.shortcut:
            scope.linear_backward(dout, "shortcut")
        dx = scope.dropout_backward(scope.linear_backward(dout, "output"), "dropout")
        return dx.reshape(shape) if self.pooling == FLATTEN else pool_backward(dx, scope, self.pooling)
