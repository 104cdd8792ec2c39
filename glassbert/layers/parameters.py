"""What a layer says about its parameters before any of them exists."""

from __future__ import annotations

from typing import NamedTuple


class Parameter(NamedTuple):
    """A parameter's name, shape and how it begins.

    `initial` is "weight" (random), "output" (random, the last map of a residual branch, which depth-scaled
    initialisation makes smaller), "embedding" (random), "zeros" or "ones".
    """

    name: str
    shape: tuple[int, ...]
    initial: str


def linear_parameters(name: str, inputs: int, outputs: int, bias: bool, initial: str = "weight") -> list[Parameter]:
    weight = Parameter(f"{name}.weight", (outputs, inputs), initial)
    return [weight, Parameter(f"{name}.bias", (outputs,), "zeros")] if bias else [weight]


def norm_parameters(name: str, size: int, bias: bool) -> list[Parameter]:
    weight = Parameter(f"{name}.weight", (size,), "ones")
    return [weight, Parameter(f"{name}.bias", (size,), "zeros")] if bias else [weight]


def inside(place: str, parameters: list[Parameter]) -> list[Parameter]:
    return [parameter._replace(name=f"{place}.{parameter.name}") for parameter in parameters]
