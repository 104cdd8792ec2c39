"""What stands in a corpus more than once, and what of the held-out text the training text gives away.

Sentences are compared by their 64-bit digests. Where there are more than BUDGET of them, only digests below a bound
are kept: that is a fair sample of the different sentences together with all copies of each, which a sample of places
would not be.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

BUDGET = 1 << 22
LONG_ENOUGH = 8  # tokens: shorter sentences recur in any language
LEAK_DOCUMENTS = 2000

Place = tuple[str, int, int]  # split, shard, number


@dataclass
class Repeats:
    """Counts copies among `expected` things that come with a digest and a place."""

    expected: int
    digests: list[np.ndarray] = field(default_factory=list)
    places: list[tuple[str, int, np.ndarray]] = field(default_factory=list)

    @property
    def sampled(self) -> float:
        """The share of the different things that is looked at."""
        return 0.5 ** max(0, int(np.ceil(np.log2(max(self.expected, 1) / BUDGET))))

    def add(self, split: str, shard: int, digests: np.ndarray, wanted: np.ndarray) -> None:
        if self.sampled < 1:
            wanted = wanted & (digests < np.uint64(self.sampled * 2.0**64))
        numbers = np.flatnonzero(wanted)
        self.digests.append(digests[numbers])
        self.places.append((split, shard, numbers))

    def share(self) -> float:
        """Copies beyond the first, as a share of everything looked at."""
        every = np.sort(np.concatenate(self.digests)) if self.digests else np.zeros(0, np.uint64)
        return float((every[1:] == every[:-1]).sum() / max(len(every), 1))

    def most_frequent(self, how_many: int = 8) -> list[tuple[int, Place]]:
        """The things with most copies: how many there are, and the place of the first."""
        if not self.digests:
            return []
        every = np.concatenate(self.digests)
        _, first, counts = np.unique(every, return_index=True, return_counts=True)
        order = np.lexsort((first, -counts))[:how_many]
        return [(int(counts[i]), self._place(int(first[i]))) for i in order if counts[i] > 1]

    def _place(self, index: int) -> Place:
        for split, shard, numbers in self.places:
            if index < len(numbers):
                return split, shard, int(numbers[index])
            index -= len(numbers)
        raise IndexError(index)


@dataclass
class Leak:
    """Sentences of held-out documents, to be met again in the training text."""

    digests: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))  # sorted, different
    found: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    documents: list[tuple[Place, np.ndarray]] = field(default_factory=list)  # place, digests of its sentences

    def hold_out(self, shard: int, digests: np.ndarray, tokens: np.ndarray, begins: np.ndarray, every: int) -> None:
        """Remember every so-many-th document of a shard; `begins` are the numbers of their first sentences."""
        ends = np.append(begins[1:], len(digests))
        for document in range(0, len(begins), every):
            one = slice(int(begins[document]), int(ends[document]))
            long = digests[one][tokens[one] >= LONG_ENOUGH]
            if len(long):
                self.documents.append((("validation", shard, document), long))

    def seal(self) -> None:
        if self.documents:
            self.digests = np.unique(np.concatenate([digests for _, digests in self.documents]))
        self.found = np.zeros(len(self.digests), bool)

    def meet(self, digests: np.ndarray) -> None:
        """Sentences of the training text go by."""
        if len(self.digests):
            at = np.searchsorted(self.digests, digests).clip(max=len(self.digests) - 1)
            self.found[at[self.digests[at] == digests]] = True

    def shares(self) -> tuple[float, float, list[Place]]:
        """Shares of sentences seen in training, and of documents of which half or more was seen; those documents."""
        seen = total = 0
        leaked = []
        for place, digests in self.documents:
            known = int(self.found[np.searchsorted(self.digests, digests)].sum())
            seen, total = seen + known, total + len(digests)
            if 2 * known >= len(digests):
                leaked.append(place)
        return seen / max(total, 1), len(leaked) / max(len(self.documents), 1), leaked
