"""Bits for every matrix, so that the model loses no more than is allowed.

Matrices are ordered by what they save: the change of the output that one avoids by staying at more bits, divided by its
numbers. At first all have the fewest bits. While the loss on the model's own task is too large, those that avoid most
get more; the number of these is found by bisection, with one measurement a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from glassbert.quantization.sensitivity import Cost

FLOAT = 32


@dataclass(frozen=True)
class Choice:
    """Bits by the name of the matrix, the loss that was measured with them, and whether it is allowed."""

    bits: dict[str, int]
    loss: float
    allowed: bool
    measured: int


def choose_bits(
    costs: Sequence[Cost], fewest: int, allowed: float, loss: Callable[[Mapping[str, int]], float]
) -> Choice:
    """The fewest bits whose loss is at most `allowed`; `loss(bits)` measures a choice.

    With 4 bits, single matrices get 8; where that is not enough, and with 8 bits, they stay floats.
    """
    ladder = [(4, 8), (8, FLOAT)] if fewest == 4 else [(8, FLOAT)]
    measured = 0
    found: Choice | None = None
    for few, more in ladder:
        order = sorted(costs, key=lambda one: -_gain(one, few, more) / one.numbers)

        def bits_with(raised: int, few: int = few, more: int = more, order: Sequence[Cost] = order) -> dict[str, int]:
            return {one.name: more if i < raised else few for i, one in enumerate(order)}

        low, high = 0, len(order)
        best: Choice | None = None
        while low <= high:
            middle = (low + high) // 2 if measured else 0
            bits = bits_with(middle)
            value = loss(bits)
            measured += 1
            found = Choice(bits, value, value <= allowed, measured)
            if value <= allowed:
                best, high = found, middle - 1
            else:
                low = middle + 1
        if best is not None:
            return Choice(best.bits, best.loss, True, measured)
    assert found is not None
    return Choice(found.bits, found.loss, False, measured)


def _gain(one: Cost, few: int, more: int) -> float:
    return one.cost[few] ** 2 - (0.0 if more == FLOAT else one.cost[more] ** 2)
