"""Adding up what several threads have found, a layer at a time.

Threads go through backward side by side, each with gradients of its own. Whoever completes a layer last pours those of
the others into the common ones, while they are still in the cache, and tells that the layer is complete. Since that
thread goes on only afterwards, layers are told in the order of backward.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from glassbert.engines.parameters import FlatGradients, ShardGradients
from glassbert.models.encoder import Finished


class Pouring:
    """Hears from every thread which place it has completed, and tells `finished` when all of them have."""

    def __init__(
        self, gradients: FlatGradients, shards: Sequence[ShardGradients], places: Iterable[str], finished: Finished
    ):
        self.gradients, self.shards, self.finished = gradients, shards, finished
        self._missing = dict.fromkeys(places, 1 + len(shards))
        self._lock = threading.Lock()

    def __call__(self, place: str) -> None:
        with self._lock:
            self._missing[place] -= 1
            if self._missing[place]:
                return
        for shard in self.shards:
            shard.pour_into(self.gradients, [name for name in shard if name.startswith(f"{place}.")])
            for name, index, rows in shard.rows:
                if name.startswith(f"{place}."):
                    self.gradients.add_rows(name, index, rows)
        self.finished(place)
