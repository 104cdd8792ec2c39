"""Packing: combine segments of documents into rows with almost no padding.

    row = [CLS] segment [SEP] [CLS] segment [SEP] ...     as many as fit into `length` positions

A model learns from context, so long runs of sentences are best. But a run ends up to one sentence before the end of the
row, and a tenth of all positions would be padding. So some runs are split into single sentences, which fill the gaps:
runs with the shortest sentences first, because gaps are small, and only as many as needed. Segments are assigned to
rows by best fit decreasing: the longest segment first, into the fullest row that has space for it. Segments of equal
width are interchangeable, so thousands are assigned at a time.

A corpus is planned once; epochs differ in the order of the rows. Shards are planned one by one, which bounds memory.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from glassbert.errors import ConfigError, TextError
from glassbert.text.corpus.mapping import MappedFile
from glassbert.text.corpus.reader import Shard, Split
from glassbert.text.random_numbers import permutation
from glassbert.text.segments import Segments, select_documents, sentence_runs, token_slices

ADDED_TOKENS = 2  # [CLS] and [SEP]
TARGET_FILL = 0.993  # no more runs are split when this share of positions is filled
PRECISION = 0.002  # of the share of runs that are split
PACKINGS = ("sentences", "tokens")


@dataclass(frozen=True)
class PackingPlan:
    """The tokens of each row. Row r has the segments row_ends[r - 1] to row_ends[r] - 1."""

    length: int
    starts: np.ndarray  # [segments] in the tokens of the split, with its shards concatenated
    lengths: np.ndarray  # [segments]
    row_ends: np.ndarray  # [rows] in the segments; all segments of a row are in one shard
    files: tuple[MappedFile, ...] = ()  # that the arrays are mapped from

    def __len__(self) -> int:
        return len(self.row_ends)

    @cached_property
    def tokens(self) -> int:
        return int(self.lengths.sum(dtype=np.int64))

    @property
    def fill(self) -> float:
        """The share of positions that are not padding."""
        return (self.tokens + ADDED_TOKENS * len(self.lengths)) / (self.length * max(len(self), 1))

    @property
    def mean_context(self) -> float:
        """The length of the segment of a token, averaged over tokens."""
        return float(np.square(self.lengths, dtype=np.float64).sum()) / max(self.tokens, 1)


def plan_rows(
    split: Split,
    length: int,
    packing: str = "sentences",
    *,
    continues_word: np.ndarray | None = None,
    sources: Collection[int] | None = None,
) -> PackingPlan:
    """Assign every token of a split, or of the documents of `sources` (source numbers), to rows of `length`.

    `packing` "sentences" cuts documents between sentences; "tokens" cuts exact slices, which gives the longest
    context. With the tokenizer's `continues_word`, a sentence that must be cut is cut between words.
    """
    if packing not in PACKINGS:
        raise ConfigError(f"packing must be one of {', '.join(PACKINGS)}, got {packing!r}")
    if length <= ADDED_TOKENS:
        raise ConfigError(f"rows must have at least {ADDED_TOKENS + 1} positions ([CLS], a token, [SEP]), got {length}")
    starts, lengths, row_ends = [], [], []
    tokens = segments = 0
    for number, shard in enumerate(split.shards):
        wanted = select_documents(shard, sources)
        found, rows = _plan_shard(shard, wanted, length, packing, f"0/{number}", continues_word)
        starts.append(found.starts + tokens)
        lengths.append(found.lengths)
        row_ends.append(rows + segments)
        tokens += len(shard.tokens)
        segments += len(found.starts)
    if not segments:
        raise TextError(
            f"there is no text to pack: the {split.name} split has no tokens"
            + (" from these sources" if sources is not None else "")
            + ("; build the corpus with a larger --validation, such as 0.05" if split.name == "validation" else "")
        )
    return PackingPlan(
        length,
        np.concatenate(starts).astype(_smallest(tokens)),
        np.concatenate(lengths).astype(_smallest(length)),
        np.concatenate(row_ends).astype(_smallest(segments)),
    )


def _plan_shard(
    shard: Shard, wanted: np.ndarray, length: int, packing: str, name: str, continues_word: np.ndarray | None
) -> tuple[Segments, np.ndarray]:
    """The segments of a shard, ordered by row, and the row ends in them."""
    if packing == "tokens":
        segments = token_slices(shard, wanted, length - ADDED_TOKENS)
    else:
        segments = _filling_segments(shard, wanted, length, continues_word)
    widths = segments.lengths + ADDED_TOKENS
    shuffled = permutation(0, name, 0, len(widths)).astype(np.int64)
    order = shuffled[np.argsort(-widths[shuffled], kind="stable")]  # longest first, equal widths in random order
    rows = best_fit(np.bincount(widths, minlength=length + 1), length)
    by_row = np.argsort(rows, kind="stable")
    order = order[by_row]
    return Segments(segments.starts[order], segments.lengths[order]), np.cumsum(np.bincount(rows))


def _filling_segments(shard: Shard, wanted: np.ndarray, length: int, continues_word: np.ndarray | None) -> Segments:
    """Runs of sentences; as few runs as possible are split into sentences to fill the rows to TARGET_FILL."""
    runs = sentence_runs(shard, wanted, length - ADDED_TOKENS, continues_word)
    if not len(runs.run_starts):
        return Segments(runs.starts, runs.lengths)
    shortest = np.minimum.reduceat(runs.lengths, runs.run_starts)
    rank = np.empty(len(shortest), np.int64)
    rank[np.argsort(shortest, kind="stable")] = np.arange(len(shortest))

    def with_split_share(share: float) -> tuple[Segments, int, float]:
        """The segments if this share of runs is split, the number of rows, and the share of positions filled."""
        segments = runs.segments(rank < round(share * len(rank)))
        widths = np.bincount(segments.lengths + ADDED_TOKENS, minlength=length + 1)
        rows = int(best_fit(widths, length).max()) + 1
        return segments, rows, int(widths @ np.arange(len(widths))) / (rows * length)

    best, fewest, most = with_split_share(1.0)
    low, high = 0.0, 1.0
    while high - low > PRECISION:
        middle = (low + high) / 2
        segments, rows, fill = with_split_share(middle)
        # Very few segments cannot reach TARGET_FILL; then the number of rows is minimised instead.
        if fill >= TARGET_FILL if most >= TARGET_FILL else rows <= fewest:
            high, best = middle, segments
        else:
            low = middle
    return best


def best_fit(widths: np.ndarray, length: int) -> np.ndarray:
    """[segments] the row of every segment, widest first; widths[w] is the number of segments of width w."""
    total = int(widths.sum())
    rows = np.empty(total, np.int64)
    rows_by_space: dict[int, list[np.ndarray]] = {}  # free positions -> rows
    spaces: list[int] = []  # the keys of rows_by_space, ascending
    assigned = opened = 0

    def put_back(space: int, some: np.ndarray) -> None:
        if space not in rows_by_space:
            rows_by_space[space] = []
            bisect.insort(spaces, space)
        rows_by_space[space].append(some)

    for width in np.flatnonzero(widths)[::-1].tolist():
        left = int(widths[width])
        while left:
            at = bisect.bisect_left(spaces, width)
            if at == len(spaces):  # no row has enough space: open as many as these segments need
                fresh = np.arange(opened, opened + -(-left // (length // width)))
                opened += len(fresh)
                put_back(length, fresh)
                continue
            space = spaces[at]
            some = rows_by_space[space].pop()
            if not rows_by_space[space]:
                del rows_by_space[space], spaces[at]
            needed = -(-left // (space // width))  # a row may take several of these segments, one per pass
            if len(some) > needed:
                put_back(space, some[needed:])
                some = some[:needed]
            rows[assigned : assigned + len(some)] = some
            assigned += len(some)
            left -= len(some)
            if space - width > ADDED_TOKENS:
                put_back(space - width, some)
    return rows


def _smallest(limit: int) -> np.dtype:
    """The smallest unsigned type that holds `limit`."""
    return np.min_scalar_type(limit)
