"""The settings of a quantisation, and which parameters of a model it concerns."""

from __future__ import annotations

from dataclasses import dataclass

from glassbert.errors import ConfigError, InputError
from glassbert.models.model import Model
from glassbert.models.quantized import quantized_parameters
from glassbert.quantization.rounding import check_bits, group_for

METHODS = ("dynamic", "static")
GROUPS = {8: None, 4: 32}  # the default group size: a whole row, or 32 weights
SMALLEST = 4_096  # numbers: a smaller matrix is not worth a scale of its own
# Tables that are looked up by the operation `embedding`; every other matrix is one of the operation `linear`.
CLASSIFIER = "head.classifier"
TABLES = ("embeddings.token", "embeddings.position")


@dataclass(frozen=True)
class QuantizationSettings:
    """How weights are rounded.

    bits        8 or 4
    group       weights of a row that share a scale; None: 32 for 4 bits, a whole row for 8; 0: a whole row
    symmetric   codes symmetric around 0; None: yes for 8 bits, no for 4
    method      how activations are rounded where they meet weights of 8 bits: "dynamic", by the range of every token,
                or "static", by a range that is found with real text. Those that meet 4 bits are not rounded
    """

    bits: int = 8
    group: int | None = None
    symmetric: bool | None = None
    method: str = "dynamic"

    def __post_init__(self) -> None:
        check_bits(self.bits)
        if self.method not in METHODS:
            raise InputError(f"there is no method {self.method!r}; choose {' or '.join(METHODS)}")
        if self.group not in (None, 0):
            group_for(self.group or 0, self.group)

    def group_of(self, bits: int) -> int | None:
        """The group size of weights in so many bits; None: a whole row."""
        if self.group == 0:
            return None
        return GROUPS[bits] if self.group is None or bits != self.bits else self.group

    def symmetric_in(self, bits: int) -> bool:
        return bits == 8 if self.symmetric is None or bits != self.bits else self.symmetric


def quantizable(model: Model) -> list[str]:
    """The names of the matrices that can be quantised: those of linear maps, and the tables of tokens and positions.

    A classifier stays in floats: it is small, and the answers depend on it alone.
    """
    found = []
    for parameter in model.specification:
        name, shape = parameter.name, parameter.shape
        if len(shape) != 2 or shape[0] * shape[1] < SMALLEST or name.startswith(CLASSIFIER):
            continue
        if name.endswith(TABLES) or (name.endswith(".weight") and parameter.initial in ("weight", "output")):
            found.append(name)
    return found


def check_quantizable(model: Model, name: str) -> None:
    """Raise where a model cannot be quantised, or is already."""
    if quantized_parameters(model):
        raise InputError(f"{name} is quantised already; quantise the model that it was made from")
    if model.head is not None and model.head.encoders():
        raise InputError(
            f"{name} has a head of type {model.head.kind}, which holds a generator that is only used in training; "
            "quantise the finished model of the run"
        )
    if model.config.series is not None:
        raise InputError(f"{name} forecasts series and reads no text to measure the loss with; quantise a text model")
    if not quantizable(model):
        raise ConfigError(f"{name} has no matrix of {SMALLEST:,} numbers or more; there is nothing to quantise")
