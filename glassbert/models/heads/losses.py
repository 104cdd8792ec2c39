"""The losses that heads are trained with, by name, and what may be set about them.

A head keeps the name and the options; both are saved with the model and come back with it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

from glassbert.errors import ConfigError
from glassbert.ops import (
    binary_cross_entropy,
    binary_cross_entropy_backward,
    binary_focal_loss,
    binary_focal_loss_backward,
    contrastive_loss,
    contrastive_loss_backward,
    cosine_loss,
    cosine_loss_backward,
    cross_entropy,
    cross_entropy_backward,
    focal_loss,
    focal_loss_backward,
    huber_loss,
    huber_loss_backward,
    mean_squared_error,
    mean_squared_error_backward,
    ordinal_loss,
    ordinal_loss_backward,
)

Weights = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """What may be set about a loss; each belongs to some of them (`TAKES`).

    class_weights     how much each class counts                                  one number a class
    positive_weights  how much a yes counts against a no                          one number a label
    label_smoothing   the share of every answer that is spread over all classes   in [0, 1)
    focal_gamma       how little counts what is known already; 0: all the same    at least 0
    temperature       of the contrastive loss: small ones listen to near misses   above 0
    huber_delta       from which error on a Huber loss grows in a straight line   above 0
    target_mean       what is taken from the targets before they are learned,     one number an output
    target_scale      and by what the rest is divided: small, even targets are learned best
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
        """Checked options of `loss` for a head with so many outputs."""
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in LOSS_OPTIONS:
                close = difflib.get_close_matches(name, LOSS_OPTIONS, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(LOSS_OPTIONS)}"
                raise ConfigError(f"no loss has an option {name!r}{hint}")
            if value is None:
                continue
            if name not in TAKES[loss]:
                fits = ", ".join(other for other, names in TAKES.items() if name in names)
                raise ConfigError(f"{name} belongs to {fits}; the loss of this head is {loss}")
            values[name] = _numbers(name, value, outputs) if name in PER_OUTPUT else _number(name, value)
        if values.get("label_smoothing") and values.get("focal_gamma"):
            raise ConfigError("label_smoothing and focal_gamma work against each other; choose one of them")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON has it."""
        set_here = {name: getattr(self, name) for name, usual in LOSS_OPTIONS.items() if getattr(self, name) != usual}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in set_here.items()}


LOSS_OPTIONS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(LossOptions)}
PER_OUTPUT = ("class_weights", "positive_weights", "target_mean", "target_scale")
TAKES: dict[str, tuple[str, ...]] = {
    "cross_entropy": ("class_weights", "label_smoothing", "focal_gamma"),
    "binary_cross_entropy": ("positive_weights", "focal_gamma"),
    "mean_squared_error": ("target_mean", "target_scale"),
    "huber": ("huber_delta",),
    "ordinal": (),
    "cosine": (),
    "contrastive": ("temperature",),
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


class Criterion(NamedTuple):
    """A loss with its options filled in. `overwrites`: it may be told that nobody needs the output any more."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    overwrites: bool = False


def criterion(loss: str, options: LossOptions) -> Criterion:
    return (FOCAL if options.focal_gamma else CRITERIA)[loss](options)


CRITERIA: dict[str, Callable[[LossOptions], Criterion]] = {
    "cross_entropy": lambda o: Criterion(
        partial(cross_entropy, weights=o.class_weights, smoothing=o.label_smoothing),
        cross_entropy_backward,
        overwrites=True,
    ),
    "binary_cross_entropy": lambda o: Criterion(
        partial(binary_cross_entropy, positive_weights=o.positive_weights), binary_cross_entropy_backward
    ),
    "mean_squared_error": lambda o: Criterion(mean_squared_error, mean_squared_error_backward),
    "huber": lambda o: Criterion(partial(huber_loss, delta=o.huber_delta), huber_loss_backward),
    "ordinal": lambda o: Criterion(ordinal_loss, ordinal_loss_backward),
    "cosine": lambda o: Criterion(cosine_loss, cosine_loss_backward),
    "contrastive": lambda o: Criterion(
        partial(contrastive_loss, temperature=o.temperature),
        partial(contrastive_loss_backward, temperature=o.temperature),
    ),
}
FOCAL: dict[str, Callable[[LossOptions], Criterion]] = {
    "cross_entropy": lambda o: Criterion(
        partial(focal_loss, gamma=o.focal_gamma, weights=o.class_weights),
        partial(focal_loss_backward, gamma=o.focal_gamma),
    ),
    "binary_cross_entropy": lambda o: Criterion(
        partial(binary_focal_loss, gamma=o.focal_gamma, positive_weights=o.positive_weights),
        partial(binary_focal_loss_backward, gamma=o.focal_gamma),
    ),
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
