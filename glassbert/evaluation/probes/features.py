"""Features of a probe: the vectors of one word or of a word and its head, from one or more layers.

    one layer     x [words, hidden]
    all layers    the vectors of the layers, concatenated
    an edge       the vectors of the word and of its head, concatenated

The parts are kept as blocks, so a matrix product is a sum over blocks and nothing is copied. The rows of an edge are
gathered from the word vectors only when they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

CHUNK = 2048  # rows at a time, so that they stay in the CPU cache
SAMPLE = 16 * CHUNK  # rows from which correlations are estimated


@dataclass(frozen=True)
class GatheredRows:
    """Rows `index` of `vectors` [words, hidden], gathered only when a part is read."""

    vectors: np.ndarray
    index: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, part: slice | np.ndarray) -> np.ndarray:
        return self.vectors[self.index[part]]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.index), self.vectors.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.vectors.dtype


@dataclass(frozen=True)
class Features:
    """`blocks`, each [rows, hidden], ordered by layer; a row is the concatenation of all blocks."""

    blocks: tuple[np.ndarray | GatheredRows, ...]
    layers: int = 1

    @classmethod
    def of(cls, vectors: np.ndarray, *indices: np.ndarray) -> Features:
        """Features from vectors [layers, words, hidden] at one or more index arrays [rows]; without them all words."""
        layers = [np.asarray(layer) for layer in vectors]
        gathered = tuple(GatheredRows(layer, index) for layer in layers for index in indices)
        return cls(gathered or tuple(layers), len(layers))

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def dtype(self) -> np.dtype:
        return self.blocks[0].dtype

    @property
    def width(self) -> int:
        """The number of features of a row."""
        return sum(block.shape[1] for block in self.blocks)

    def layer(self, number: int) -> Features:
        each = len(self.blocks) // self.layers
        return Features(self.blocks[number * each : (number + 1) * each])

    def select(self, rows: np.ndarray) -> Features:
        return Features(tuple(block[rows] for block in self.blocks), self.layers)

    def rows(self, part: slice | np.ndarray) -> np.ndarray:
        """[rows, width]. It may be a view: do not write to it."""
        return self.blocks[0][part] if len(self.blocks) == 1 else np.concatenate([b[part] for b in self.blocks], 1)

    def parts(self) -> Iterator[slice]:
        for begin in range(0, len(self), CHUNK):
            yield slice(begin, min(begin + CHUNK, len(self)))

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Split [..., width] into one array per block."""
        return np.split(values, np.cumsum([block.shape[1] for block in self.blocks])[:-1], axis=-1)

    @cached_property
    def scaling(self) -> Scaling:
        return Scaling.of(self)

    @cached_property
    def principal_axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Variances [width] and axes [width, width] of the scaled features, estimated from a sample of rows."""
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
    """Mean and standard deviation of every feature [width]. A constant feature gets an infinite deviation."""

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
