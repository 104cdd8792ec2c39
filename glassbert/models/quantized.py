"""Models whose large matrices are stored in 8 or 4 bits.

    W ≈ Ŵ = scale · (code - zero) + offset         (`glassbert.ops.quantized`)

A `QuantizedModel` computes what any model computes: its parameters are arrays and `QuantizedArray`s side by side, and
an operation reads each kind. Quantised parameters are frozen; the others have gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from glassbert.arrays import Gradients, Layout, ThreadGradients
from glassbert.errors import ConfigError
from glassbert.models.model import Model
from glassbert.ops import QuantizedArray

FROZEN = (
    "quantised weights are frozen; train a change of low rank over them (--low-rank 8, LowRank(model)), or a model "
    "that is not quantised"
)


class MixedParameters(Mapping[str, Any]):
    """Quantised parameters, and all others as the engine stores them, in the order of the model."""

    def __init__(self, names: list[str], others: Any, quantized: Mapping[str, QuantizedArray]):
        self.names, self.others, self.quantized = names, others, dict(quantized)

    def __getitem__(self, name: str) -> Any:
        return self.quantized[name] if name in self.quantized else self.others[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self.quantized and not isinstance(value, QuantizedArray):
            raise ConfigError(f"{name} is quantised, so it cannot be replaced by floats; use a model that is not")
        (self.quantized if name in self.quantized else self.others)[name] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def flat(self) -> np.ndarray:
        raise ConfigError(FROZEN)


class QuantizedModel(Model):
    """`model` with these parameters quantised. Its other parameters are copied."""

    def __init__(self, model: Model, quantized: Mapping[str, QuantizedArray]):
        state = model.__getstate__()
        self.__setstate__({**state, "carried_fields": dict(state["carried_fields"]), "training": False})
        for name, weight in quantized.items():
            if weight.shape != self.layout.shapes[name]:
                raise ConfigError(f"{name} has the shape {list(self.layout.shapes[name])}, not {list(weight.shape)}")
        rest = Layout({name: shape for name, shape in self.layout.shapes.items() if name not in quantized})
        others = self.engine.parameters(rest)
        for name in rest.shapes:
            others[name] = self.engine.array(np.array(self.engine.to_numpy(model.parameters[name])))
        self.parameters = MixedParameters(list(self.layout.shapes), others, quantized)

    @property
    def quantized(self) -> dict[str, QuantizedArray]:
        """The quantised parameters by name."""
        return quantized_parameters(self)

    def _trained(self, layout: Layout) -> Layout:
        return Layout({name: shape for name, shape in layout.shapes.items() if name not in self.quantized})

    def new_gradients(self) -> Gradients:
        layout = self._trained(self.layout)
        gradients = self.engine.gradients(layout)
        gradients.train_only(frozenset(layout.shapes))
        return gradients

    def new_thread_gradients(self) -> ThreadGradients:
        encoder = super().new_thread_gradients().shapes
        return ThreadGradients(self._trained(Layout(encoder)), self.engine.dtype)

    def set_training(self, flag: bool = True) -> None:
        if flag and self.quantized:
            raise ConfigError(FROZEN)
        super().set_training(flag)

    def in_floats(self) -> Model:
        """A model of its own memory with Ŵ in place of the codes."""
        plain = object.__new__(Model)
        plain.__setstate__({**self.__getstate__(), "parameters": self.engine.parameters(self.layout)})
        for name, values in self.parameters.items():
            plain.parameters[name] = self.engine.array(np.array(self.engine.to_numpy(values)))
        return plain

    def __repr__(self) -> str:
        bits = sorted({weight.bits for weight in self.quantized.values()}, reverse=True)
        return f"{super().__repr__()[:-1]}, {len(self.quantized)} matrices in {' and '.join(map(str, bits))} bits)"


def quantized_parameters(model: Model) -> dict[str, QuantizedArray]:
    """The quantised parameters of any model by name."""
    return {name: value for name, value in model.parameters.items() if isinstance(value, QuantizedArray)}


def bytes_of(model: Model) -> int:
    """Bytes of all parameters in memory."""
    return sum(int(value.nbytes) for value in model.parameters.values())


def on_engine(weight: QuantizedArray, engine: Any) -> QuantizedArray:
    """Codes of NumPy as the engine reads them. MLX has codes from 0 on, without a sign."""
    if engine.name == "numpy":
        return weight.astype(engine.dtype)
    signed = weight.codes.dtype == np.int8
    codes = weight.codes.view(np.uint8) ^ 128 if signed else weight.codes
    xp = engine.xp
    offsets = None if weight.offsets is None else xp.array(np.asarray(weight.offsets, np.float32))
    return replace(
        weight, codes=xp.array(codes), scales=xp.array(np.asarray(weight.scales, np.float32)), offsets=offsets,
        zero=weight.zero + 128 if signed else weight.zero, dtype=engine.dtype,
    )  # fmt: skip


def on_host(weight: QuantizedArray) -> QuantizedArray:
    """The inverse of `on_engine`: arrays of NumPy, codes of 8 bits with a sign."""
    codes, scales = np.asarray(weight.codes), np.asarray(weight.scales)
    offsets = None if weight.offsets is None else np.asarray(weight.offsets)
    unsigned = weight.bits == 8 and codes.dtype == np.uint8
    codes = (codes ^ 128).view(np.int8) if unsigned else codes
    zero = weight.zero - 128 if unsigned else weight.zero
    return replace(weight, codes=codes, scales=scales, offsets=offsets, zero=zero, dtype=np.dtype(np.float32))
