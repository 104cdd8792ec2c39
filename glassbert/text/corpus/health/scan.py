"""Scan a shard: sums over the tokens of every sentence, from the tables of the vocabulary.

The shard is read in blocks of whole sentences; a sentence longer than a block is cut. Every quantity is a sum over
tokens, so the parts of a cut sentence add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from glassbert.text.corpus.health.vocabulary_tables import VocabularyTables
from glassbert.text.corpus.reader import Shard

BLOCK = 1 << 20
# The digest of a sentence: the sum of (random number of the token) x (random odd number of the position), modulo 2^64.
_RANDOM = np.random.default_rng(0x61A55)
POSITION_FACTORS = _RANDOM.integers(0, 1 << 64, 1024, np.uint64) | np.uint64(1)


@dataclass
class Sentences:
    """Sums over the tokens of each sentence of a shard; all arrays are [sentences]."""

    tokens: np.ndarray
    characters: np.ndarray
    letters: np.ndarray
    unknown: np.ndarray
    single: np.ndarray
    words: np.ndarray
    word_tokens: np.ndarray  # tokens of words, without punctuation
    markup: np.ndarray
    digest: np.ndarray  # uint64, equal for equal sentences


@dataclass
class Lengths:
    """Exact counts of each length, in little memory."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    rare: dict[int, int] = field(default_factory=dict)  # lengths beyond CAP
    CAP = 1 << 16

    def add(self, lengths: np.ndarray) -> None:
        common = np.bincount(lengths[lengths < self.CAP])
        if common.size > self.counts.size:
            common[: self.counts.size] += self.counts
            self.counts = common
        else:
            self.counts[: common.size] += common
        for length, count in zip(*np.unique(lengths[lengths >= self.CAP], return_counts=True), strict=True):
            self.rare[int(length)] = self.rare.get(int(length), 0) + int(count)

    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """The lengths in ascending order, and their counts."""
        seen = np.flatnonzero(self.counts)
        rare = sorted(self.rare.items())
        return (
            np.concatenate([seen, np.array([length for length, _ in rare], np.int64)]),
            np.concatenate([self.counts[seen], np.array([count for _, count in rare], np.int64)]),
        )

    def quantile(self, share: float) -> int:
        lengths, counts = self.values()
        if not lengths.size:
            return 0
        return int(lengths[np.searchsorted(np.cumsum(counts), share * counts.sum())])

    def mean(self) -> float:
        lengths, counts = self.values()
        return float((lengths * counts).sum() / counts.sum()) if counts.size else 0.0

    def summary(self) -> dict[str, float]:
        names = {"shortest": 0.0, "median": 0.5, "95 % are below": 0.95, "longest": 1.0}
        return {"mean": self.mean(), **{name: self.quantile(share) for name, share in names.items()}}

    def histogram(self, bins: int = 48) -> tuple[np.ndarray, np.ndarray]:
        """Counts and edges of logarithmic bins.

        A length n is spread evenly over n - 1/2 to n + 1/2; otherwise small lengths would give gaps and peaks.
        """
        lengths, counts = self.values()
        edges = np.geomspace(lengths[0] - 0.5, lengths[-1] + 0.5, bins + 1)
        sides = np.unique(np.concatenate([lengths - 0.5, lengths + 0.5]))
        below = np.concatenate([[0], np.cumsum(counts)])[np.searchsorted(lengths, sides)]
        return np.diff(np.interp(np.log(edges), np.log(sides), below)), edges


def scan(
    shard: Shard,
    vocabulary: VocabularyTables,
    counts: np.ndarray,
    word_lengths: Lengths,
    advance: Callable[[int], None],
) -> Sentences:
    """The sums of all sentences of a shard. Also updates `counts` [vocabulary] and `word_lengths`."""
    ends = np.asarray(shard.sentence_ends, np.int64)
    names = np.random.default_rng(len(vocabulary.texts)).integers(0, 1 << 64, len(vocabulary.texts), np.uint64)
    tables = {
        "characters": vocabulary.characters.astype(np.int32),
        "letters": vocabulary.letters.astype(np.int32),
        "unknown": vocabulary.unknown.astype(np.int32),
        "single": vocabulary.single.astype(np.int32),
    }
    kinds = (*tables, "words", "word_tokens", "markup")
    sums = {kind: np.zeros(len(ends), np.int64) for kind in kinds}
    digest = np.zeros(len(ends), np.uint64)
    for begin, end in blocks(ends):
        tokens = np.asarray(shard.tokens[begin:end])
        first = int(np.searchsorted(ends, begin, side="right"))
        last = int(np.searchsorted(ends, end, side="left"))
        cuts = np.concatenate([[begin], ends[first:last]]) - begin  # sentence starts within this block
        here = slice(first, last + 1)
        origin = np.append(ends[first - 1] if first else 0, ends[first:last]) - begin  # negative if before
        values = {kind: table[tokens] for kind, table in tables.items()}
        values["markup"] = markup(tokens, vocabulary)
        alphanumeric = vocabulary.alphanumeric[tokens]
        starts = ~(vocabulary.continues[tokens] & alphanumeric)
        starts[cuts[origin == cuts]] = True
        values["words"] = starts & alphanumeric
        word_starts = np.flatnonzero(starts) if starts[0] else np.append(0, np.flatnonzero(starts))
        of_letters = values["words"][word_starts]
        values["word_tokens"] = np.repeat(of_letters, np.diff(word_starts, append=len(tokens)))
        lengths = np.add.reduceat(values["characters"], word_starts, dtype=np.int64)
        word_lengths.add(lengths[of_letters])
        for kind, value in values.items():
            sums[kind][here] += np.add.reduceat(value, cuts, dtype=np.int64)
        position = np.arange(len(tokens)) - np.repeat(origin, np.diff(cuts, append=len(tokens)))
        digest[here] += np.add.reduceat(names[tokens] * POSITION_FACTORS[position & (len(POSITION_FACTORS) - 1)], cuts)
        counts += np.bincount(tokens, minlength=len(counts))
        advance(len(tokens))
    return Sentences(tokens=np.diff(ends, prepend=0), digest=digest, **sums)


def blocks(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """The (begin, end) of the blocks of a shard: at sentence ends, unless a sentence is longer than a block."""
    begin, total = 0, int(ends[-1]) if len(ends) else 0
    while begin < total:
        whole = int(np.searchsorted(ends, begin + BLOCK, side="right"))
        end = int(ends[whole - 1]) if whole else 0
        if end <= begin:
            end = min(begin + BLOCK, total)
        yield begin, end
        begin = end


def markup(tokens: np.ndarray, vocabulary: VocabularyTables) -> np.ndarray:
    """bool [tokens]: the first token of each HTML tag (`< p`, `< / div`) or entity (`& nbsp`)."""
    found = np.zeros(len(tokens), bool)
    opens = np.flatnonzero(vocabulary.opens_tag[tokens[:-1]])
    after = opens + 1
    slash = vocabulary.slash[tokens[after]] & (after + 1 < len(tokens))
    found[opens] = vocabulary.tag[tokens[after + slash]]
    signs = np.flatnonzero(vocabulary.ampersand[tokens[:-1]])
    found[signs] |= vocabulary.entity[tokens[signs + 1]]
    return found
