"""Gradients of A and B in a model whose matrices are W' = W + s B A.

The encoder computes with W' only. Instead of the gradient dyᵀ x of a matrix it passes dy and x (`add_factors`), from
which the gradients of A and B follow by the chain rule. The other parameters of the encoder are frozen: their gradients
are not computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from glassbert.arrays import Array, FlatGradients, Gradients, Layout, ThreadGradients
from glassbert.ops import low_rank_backward


class Adapter(NamedTuple):
    """A low-rank change of some rows of the matrix `weight`; `a` and `b` are the names of A and B."""

    target: str
    weight: str
    rows: slice
    rank: int
    scale: float
    a: str
    b: str


Adapters = Mapping[str, Sequence[Adapter]]  # by the name of the matrix

if TYPE_CHECKING:
    Base = Gradients
else:
    Base = object


class AdapterGradients(Base):
    """Mixin for any kind of gradients: collects those of A and B instead of those of the adapted matrices."""

    adapters: Adapters

    def needs(self, name: str) -> bool:
        needs = super().needs
        if name in self.adapters:
            return any(needs(adapter.a) or needs(adapter.b) for adapter in self.adapters[name])
        return name in self.shapes and needs(name)

    def add_factors(self, name: str, dy: Array, x: Array, parameters: Mapping[str, Array]) -> bool:
        if name not in self.adapters or not self.needs(name):
            return False
        dy, x = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
        for adapter in self.adapters[name]:
            state = parameters[adapter.a], parameters[adapter.b], adapter.scale
            da, db = low_rank_backward((dy[:, adapter.rows], x), state)
            self.add(adapter.a, da)
            self.add(adapter.b, db)
        return True


class LowRankGradients(AdapterGradients, Gradients):
    def __init__(self, layout: Layout, adapters: Adapters):
        super().__init__(layout.shapes)
        self.adapters = adapters


class FlatLowRankGradients(AdapterGradients, FlatGradients):
    def __init__(self, layout: Layout, dtype: Any, adapters: Adapters):
        self.adapters = adapters
        super().__init__(layout, dtype)


class ThreadLowRankGradients(AdapterGradients, ThreadGradients):
    def __init__(self, layout: Layout, dtype: Any, adapters: Adapters):
        self.adapters = adapters
        super().__init__(layout, dtype)
