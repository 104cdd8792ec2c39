"""What a pass of a model leaves behind: the caches of its parts, seen as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.layers.scope import Cache
from glassbert.models.encoder import Batch


@dataclass
class Part:
    """Some rows of a batch, worked on by one thread. `index` says where the tokens of a packed part belong."""

    rows: slice
    batch: Batch
    cache: Cache
    source: Any = None
    index: np.ndarray | None = None


@dataclass
class ModelCache(Mapping[str, Any]):
    """What one pass left behind, by dotted name; the parts of a batch appear as one."""

    parts: list[Part]
    head: Cache
    parameters: Mapping[str, Array]
    hidden_shape: tuple[int, int, int]
    checkpointing: bool
    has_loss: bool = False
    output_shape: Any = ()  # of what backward begins with, or one for each part of a head; a loss has none

    def __getitem__(self, name: str) -> Any:
        if name in self.head:
            return self.head[name]
        values = [part.cache[name] for part in self.parts]
        if len(values) == 1 or not hasattr(values[0], "shape"):
            return values[0]
        if any(value.shape[1:] != values[0].shape[1:] for value in values):
            return values  # parts that were packed differ in length: one value for every part
        if values[0].ndim and values[0].shape[0] == self.parts[0].batch.size:
            return np.concatenate(values)
        return values[0]

    def __iter__(self) -> Iterator[str]:
        yield from self.parts[0].cache
        yield from self.head

    def __len__(self) -> int:
        return len(self.parts[0].cache) + len(self.head)
