"""Packing: pieces of documents put together into rows without padding.

    row = [CLS] piece [SEP] [CLS] piece [SEP] ...     as many as fit into `length` positions

A model learns from context, so a row should be one long run of sentences. But a run ends up to a sentence short of the
row's end, and a tenth of all positions would be padding. So some runs are dissolved into their sentences, which fill
those gaps: the runs that hold the shortest sentences first, because small gaps need small fillers, and only as many as
it takes to fill the rows. Who goes where is decided by best fit decreasing: the longest piece first, always into the
fullest row that still has room. Pieces of one width are interchangeable, so that is done for thousands at a time.

The plan of a corpus is made once; an epoch is its rows in another order. Shards are planned one by one, so the memory
needed is that of one shard.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from glassbert.errors import ConfigError, TextError
from glassbert.text.corpus.reader import Shard, Split
from glassbert.text.pieces import Pieces, sentence_runs, token_slices
from glassbert.text.random_numbers import permutation

AROUND = 2  # [CLS] and [SEP]
ENOUGH = 0.993  # the share of positions filled at which no further run is dissolved
PRECISION = 0.002  # of the share of runs that are dissolved
PACKINGS = ("sentences", "tokens")


@dataclass(frozen=True)
class PackingPlan:
    """Which tokens stand in which row. Row r is made of the pieces row_ends[r - 1] to row_ends[r] - 1."""

    length: int
    starts: np.ndarray  # [pieces] in the tokens of the split, its shards one after the other
    lengths: np.ndarray  # [pieces]
    row_ends: np.ndarray  # [rows] in the pieces; a row's pieces are all of one shard

    def __len__(self) -> int:
        return len(self.row_ends)

    @cached_property
    def tokens(self) -> int:
        return int(self.lengths.sum(dtype=np.int64))

    @property
    def fill(self) -> float:
        """The share of positions that are not padding."""
        return (self.tokens + AROUND * len(self.lengths)) / (self.length * max(len(self), 1))

    @property
    def mean_context(self) -> float:
        """The length of the piece that a token stands in, averaged over tokens."""
        return float(np.square(self.lengths, dtype=np.float64).sum()) / max(self.tokens, 1)


def plan_rows(
    split: Split,
    length: int,
    packing: str = "sentences",
    seed: int = 0,
    *,
    continues_word: np.ndarray | None = None,
    sources: Collection[int] | None = None,
) -> PackingPlan:
    """Put every token of a split, or of its documents from some `sources` (their numbers), into rows of `length`.

    `packing` cuts documents between "sentences", or into exact slices of "tokens", which gives the longest context.
    With the tokenizer's `continues_word`, a sentence that must be cut is cut between words. `seed` decides which of
    many equally long pieces come together.
    """
    if packing not in PACKINGS:
        raise ConfigError(f"packing is one of {', '.join(PACKINGS)}, got {packing!r}")
    if length <= AROUND:
        raise ConfigError(f"a row of {length} positions has no room for a token between [CLS] and [SEP]")
    starts, lengths, row_ends = [], [], []
    tokens = pieces = 0
    for number, shard in enumerate(split.shards):
        wanted = np.ones(len(shard.document_ends), np.bool_)
        if sources is not None:
            wanted = np.isin(shard.document_sources, list(sources))
        found, rows = _plan_shard(shard, wanted, length, packing, f"{seed}/{number}", continues_word)
        starts.append(found.starts + tokens)
        lengths.append(found.lengths)
        row_ends.append(rows + pieces)
        tokens += len(shard.tokens)
        pieces += len(found.starts)
    if not pieces:
        raise TextError(
            f"there is no text to pack: the {split.name} split has no tokens"
            + " of these sources" * (sources is not None)
        )
    return PackingPlan(
        length,
        np.concatenate(starts).astype(_smallest(tokens)),
        np.concatenate(lengths).astype(_smallest(length)),
        np.concatenate(row_ends).astype(_smallest(pieces)),
    )


def _plan_shard(
    shard: Shard, wanted: np.ndarray, length: int, packing: str, name: str, continues_word: np.ndarray | None
) -> tuple[Pieces, np.ndarray]:
    """The pieces of a shard in the order of their rows, and where in them the rows end."""
    if packing == "tokens":
        pieces = token_slices(shard, wanted, length - AROUND)
    else:
        pieces = _filling_pieces(shard, wanted, length, continues_word)
    widths = pieces.lengths + AROUND
    mixed = permutation(0, name, 0, len(widths)).astype(np.int64)
    order = mixed[np.argsort(-widths[mixed], kind="stable")]  # the longest first, equals in random order
    rows = best_fit(np.bincount(widths, minlength=length + 1), length)
    by_row = np.argsort(rows, kind="stable")
    order = order[by_row]
    return Pieces(pieces.starts[order], pieces.lengths[order]), np.cumsum(np.bincount(rows))


def _filling_pieces(shard: Shard, wanted: np.ndarray, length: int, continues_word: np.ndarray | None) -> Pieces:
    """Runs of sentences, as few of them dissolved as it takes to fill the rows."""
    runs = sentence_runs(shard, wanted, length - AROUND, continues_word)
    if not len(runs.run_starts):
        return Pieces(runs.starts, runs.lengths)
    shortest = np.minimum.reduceat(runs.lengths, runs.run_starts)
    rank = np.empty(len(shortest), np.int64)
    rank[np.argsort(shortest, kind="stable")] = np.arange(len(shortest))

    def dissolving(share: float) -> tuple[Pieces, int, float]:
        """The pieces, the rows they need and how full these are."""
        pieces = runs.pieces(rank < round(share * len(rank)))
        widths = np.bincount(pieces.lengths + AROUND, minlength=length + 1)
        rows = int(best_fit(widths, length).max()) + 1
        return pieces, rows, int(widths @ np.arange(len(widths))) / (rows * length)

    best, fewest, most = dissolving(1.0)
    low, high = 0.0, 1.0
    while high - low > PRECISION:
        middle = (low + high) / 2
        pieces, rows, fill = dissolving(middle)
        # A handful of pieces cannot fill their rows; then what counts is to need no more rows than necessary.
        if fill >= ENOUGH if most >= ENOUGH else rows <= fewest:
            high, best = middle, pieces
        else:
            low = middle
    return best


def best_fit(widths: np.ndarray, length: int) -> np.ndarray:
    """[pieces] the row of every piece, the widest first; widths[w] says how many pieces are w wide."""
    total = int(widths.sum())
    rows = np.empty(total, np.int64)
    with_room: dict[int, list[np.ndarray]] = {}  # room left -> rows that have it
    rooms: list[int] = []  # the keys of with_room, ascending
    placed = opened = 0

    def put_back(room: int, some: np.ndarray) -> None:
        if room not in with_room:
            with_room[room] = []
            bisect.insort(rooms, room)
        with_room[room].append(some)

    for width in np.flatnonzero(widths)[::-1].tolist():
        left = int(widths[width])
        while left:
            at = bisect.bisect_left(rooms, width)
            if at == len(rooms):  # no row has room: open as many as these pieces will need
                fresh = np.arange(opened, opened + -(-left // (length // width)))
                opened += len(fresh)
                put_back(length, fresh)
                continue
            room = rooms[at]
            some = with_room[room].pop()
            if not with_room[room]:
                del with_room[room], rooms[at]
            needed = -(-left // (room // width))  # a row may take several of these pieces, one in each turn
            if len(some) > needed:
                put_back(room, some[needed:])
                some = some[:needed]
            rows[placed : placed + len(some)] = some
            placed += len(some)
            left -= len(some)
            if room - width > AROUND:
                put_back(room - width, some)
    return rows


def _smallest(limit: int) -> np.dtype:
    return np.min_scalar_type(limit)
