"""Count repeated sentences and documents, and held-out text that also occurs in the training text.

Sentences are compared by 64-bit digests. If there are more than BUDGET, only digests below a bound are kept. This is
an unbiased sample of the distinct sentences with all their copies; a sample of locations would miss copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

BUDGET = 1 << 22
LONG_ENOUGH = 8  # tokens: shorter sentences repeat in any language
LEAK_DOCUMENTS = 2000

Location = tuple[str, int, int]  # split, shard, number


@dataclass
class Repeats:
    """Counts copies among about `expected` items, each with a digest and a location."""

    expected: int
    digests: list[np.ndarray] = field(default_factory=list)
    locations: list[tuple[str, int, np.ndarray]] = field(default_factory=list)

    @property
    def sampled(self) -> float:
        """The share of the distinct items that is compared."""
        return 0.5 ** max(0, int(np.ceil(np.log2(max(self.expected, 1) / BUDGET))))

    def add(self, split: str, shard: int, digests: np.ndarray, wanted: np.ndarray) -> None:
        if self.sampled < 1:
            wanted = wanted & (digests < np.uint64(self.sampled * 2.0**64))
        numbers = np.flatnonzero(wanted)
        self.digests.append(digests[numbers])
        self.locations.append((split, shard, numbers))

    def share(self) -> float:
        """Copies beyond the first, as a share of all compared items."""
        every = np.sort(np.concatenate(self.digests)) if self.digests else np.zeros(0, np.uint64)
        return float((every[1:] == every[:-1]).sum() / max(len(every), 1))

    def most_frequent(self, how_many: int = 8) -> list[tuple[int, Location]]:
        """The items with the most copies: (number of copies, location of the first)."""
        if not self.digests:
            return []
        every = np.concatenate(self.digests)
        _, first, counts = np.unique(every, return_index=True, return_counts=True)
        order = np.lexsort((first, -counts))[:how_many]
        return [(int(counts[i]), self._location(int(first[i]))) for i in order if counts[i] > 1]

    def _location(self, index: int) -> Location:
        for split, shard, numbers in self.locations:
            if index < len(numbers):
                return split, shard, int(numbers[index])
            index -= len(numbers)
        raise IndexError(index)


@dataclass
class LeakDetector:
    """Finds sentences of held-out documents in the training text."""

    digests: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))  # sorted, distinct
    found: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    documents: list[tuple[Location, np.ndarray]] = field(default_factory=list)  # location, digests of its sentences

    def add_held_out(self, shard: int, digests: np.ndarray, tokens: np.ndarray, begins: np.ndarray, every: int) -> None:
        """Add every `every`-th document of a held-out shard; `begins` are the first sentences of all documents."""
        ends = np.append(begins[1:], len(digests))
        for document in range(0, len(begins), every):
            one = slice(int(begins[document]), int(ends[document]))
            long = digests[one][tokens[one] >= LONG_ENOUGH]
            if len(long):
                self.documents.append((("validation", shard, document), long))

    def finish_held_out(self) -> None:
        """Sort the digests; call it after the last `add_held_out`."""
        if self.documents:
            self.digests = np.unique(np.concatenate([digests for _, digests in self.documents]))
        self.found = np.zeros(len(self.digests), bool)

    def check_training(self, digests: np.ndarray) -> None:
        """Mark the held-out sentences that occur in these training sentences."""
        if len(self.digests):
            at = np.searchsorted(self.digests, digests).clip(max=len(self.digests) - 1)
            self.found[at[self.digests[at] == digests]] = True

    def shares(self) -> tuple[float, float, list[Location]]:
        """The share of sentences found in training, the share of documents found half or more, and these documents."""
        seen = total = 0
        leaked = []
        for location, digests in self.documents:
            known = int(self.found[np.searchsorted(self.digests, digests)].sum())
            seen, total = seen + known, total + len(digests)
            if 2 * known >= len(digests):
                leaked.append(location)
        return seen / max(total, 1), len(leaked) / max(len(self.documents), 1), leaked
