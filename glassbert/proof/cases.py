"""The table of cases: every operation, layer and model with the inputs and options where gradients often are wrong.

A case builds a fixture: inputs in float64, and a function that computes the output on any engine and returns the
backward. The same fixture is used for finite differences, float32, MLX and planted faults.

To add a case, decorate a function that takes a random generator and returns a `Fixture`. A test compares the subjects
of this table with the registry of operations and the modules of layers, so that none is missing.
"""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from glassbert.arrays import Array
from glassbert.engines.numpy_engine import NumpyDropout

KINDS = ("op", "layer", "model")
FAMILY_MODULES = ("gpt2_cases", "xlnet_cases", "longformer_cases")  # with the planted faults of each member

Gradients = Mapping[str, Array]
Function = Callable[[Any, Mapping[str, Array]], tuple[Array, Callable[[Array], Gradients]]]


@dataclass(frozen=True)
class Fixture:
    """The inputs and the function of one case.

    inputs       float64 arrays by name, which have gradients
    function     (engine, inputs) -> (output, backward), where backward(d_output) returns the gradients by name
    around       a context manager that is entered while the case runs, such as one that sets small tiles
    threads      number of threads of the NumPy engine
    entries      number of entries of a tensor that are checked one by one
    method       "central" or "complex"
    engines_agree  False if NumPy and MLX draw different dropout masks; MLX is then only compared with its autograd
    on_mlx       False if the case does not run on MLX
    """

    inputs: dict[str, np.ndarray]
    function: Function
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    threads: int = 1
    entries: int = 128
    method: str = "central"
    engines_agree: bool = True
    on_mlx: bool = True


class Case(NamedTuple):
    """A subject (`layer_norm`, `block`, `modernbert`) with certain inputs and options; `kind` is op, layer or model."""

    name: str
    kind: str
    subject: str
    build: Callable[[], Fixture]


_CASES: dict[str, Case] = {}


def case(
    kind: str, subject: str, situation: str
) -> Callable[[Callable[[np.random.Generator], Fixture]], Callable[[np.random.Generator], Fixture]]:
    """Register a fixture. Its random numbers depend only on its name."""

    def register(build: Callable[[np.random.Generator], Fixture]) -> Callable[[np.random.Generator], Fixture]:
        name = f"{subject}: {situation}"
        if kind not in KINDS or name in _CASES:
            raise ValueError(f"{name!r} is already registered, or {kind!r} is not one of {KINDS}")
        seed = zlib.crc32(name.encode())
        _CASES[name] = Case(name, kind, subject, lambda: build(np.random.default_rng(seed)))
        return build

    return register


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case by name: operations first, then layers, then models."""
    for module in (
        *("op_cases", "loss_cases", "pooling_cases", "attention_cases", "relative_cases"),
        *("layer_cases", "head_cases", "model_cases", "series_cases", "low_rank_cases", "number_cases"),
        *("aligned_cases", "family_cases", "deberta_cases", "rtd_cases", "distillation_cases", "quantized_cases"),
        *FAMILY_MODULES,
    ):
        import_module(f"glassbert.proof.{module}")
    return dict(sorted(_CASES.items(), key=lambda item: KINDS.index(item[1].kind)))


# ---- helpers for fixtures -------------------------------------------------------------------------------------


@contextlib.contextmanager
def settings(module: Any, **values: Any) -> Iterator[None]:
    """Set names of a module to other values temporarily."""
    saved = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(module, name, value)


class FrozenDropout:
    """Dropout masks that are the same in every pass and on every engine."""

    def __init__(self, engine: Any, seed: int = 7, first_row: int = 0, drawn: dict[Any, Any] | None = None):
        self.engine = engine
        self.seed = seed
        self.first_row = first_row
        self.drawn: dict[Any, Any] = {} if drawn is None else drawn

    def from_row(self, first_row: int) -> FrozenDropout:
        return FrozenDropout(self.engine, self.seed, self.first_row + first_row, self.drawn)

    def for_all_rows(self) -> FrozenDropout:
        return FrozenDropout(self.engine, self.seed, 0, self.drawn)

    def mask(self, name: str, shape: tuple[int, ...], rate: float, row: int = 0) -> Array:
        key = (name, tuple(shape), rate, self.first_row + row)
        if key not in self.drawn:
            mask = NumpyDropout(self.seed, self.first_row).mask(name, tuple(shape), rate, row)
            self.drawn[key] = mask if self.engine.name == "numpy" else self.engine.xp.array(mask)
        return self.drawn[key]

    def uniform(self, name: str, shape: tuple[int, ...]) -> Array:
        key = (name, tuple(shape), self.first_row)
        if key not in self.drawn:
            self.drawn[key] = self.engine.array(NumpyDropout(self.seed, self.first_row).uniform(name, tuple(shape)))
        return self.drawn[key]


def booleans(engine: Any, values: np.ndarray) -> Array:
    return values if engine.name == "numpy" else engine.xp.array(values)


def away_from_zero(values: np.ndarray, margin: float) -> np.ndarray:
    """The values moved away from a kink at zero by `margin`."""
    return values + np.where(values >= 0, margin, -margin)
