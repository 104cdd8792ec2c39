"""The tokens that are read of the last layer: their indices, their dropout masks, and their values among all others.

A masked language model reads the hidden states of the masked tokens, a classifier that of the first token. Attention
mixes the tokens; everything after it computes each token by itself. So the last layer needs keys and values of all
tokens, and the rest only of those that are read:

    x [B, T, H] -> attention -> take rows -> [M, H] -> output map, sum, norm, feed-forward, sum, norm -> [M, H]

Nothing else changes: the results are the same, and tokens that are not read have no gradient at these places anyway.
`Head.rows_read` names the rows, `Pass` decides whether they are used, `SelfAttention.take_read` takes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.engines import DropoutSource


def few_enough(read: int, tokens: int) -> bool:
    """Whether it is worth to take rows: if most tokens are read, there is little to leave out."""
    return 2 * read <= tokens


def split_rows(rows: np.ndarray, starts: Sequence[int]) -> list[np.ndarray]:
    """Ascending indices into all tokens -> for each part, which begins at the token `start`, those into its own."""
    pieces = np.split(rows, np.searchsorted(rows, starts[1:]))
    return [piece - start for piece, start in zip(pieces, starts, strict=True)]


def among_packed(rows: np.ndarray, index: np.ndarray) -> np.ndarray | None:
    """Indices into rows · length -> into the packed tokens `index`; None if one of them was left out as padding."""
    at = np.minimum(np.searchsorted(index, rows), len(index) - 1)
    return at if np.array_equal(index[at], rows) else None


def among_all(values: Array, rows: Array, shape: tuple[int, int]) -> Array:
    """Values [M, ...] of some tokens -> [B, T, ...], with zeros for the others."""
    whole = namespace(values).zeros((math.prod(shape), *values.shape[1:]), dtype=values.dtype)
    whole[rows] = values
    return whole.reshape(*shape, *values.shape[1:])


class DropoutOfRows(NamedTuple):
    """Dropout masks of a last layer that computes only some tokens: the masks that these tokens have among all."""

    source: DropoutSource
    rows: Array  # [M]
    shape: tuple[int, int]  # [B, T]

    def mask(self, name: str, shape: tuple[int, ...], rate: float, row: int = 0) -> Array:
        if len(shape) > 2:  # of all tokens
            return self.source.mask(name, shape, rate, row)
        whole = self.source.mask(name, (*self.shape, *shape[1:]), rate, row)  # [B, T, H]
        return whole.reshape(-1, *shape[1:])[self.rows]  # [M, H]

    def from_row(self, first_row: int) -> DropoutSource:
        return self._replace(source=self.source.from_row(first_row))

    def for_all_rows(self) -> DropoutSource:
        return self.source.for_all_rows()

    def uniform(self, name: str, shape: tuple[int, ...]) -> Array:
        return self.source.uniform(name, shape)
