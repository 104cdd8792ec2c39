"""Sizes that are not known yet: the number of rows of a batch, the length of its rows, and what is computed from them.

    size = Σ coefficient · product of unknowns          batch · length,  2 · length - 1,  batch / 2

A size takes part in the arithmetic of a shape like an int. Two sizes are equal if their polynomials are. In any other
comparison an unknown counts as very large: code that treats a size of 1 or a short row apart is recorded by its general
branch, which must be right for every size.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from glassbert.errors import EngineError

Monomial = tuple[str, ...]  # the unknowns of a product, in alphabetical order
LARGE = 1_000_003  # what an unknown counts as in a comparison, and up to a thousand more


class Size:
    """A polynomial of unknown sizes. `Size.of("length")` is an unknown itself."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, Fraction]):
        self.terms = {product: factor for product, factor in terms.items() if factor}

    @classmethod
    def of(cls, name: str) -> Size:
        return cls({(name,): Fraction(1)})

    def __add__(self, other: Any) -> Any:
        given = _terms(other)
        if given is None:
            return NotImplemented
        terms = dict(self.terms)
        for product, factor in given.items():
            terms[product] = terms.get(product, Fraction(0)) + factor
        return _simplified(terms)

    def __mul__(self, other: Any) -> Any:
        given = _terms(other)
        if given is None:
            return NotImplemented
        terms: dict[Monomial, Fraction] = {}
        for one, a in self.terms.items():
            for two, b in given.items():
                product = tuple(sorted(one + two))
                terms[product] = terms.get(product, Fraction(0)) + a * b
        return _simplified(terms)

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else self + -1 * other

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else -1 * self + other

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Any:
        """The quotient, taken to be exact: half of a batch of pairs, or a size without one of its factors."""
        divisor = _terms(other)
        if divisor is None or len(divisor) != 1:
            return NotImplemented
        ((product, factor),) = divisor.items()
        terms = {}
        for mine, own in self.terms.items():
            rest = list(mine)
            for unknown in product:
                if unknown not in rest:
                    raise TypeError(f"{self} is no multiple of {other}")
                rest.remove(unknown)
            terms[tuple(rest)] = own / factor
        return _simplified(terms)

    def __index__(self) -> int:
        raise EngineError(
            f"the size {self} is not known while a graph is recorded, and code asks for it as a number; use the "
            "functions of the array's own namespace, such as namespace(x).arange(length)"
        )

    def __float__(self) -> float:
        return float(self.__index__())

    def __truediv__(self, other: Any) -> float:
        return float(self)

    def __rtruediv__(self, other: Any) -> float:
        return float(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __lt__(self, other: Any) -> bool:
        return _compared(self) < _compared(other)

    def __le__(self, other: Any) -> bool:
        return _compared(self) <= _compared(other)

    def __gt__(self, other: Any) -> bool:
        return _compared(self) > _compared(other)

    def __ge__(self, other: Any) -> bool:
        return _compared(self) >= _compared(other)

    def __repr__(self) -> str:
        return " + ".join(_in_words(*term) for term in sorted(self.terms.items())).replace("+ -", "- ")


def _terms(value: Any) -> Mapping[Monomial, Fraction] | None:
    """The terms of a size or of a whole number; None for anything else."""
    if isinstance(value, Size):
        return value.terms
    return {(): Fraction(int(value))} if isinstance(value, (int, np.integer)) else None


def _simplified(terms: Mapping[Monomial, Fraction]) -> Any:
    """A size, or an int where no unknown is left."""
    size = Size(terms)
    if set(size.terms) <= {()}:
        return int(size.terms.get((), 0))
    return size


def _compared(value: Any) -> Any:
    if not isinstance(value, Size):
        return value
    return sum(
        factor * math.prod(LARGE + zlib.crc32(name.encode()) % 997 for name in product)
        for product, factor in value.terms.items()
    )


def _in_words(product: Monomial, factor: Fraction) -> str:
    names = "*".join(product)
    if not product or factor.numerator not in (1, -1):
        names = "*".join([str(factor.numerator), *product])
    elif factor.numerator == -1:
        names = f"-{names}"
    return names if factor.denominator == 1 else f"{names}/{factor.denominator}"
