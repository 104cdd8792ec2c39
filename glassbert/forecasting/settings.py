"""`ForecastSettings`: all settings of a forecast.

    ForecastSettings(series="passengers.csv", horizon=12)

A None is replaced by a default from the series (`glassbert.forecasting.plan`). The flags of `glassbert forecast` are
generated from these fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from glassbert.errors import TrainingError
from glassbert.models.config import CHOICES
from glassbert.models.heads import ForecastHead
from glassbert.tasks.file_settings import FileSettings
from glassbert.training.settings import ENGINES, PRECISIONS
from glassbert.training.settings_base import (
    Check,
    about,
    check_fields,
    is_between,
    is_flag,
    is_integer,
    is_number,
    is_text,
    one_of,
)

# Normalisation of a window, by name: the value to subtract, and whether to divide by the standard deviation.
FRAMES: dict[str, dict[str, Any]] = {
    "standard": {"centre": "mean", "divide": True},
    "mean": {"centre": "mean", "divide": False},
    "none": {"centre": "none", "divide": False},
    "last": {"centre": "last", "divide": False},
    "last-standard": {"centre": "last", "divide": True},
}
# The linear map from the window to the forecast, parallel to the encoder: none, initialised with zeros ("learned"), or
# initialised by least squares ("line").
SHORTCUTS = ("none", "learned", "line")
TRIED_FRAMES, TRIED_SHORTCUTS = ("standard", "mean", "none"), ("learned", "line")  # by default


@dataclass(frozen=True, kw_only=True)
class ForecastSettings(FileSettings):
    """The settings of a forecast. Lengths are in values, shares between 0 and 1."""

    series: str = about("", "The file: CSV, TSV, Excel, JSON or Parquet, one row per time step.", "Series")
    value: str | None = about(None, "The value column. Default: the last one.", "Series")
    time: str | None = about(None, "The time column. Default: the first one.", "Series")
    horizon: int = about(12, "The number of values to forecast.", "Series")
    period: int | None = about(None, "The period in steps. Default: found in the series.", "Series")
    held_out: float = about(0.2, "The share at the end for the test, never used in training.", "Series")
    validation: float = about(0.15, "The share before it that selects steps, frame and shortcut.", "Series")

    model: str = about("", "A pretrained encoder to start from. Default: a small new one.", "Model")
    window: int | None = about(None, "The number of past values in the input.", "Model")
    patch: int | None = about(None, "The number of values per token.", "Model")
    stride: int | None = about(None, "Values from one patch to the next. Default: the patch length.", "Model")
    frame: str | None = about(
        None,
        f"Normalisation of windows: {', '.join(FRAMES)}. Default: the best of {', '.join(TRIED_FRAMES)}.",
        "Model",
    )
    shortcut: str | None = about(
        None, "A linear map parallel to the encoder: none, learned, or line (initialised by least squares). "
        "Default: the better of the last two.", "Model",
    )  # fmt: skip
    logarithm: bool | None = about(None, "Use logarithms of the values. Default: by the series.", "Model")
    pooling: str = about("flatten", "flatten, mean, max, attention or cls.", "Model")
    hidden_size: int = about(32, "The hidden size of a new encoder.", "Model")
    num_hidden_layers: int = about(2, "The number of layers of a new encoder.", "Model")
    dropout: float = about(0.1, "Rate of all dropouts except attention dropout.", "Model")

    steps: int = about(600, "The maximum number of steps.", "Learning")
    patience: int = about(15, "Stop after this many evaluations without improvement; 0: never.", "Learning")
    evaluate_every: int = about(20, "Steps from one evaluation to the next.", "Learning")
    batch: int = about(64, "Windows per batch.", "Learning")
    learning_rate: float = about(5e-4, "The peak learning rate.", "Learning")
    weight_decay: float = about(0.05, "Decoupled weight decay.", "Learning")
    ema: float = about(0.95, "Decay of the moving average of the weights; 0: no average.", "Learning")
    loss: str = about("mean_squared_error", "mean_squared_error or huber.", "Learning")
    huber_delta: float = about(1.0, "The error from which the Huber loss is linear.", "Learning")
    seeds: int = about(3, "The number of seeds to train.", "Learning")
    seed: int = about(0, "The first seed.", "Learning")
    refit: bool = about(
        True, "Train again including the validation part, for the selected number of steps.", "Learning"
    )

    engine: str = about("auto", "auto, numpy or mlx.", "Machine")
    precision: str = about("float32", "float32; bfloat16 (NumPy: with oneDNN); float64 on NumPy.", "Machine")
    threads: int | None = about(None, "Threads of the NumPy engine. Default for a small encoder: 1.", "Machine")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, CHECKS, OPTIONAL)
        if self.held_out + self.validation >= 0.9:
            raise TrainingError(
                f"--held-out {self.held_out:g} and --validation {self.validation:g} leave less than a tenth to train"
            )


COUNTS = ("horizon", "period", "window", "patch", "stride", "hidden_size", "num_hidden_layers", "steps",
          "evaluate_every", "batch", "seeds", "threads")  # fmt: skip
CHECKS: dict[str, Check] = {
    **dict.fromkeys(("series", "value", "time", "model"), (is_text, "text")),
    **dict.fromkeys(("refit", "logarithm"), (is_flag, "true or false")),
    **dict.fromkeys(COUNTS, (is_integer(1), "a whole number of at least 1")),
    **dict.fromkeys(("seed", "patience"), (is_integer(0), "a whole number of at least 0")),
    **dict.fromkeys(("held_out", "validation"), (is_between(0, 1), "a share of the series, between 0 and 1")),
    **dict.fromkeys(("dropout", "ema"), (lambda v: is_number(v) and 0 <= v < 1, "in [0, 1)")),
    **dict.fromkeys(("learning_rate", "huber_delta"), (is_between(0, math.inf), "a number above 0")),
    "weight_decay": (lambda v: is_number(v) and v >= 0, "at least 0"),
    "frame": one_of(*FRAMES),
    "shortcut": one_of(*SHORTCUTS),
    "pooling": one_of(*CHOICES["classifier_pooling"]),
    "loss": one_of(*ForecastHead.losses),
    "engine": one_of(*ENGINES),
    "precision": one_of(*PRECISIONS),
}
OPTIONAL = {name for name, f in ForecastSettings.fields().items() if "None" in str(f.type)}
