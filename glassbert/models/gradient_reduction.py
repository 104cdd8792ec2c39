"""Gradients of several threads, added up while the backward continues."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from glassbert.arrays import FlatGradients, ThreadGradients
from glassbert.models.encoder import OnComplete


class GradientReduction:
    """Adds up the gradients of several threads, one group of parameters at a time.

    Threads run the backward side by side, each with gradients of its own. The last one to complete a group adds those
    of the others to the common ones, while they are still in the cache, and calls `on_complete`. That thread continues
    only afterwards, so groups are completed in the order of the backward.
    """

    def __init__(
        self,
        gradients: FlatGradients,
        others: Sequence[ThreadGradients],
        groups: Mapping[str, tuple[str, ...]],
        on_complete: OnComplete,
    ):
        self.gradients, self.others, self.on_complete = gradients, others, on_complete
        self.groups = groups
        self._missing = dict.fromkeys(groups, 1 + len(others))
        self._lock = threading.Lock()

    def __call__(self, group: str) -> None:
        with self._lock:
            self._missing[group] -= 1
            if self._missing[group]:
                return
        prefixes = self.groups[group]
        for other in self.others:
            other.add_to(self.gradients, [name for name in other if name.startswith(prefixes)])
            for name, index, rows in other.rows:
                if name.startswith(prefixes):
                    self.gradients.add_rows(name, index, rows)
        self.on_complete(group)
