"""Everything that can be chosen about a forecast, in one frozen dataclass.

    ForecastSettings(series="passengers.csv", horizon=12)

What is None is chosen from the series (`glassbert.forecasting.choices`), and said. The flags of `glassbert
forecast` are made from these fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from glassbert.errors import TrainingError
from glassbert.models.config import CHOICES
from glassbert.models.heads import ForecastHead
from glassbert.training.settings import ENGINES, PRECISIONS
from glassbert.training.settings_base import (
    Check,
    Settings,
    about,
    check_fields,
    is_between,
    is_flag,
    is_integer,
    is_number,
    is_text,
    one_of,
)

# How a window is put into a frame of its own, by name: what is taken from it, and whether its deviation divides it.
FRAMES: dict[str, dict[str, Any]] = {
    "standard": {"centre": "mean", "divide": True},
    "mean": {"centre": "mean", "divide": False},
    "none": {"centre": "none", "divide": False},
    "last": {"centre": "last", "divide": False},
    "last-standard": {"centre": "last", "divide": True},
}
# What leads from the window past the encoder to the forecast: nothing, or a linear map that begins at zero ("learned")
# or where least squares puts it ("line").
SHORTCUTS = ("none", "learned", "line")
TRIED_FRAMES, TRIED_SHORTCUTS = ("standard", "mean", "none"), ("learned", "line")  # where nobody says


@dataclass(frozen=True, kw_only=True)
class ForecastSettings(Settings):
    """The settings of a forecast. Lengths are in values, shares between 0 and 1."""

    series: str = about("", "The file: CSV, TSV, JSON lines or Parquet, a row for every step of time.", "Series")
    value: str | None = about(None, "The column with the values; the last one unless said.", "Series")
    time: str | None = about(None, "The column with the time; the first one unless said.", "Series")
    horizon: int = about(12, "How many values to forecast.", "Series")
    period: int | None = about(None, "After how many steps it repeats itself; found where not said.", "Series")
    test: float = about(0.2, "The share at the end that judges, never seen in training.", "Series")
    validation: float = about(0.15, "The share before it that chooses steps, frame and shortcut.", "Series")

    model: str = about("", "A pretrained encoder whose blocks to begin with; a small new one unless said.", "Model")
    window: int | None = about(None, "How many values of the past are seen.", "Model")
    patch: int | None = about(None, "How many of them make a token; 1: one each.", "Model")
    stride: int | None = about(None, "From one patch to the next; a patch unless said.", "Model")
    frame: str | None = about(
        None,
        f"How windows are normalised: {', '.join(FRAMES)}. Without it {', '.join(TRIED_FRAMES)} are tried.",
        "Model",
    )
    shortcut: str | None = about(
        None, "A linear map beside the encoder: none, learned, or line (from least squares on). Without it the last "
        "two are tried.", "Model",
    )  # fmt: skip
    logarithm: bool | None = about(None, "Learn logarithms; by the series unless said.", "Model")
    pooling: str = about("flatten", "flatten, mean, max, attention or cls.", "Model")
    hidden: int = about(32, "The width of a new encoder.", "Model")
    layers: int = about(2, "Its blocks.", "Model")
    dropout: float = about(0.1, "One rate for every dropout but that of attention.", "Model")

    steps: int = about(600, "Steps at most.", "Learning")
    patience: int = about(15, "Stop after so many evaluations without a gain; 0: never.", "Learning")
    evaluate_every: int = about(20, "Steps from one evaluation to the next.", "Learning")
    batch: int = about(64, "Windows of a batch.", "Learning")
    learning_rate: float = about(5e-4, "The highest learning rate.", "Learning")
    weight_decay: float = about(0.05, "Decoupled decay of weights.", "Learning")
    average: float = about(0.95, "The decay of the moving average of the weights that is kept; 0: none.", "Learning")
    loss: str = about("mean_squared_error", "mean_squared_error or huber.", "Learning")
    huber_delta: float = about(1.0, "From which error on the Huber loss is a straight line.", "Learning")
    seeds: int = about(3, "How many times to train, each with other random numbers.", "Learning")
    seed: int = about(0, "The first of these seeds.", "Learning")
    refit: bool = about(True, "Train once more with the validation part, for as many steps as it chose.", "Learning")

    engine: str = about("auto", "auto, numpy or mlx.", "Machine")
    precision: str = about("float32", "float32; bfloat16 on MLX; float64 on NumPy.", "Machine")
    threads: int | None = about(None, "Threads of the NumPy engine; one for a small encoder.", "Machine")

    def __post_init__(self) -> None:
        check_fields(self, CHECKS, OPTIONAL)
        if self.test + self.validation >= 0.9:
            raise TrainingError(
                f"test {self.test:g} and validation {self.validation:g} leave less than a tenth to learn from"
            )


COUNTS = ("horizon", "period", "window", "patch", "stride", "hidden", "layers", "steps", "evaluate_every", "batch",
          "seeds", "threads")  # fmt: skip
CHECKS: dict[str, Check] = {
    **dict.fromkeys(("series", "value", "time", "model"), (is_text, "text")),
    **dict.fromkeys(("refit", "logarithm"), (is_flag, "true or false")),
    **dict.fromkeys(COUNTS, (is_integer(1), "a whole number of at least 1")),
    **dict.fromkeys(("seed", "patience"), (is_integer(0), "a whole number of at least 0")),
    **dict.fromkeys(("test", "validation"), (is_between(0, 1), "a share of the series, between 0 and 1")),
    **dict.fromkeys(("dropout", "average"), (lambda v: is_number(v) and 0 <= v < 1, "in [0, 1)")),
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
