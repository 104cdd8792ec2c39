"""MinHash sketches: 128 numbers per document; similar documents have many equal numbers.

The set of a document is all its runs of five tokens, each hashed. The similarity of two documents is

    J = |A ∩ B| / |A ∪ B|                      (Jaccard)

The smallest hash of A ∪ B is equally likely to be any of its runs, so the smallest hashes of A and B are equal with
probability J. Classic MinHash uses 128 hash functions. Here the values of one function are distributed over 128 bins,
and the smallest value of each bin is kept, which is about 100 times cheaper. An empty bin, common in short documents,
copies the value of another bin, tried in an order that is fixed for each bin, so equal sets fill their bins equally
(Shrivastava, "Optimal densification for fast and accurate minwise hashing", 2017).

`duplicates.py` compares the sketches.
"""

from __future__ import annotations

import numpy as np

RUN = 5
NUMBERS = 128
EMPTY = np.uint32(0xFFFFFFFF)
_MULTIPLIERS = np.random.default_rng(5).integers(0, 1 << 63, RUN, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_DONORS = np.stack([np.random.default_rng([17, bin]).permutation(NUMBERS) for bin in range(NUMBERS)])  # [bin, attempt]


def sketch(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[documents, 128] uint32: the sketches of documents of `lengths` tokens, concatenated in `tokens`.

    A document with fewer than five tokens has EMPTY everywhere and is similar to no other.
    """
    table = np.full((len(lengths), NUMBERS), EMPTY)
    runs = len(tokens) - RUN + 1
    if runs <= 0:
        return table
    owner = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    inside = owner[:runs] == owner[RUN - 1 :]
    hashes = np.zeros(runs, np.uint64)
    wide = tokens.astype(np.uint64)
    for i in range(RUN):
        hashes += (wide[i : i + runs] + np.uint64(1)) * _MULTIPLIERS[i]
    hashes = mix(hashes[inside])
    bins = owner[:runs][inside].astype(np.int64) * NUMBERS + (hashes & np.uint64(NUMBERS - 1)).astype(np.int64)
    np.minimum.at(table.reshape(-1), bins, (hashes >> np.uint64(32)).astype(np.uint32))
    return _fill_empty_bins(table)


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: every input bit affects every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _fill_empty_bins(table: np.ndarray) -> np.ndarray:
    dense = table.copy()
    holes = (table == EMPTY) & (table != EMPTY).any(axis=1, keepdims=True)
    rows, bins = np.nonzero(holes)
    for attempt in range(NUMBERS):
        if not len(rows):
            break
        values = table[rows, _DONORS[bins, attempt]]
        filled = values != EMPTY
        dense[rows[filled], bins[filled]] = values[filled]
        rows, bins = rows[~filled], bins[~filled]
    return dense


def band_keys(sketches: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """[documents, bands] uint64: documents with the same `rows` numbers in a band have the same key for that band."""
    parts = sketches[:, : bands * rows].reshape(len(sketches), bands, rows).astype(np.uint64)
    keys = np.zeros(parts.shape[:2], np.uint64)
    for row in range(rows):
        keys = mix(keys * np.uint64(0x9E3779B97F4A7C15) + parts[:, :, row] + np.uint64(1))
    return keys
