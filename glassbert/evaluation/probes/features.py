"""What a probe sees of every question: the vectors of one word, or of two, from one layer or from several.

    one layer     x [words, hidden]
    all layers    the layers' vectors side by side
    an edge       the vector of the word and that of its head side by side

They stay apart as blocks, so that a product with all of them is a sum of products and nothing is copied for it. What an
edge needs is twice what there is, so its rows are taken out of the words' vectors only where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

CHUNK = 2048  # rows at a time: they stay in the cache between the product that needs them and the next
SAMPLE = 16 * CHUNK  # rows from which correlations are estimated


@dataclass(frozen=True)
class Gathered:
    """Rows `places` of `vectors` [words, hidden], without a copy of them: as an array, to whoever takes parts of it."""

    vectors: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, part: slice | np.ndarray) -> np.ndarray:
        return self.vectors[self.places[part]]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.places), self.vectors.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.vectors.dtype


@dataclass(frozen=True)
class Features:
    """`blocks`, each [rows, hidden], layer after layer; a row is all blocks side by side."""

    blocks: tuple[np.ndarray | Gathered, ...]
    layers: int = 1

    @classmethod
    def of(cls, vectors: np.ndarray, *places: np.ndarray) -> Features:
        """Of vectors [layers, words, hidden], at one or more index arrays [rows]; without them, of all words."""
        layers = [np.asarray(layer) for layer in vectors]
        return cls(tuple(Gathered(layer, place) for layer in layers for place in places) or tuple(layers), len(layers))

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def dtype(self) -> np.dtype:
        return self.blocks[0].dtype

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return sum(block.shape[1] for block in self.blocks)

    def layer(self, number: int) -> Features:
        each = len(self.blocks) // self.layers
        return Features(self.blocks[number * each : (number + 1) * each])

    def select(self, rows: np.ndarray) -> Features:
        return Features(tuple(block[rows] for block in self.blocks), self.layers)

    def rows(self, part: slice | np.ndarray) -> np.ndarray:
        """[rows, width]; what is returned must not be written to."""
        return self.blocks[0][part] if len(self.blocks) == 1 else np.concatenate([b[part] for b in self.blocks], 1)

    def parts(self) -> Iterator[slice]:
        for begin in range(0, len(self), CHUNK):
            yield slice(begin, min(begin + CHUNK, len(self)))

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """[..., width] as one array for each block."""
        return np.split(values, np.cumsum([block.shape[1] for block in self.blocks])[:-1], axis=-1)

    @cached_property
    def scaling(self) -> Scaling:
        return Scaling.of(self)

    @cached_property
    def principal_axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances [width] and axes [width, width] of scaled features, estimated from some of the rows."""
        every = max(1, len(self) // SAMPLE)
        products = np.zeros((self.width, self.width))
        count = 0
        for part in self.parts():
            rows = self.rows(slice(part.start, part.stop, every))
            scaled = ((rows - self.scaling.mean) / self.scaling.deviation).astype(rows.dtype)
            products += scaled.T @ scaled
            count += len(rows)
        variances, axes = np.linalg.eigh(products / count)
        return np.maximum(variances, 0), axes


@dataclass(frozen=True)
class Scaling:
    """Mean and deviation of every feature [width]. One that never varies gets an infinite deviation: it scales to 0."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, features: Features) -> Scaling:
        means, deviations = [], []
        for block in features.blocks:
            mean = sum(block[part].sum(0, dtype=np.float64) for part in features.parts()) / len(block)
            squares = sum(((block[part] - mean) ** 2).sum(0) for part in features.parts())
            means.append(mean)
            deviations.append(np.sqrt(squares / len(block)))
        mean, deviation = np.concatenate(means), np.concatenate(deviations)
        deviation[deviation <= 1e-6 * (np.abs(mean) + deviation.max())] = np.inf
        return cls(mean, deviation)
