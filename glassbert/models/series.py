"""The input of an encoder that reads windows of a series instead of token ids.

    values  v0 v1 v2 v3 v4 v5 v6 v7       window 8, patch 4, stride 2:   (v0 … v3) (v2 … v5) (v4 … v7)   three tokens

A token is a patch: a few consecutive values, projected onto one vector. With patches of one value there is a token for
every time step.

The whole series is scaled once by the `mean` and `scale` of its training part, after an optional logarithm, which suits
series whose variation grows with their level. With a trend, later windows are still outside the range of the training
data. So every window can also be normalised by its own mean or last value and its deviation; the forecast is
transformed back at the end.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import ConfigError, InputError

if TYPE_CHECKING:
    from glassbert.models.config import EncoderConfig

CENTRES = ("mean", "last", "none")
LARGEST_EXPONENT = 700.0  # exp of more is no float64


@dataclass(frozen=True, kw_only=True)
class SeriesConfig:
    """How an encoder reads values instead of token ids.

    window     number of past values
    patch      values per token
    stride     distance between the starts of two patches; `patch` by default, so that patches do not overlap
    centre     subtracted from a window: its "mean", its "last" value, or "none"
    divide     whether a window is divided by its deviation
    shortcut   whether a linear map of the window is added to the forecast, so that the encoder models only the
               nonlinear rest
    logarithm  whether the model computes with logarithms of the values, which must then be above 0
    mean       of the series (or its logarithms), subtracted from all values first
    scale      deviation of the series, by which the values are divided
    """

    window: int
    patch: int = 1
    stride: int | None = None
    centre: str = "mean"
    divide: bool = True
    shortcut: bool = False
    logarithm: bool = False
    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.stride is None:
            object.__setattr__(self, "stride", self.patch)
        for name in ("window", "patch", "stride"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a number of values, at least 1, got {value!r}")
        if self.patch > self.window:
            raise ConfigError(f"a window of {self.window} values is shorter than a patch of {self.patch}")
        if left := (self.window - self.patch) % self.step:
            raise ConfigError(
                f"patches of {self.patch}, {self.step} apart, leave {left} of a window of {self.window} values out; "
                f"a window of {self.window - left} or {self.window - left + self.step} fits"
            )
        if self.centre not in CENTRES:
            raise ConfigError(f"centre must be one of {', '.join(map(repr, CENTRES))}, got {self.centre!r}")
        for name in ("divide", "shortcut", "logarithm"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, got {getattr(self, name)!r}")
        for name in ("mean", "scale"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigError(f"the {name} of a series must be a finite number, got {value!r}")
        if self.scale <= 0:
            raise ConfigError(f"the scale of a series must be above 0, got {self.scale!r}")

    @property
    def step(self) -> int:
        """The stride as an int."""
        assert self.stride is not None
        return self.stride

    @property
    def tokens(self) -> int:
        """The number of patches of a window."""
        return (self.window - self.patch) // self.step + 1

    def scaled(self, values: np.ndarray, what: str = "value") -> np.ndarray:
        """The scaled values in float64. A value that is not finite or has no logarithm raises `InputError`."""
        values = np.asarray(values, np.float64)
        if not np.isfinite(values).all():
            index = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise InputError(f"the {what} at {index} is {values[index]}; fill gaps before forecasting")
        if self.logarithm:
            if values.size and values.min() <= 0:
                index = tuple(int(i) for i in np.argwhere(values <= 0)[0])
                raise InputError(
                    f"the {what} at {index} is {values[index]:g}; this model was trained on logarithms, so values "
                    "must be above 0; train a model with logarithm=False"
                )
            values = np.log(values)
        return (values - self.mean) / self.scale

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        """The inverse of `scaled`."""
        values = np.asarray(values, np.float64) * self.scale + self.mean
        return np.exp(np.minimum(values, LARGEST_EXPONENT)) if self.logarithm else values

    @classmethod
    def from_dict(cls, values: Any) -> SeriesConfig:
        if not isinstance(values, Mapping):
            raise ConfigError(f"series must hold the fields of a SeriesConfig, got {values!r}")
        for name in values:
            if name not in SERIES_OPTIONS:
                close = difflib.get_close_matches(str(name), SERIES_OPTIONS, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(SERIES_OPTIONS)}"
                raise ConfigError(f"SeriesConfig has no field {name!r}{hint}")
        if "window" not in values:
            raise ConfigError("give the number of past values that a model of series reads, such as window=36")
        return cls(**values)


SERIES_OPTIONS = tuple(field.name for field in dataclasses.fields(SeriesConfig))


def with_series(config: EncoderConfig, series: SeriesConfig) -> EncoderConfig:
    """The config with series as input: one position for every patch, no vocabulary and no token types."""
    return config.replace(
        series=series,
        embeddings="values",
        max_position_embeddings=series.tokens,
        vocab_size=1,
        pad_token_id=None,
        type_vocab_size=0,
        pooler=False,
    )
