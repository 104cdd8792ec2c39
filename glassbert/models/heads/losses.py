"""The losses of heads by name, their options, and the decoding of outputs.

A head keeps the name and the options; both are saved with the model.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from glassbert.errors import ConfigError
from glassbert.ops import softmax, unit_length
from glassbert.ops.losses import sigmoid

Weights = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """Options of losses; `OPTIONS_OF_LOSS` lists those of each loss.

    class_weights     weight of each class                                        one number per class
    positive_weights  weight of positive targets                                  one number per label
    label_smoothing   share of every target that is spread over all classes       in [0, 1)
    focal_gamma       exponent of the focal loss; 0: cross-entropy                at least 0
    temperature       of the losses that compare pairs; small: hard ones dominate above 0
    huber_delta       error above which a Huber loss is linear                    above 0
    target_mean       subtracted from the targets before training                 one number per output
    target_scale      divides the targets after that                              one number per output
    """

    class_weights: Weights | None = None
    positive_weights: Weights | None = None
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0
    temperature: float = 0.05
    huber_delta: float = 1.0
    target_mean: Weights | None = None
    target_scale: Weights | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], loss: str, outputs: int) -> Self:
        """The checked options of `loss` for a head with so many outputs."""
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in LOSS_OPTIONS:
                close = difflib.get_close_matches(name, LOSS_OPTIONS, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(LOSS_OPTIONS)}"
                raise ConfigError(f"no loss has an option {name!r}{hint}")
            if value is None:
                continue
            if name not in OPTIONS_OF_LOSS[loss]:
                fits = ", ".join(other for other, names in OPTIONS_OF_LOSS.items() if name in names)
                raise ConfigError(f"{name} belongs to {fits}; the loss of this head is {loss}")
            values[name] = _numbers(name, value, outputs) if name in PER_OUTPUT else _number(name, value)
        if values.get("label_smoothing") and values.get("focal_gamma"):
            raise ConfigError("label_smoothing and focal_gamma cannot be combined; choose one of them")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The options that differ from the defaults, as JSON values."""
        changed = {name: getattr(self, name) for name, value in LOSS_OPTIONS.items() if getattr(self, name) != value}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}


LOSS_OPTIONS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(LossOptions)}
PER_OUTPUT = ("class_weights", "positive_weights", "target_mean", "target_scale")
OPTIONS_OF_LOSS: dict[str, tuple[str, ...]] = {
    "cross_entropy": ("class_weights", "label_smoothing", "focal_gamma"),
    "binary_cross_entropy": ("positive_weights", "focal_gamma"),
    "mean_squared_error": ("target_mean", "target_scale"),
    "huber": ("huber_delta",),
    "ordinal": (),
    "cosine": (),
    "contrastive": ("temperature",),
    "ranking": ("temperature",),
}
ABOVE_ZERO: tuple[str, Callable[[float], bool]] = ("above 0", lambda x: x > 0)
LIMITS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "class_weights": ABOVE_ZERO,
    "positive_weights": ABOVE_ZERO,
    "label_smoothing": ("in [0, 1)", lambda x: 0 <= x < 1),
    "focal_gamma": ("of at least 0", lambda x: x >= 0),
    "temperature": ABOVE_ZERO,
    "huber_delta": ABOVE_ZERO,
    "target_mean": ("that is finite", lambda x: True),
    "target_scale": ABOVE_ZERO,
}


Criterion = tuple[str, dict[str, Any]]  # the operation that computes a loss, and its options


def criterion(loss: str, options: LossOptions) -> Criterion:
    """The operation that computes a loss, and its options."""
    operation, names = (FOCAL if options.focal_gamma else CRITERIA)[loss]
    return operation, {name: getattr(options, field) for name, field in names.items()}


# loss -> operation, and the field of LossOptions for each of its options
CRITERIA: dict[str, tuple[str, dict[str, str]]] = {
    "cross_entropy": ("cross_entropy", {"weights": "class_weights", "smoothing": "label_smoothing"}),
    "binary_cross_entropy": ("binary_cross_entropy", {"positive_weights": "positive_weights"}),
    "mean_squared_error": ("mean_squared_error", {}),
    "huber": ("huber_loss", {"delta": "huber_delta"}),
    "ordinal": ("ordinal_loss", {}),
    "cosine": ("cosine_loss", {}),
    "contrastive": ("contrastive_loss", {"temperature": "temperature"}),
    "ranking": ("ranking_loss", {"temperature": "temperature"}),
}
FOCAL: dict[str, tuple[str, dict[str, str]]] = {
    "cross_entropy": ("focal_loss", {"gamma": "focal_gamma", "weights": "class_weights"}),
    "binary_cross_entropy": ("binary_focal_loss", {"gamma": "focal_gamma", "positive_weights": "positive_weights"}),
}


# ---- decoding outputs, in float64 ------------------------------------------------------------------------------------


def _values(output: np.ndarray, options: LossOptions) -> np.ndarray:
    scale = 1.0 if options.target_scale is None else np.array(options.target_scale)
    return output * scale + (0.0 if options.target_mean is None else np.array(options.target_mean))


def _ranks(output: np.ndarray, options: LossOptions) -> np.ndarray:
    above = np.cumprod(sigmoid(output), -1)  # P(rank > k)
    ends = np.ones((*output.shape[:-1], 1))
    return np.concatenate([ends, above], -1) - np.concatenate([above, 0.0 * ends], -1)


# cross_entropy           probabilities of the classes, which sum to one
# binary_cross_entropy    a probability for every label
# mean_squared_error      values in the units of the labels
# ordinal                 probabilities of the ranks: differences of P(rank > k), which never grows with k
# cosine, contrastive, ranking    embeddings of length one
DECODERS: dict[str, Callable[[np.ndarray, LossOptions], np.ndarray]] = {
    "cross_entropy": lambda output, options: softmax(output)[0],
    "binary_cross_entropy": lambda output, options: sigmoid(output),
    "mean_squared_error": _values,
    "ordinal": _ranks,
    "cosine": lambda output, options: unit_length(output)[0],
    "contrastive": lambda output, options: unit_length(output)[0],
    "ranking": lambda output, options: unit_length(output)[0],
}


def _number(name: str, value: Any) -> float:
    what, holds = LIMITS[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not holds(value):
        raise ConfigError(f"{name} must be a number {what}, got {value!r}")
    return float(value)


def _numbers(name: str, value: Any, count: int) -> Weights:
    if hasattr(value, "tolist"):  # an array
        value = value.tolist()
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if len(values) != count:
        raise ConfigError(f"{name} must be one number for each of the head's {count} outputs, got {len(values)}")
    return tuple(_number(name, one) for one in values)
