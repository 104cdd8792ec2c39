"""A document in 128 numbers, such that similar documents have many numbers in common (MinHash).

Take all runs of five tokens of a document as a set. Hash every run. The runs of two documents overlap by

    J = |A ∩ B| / |A ∪ B|                      (Jaccard)

and the smallest hash of A ∪ B is equally likely to be any of its runs, so the smallest hashes of A and B agree with
probability J. Classic MinHash repeats that with 128 hash functions. Here one function serves: its values are dealt
into 128 bins, and the smallest of each bin is kept, for a hundredth of the work. A bin that stays empty, as most do in
a short document, borrows from another bin, in an order that is fixed for this bin; two documents that agree in what
they have then agree in what they borrow (Shrivastava, "Optimal densification for fast and accurate minwise hashing",
2017).

The comparing is left to `datasketch`, whose index needs nothing but these numbers.
"""

from __future__ import annotations

import numpy as np

RUN = 5
NUMBERS = 128
EMPTY = np.uint32(0xFFFFFFFF)
_MULTIPLIERS = np.random.default_rng(5).integers(0, 1 << 63, RUN, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_LENDERS = np.stack([np.random.default_rng([17, bin]).permutation(NUMBERS) for bin in range(NUMBERS)])  # [bin, attempt]


def sketch(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[documents, 128] uint32 for documents of `lengths` tokens that lie in `tokens` one after the other.

    A document too short for one run has EMPTY everywhere and resembles nothing.
    """
    table = np.full((len(lengths), NUMBERS), EMPTY)
    runs = len(tokens) - RUN + 1
    if runs <= 0:
        return table
    owner = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    inside = owner[:runs] == owner[RUN - 1 :]
    hashes = np.zeros(runs, np.uint64)
    wide = tokens.astype(np.uint64)
    for place in range(RUN):
        hashes += (wide[place : place + runs] + np.uint64(1)) * _MULTIPLIERS[place]
    hashes = mix(hashes[inside])
    bins = owner[:runs][inside].astype(np.int64) * NUMBERS + (hashes & np.uint64(NUMBERS - 1)).astype(np.int64)
    np.minimum.at(table.reshape(-1), bins, (hashes >> np.uint64(32)).astype(np.uint32))
    return _borrow(table)


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: every bit of the input moves every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _borrow(table: np.ndarray) -> np.ndarray:
    dense = table.copy()
    holes = (table == EMPTY) & (table != EMPTY).any(axis=1, keepdims=True)
    rows, bins = np.nonzero(holes)
    for attempt in range(NUMBERS):
        if not len(rows):
            break
        lent = table[rows, _LENDERS[bins, attempt]]
        filled = lent != EMPTY
        dense[rows[filled], bins[filled]] = lent[filled]
        rows, bins = rows[~filled], bins[~filled]
    return dense


def band_keys(sketches: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """[documents, bands] uint64: documents that agree in all `rows` numbers of a band have the same key there."""
    parts = sketches[:, : bands * rows].reshape(len(sketches), bands, rows).astype(np.uint64)
    keys = np.zeros(parts.shape[:2], np.uint64)
    for row in range(rows):
        keys = mix(keys * np.uint64(0x9E3779B97F4A7C15) + parts[:, :, row] + np.uint64(1))
    return keys
