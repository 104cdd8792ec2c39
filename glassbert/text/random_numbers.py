"""Random numbers that depend on where they are used and on nothing else.

Whoever asks for the numbers of (seed, purpose, epoch, row) gets the same ones: no generator is carried along, so a
batch can be made by any worker, in any order, in pieces, or again after a restart. A hash of the names gives every row
a start, and SplitMix64 counts on from there.
"""

from __future__ import annotations

import hashlib

import numpy as np

from glassbert.engines.numpy_engine import splitmix


def row_starts(seed: int, purpose: str, epoch: int, rows: np.ndarray) -> np.ndarray:
    """[rows] 64-bit numbers from which the streams of these rows begin."""
    name = hashlib.blake2b(f"{seed}/{purpose}/{epoch}".encode(), digest_size=8).digest()
    return scrambled(np.frombuffer(name, "<u8").astype(np.uint64) + rows.astype(np.uint64))


def streams(starts: np.ndarray, count: int) -> np.ndarray:
    """[rows, count] 64-bit numbers, a stream for every start."""
    return splitmix(starts[:, None], count)


def scrambled(numbers: np.ndarray, times: int = 1) -> np.ndarray:
    """Fresh 64-bit numbers, one for each given; another `times` gives others."""
    return splitmix(numbers[..., None] + np.uint64(times - 1), 1)[..., 0]


def below(limit: int | np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 to limit - 1 out of the upper 32 bits, each equally likely to about limit / 2^32."""
    return ((numbers >> np.uint64(32)) * np.asarray(limit).astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def fractions(numbers: np.ndarray) -> np.ndarray:
    """Numbers from 0 up to, never including, 1."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(seed: int, purpose: str, epoch: int, size: int) -> np.ndarray:
    """[size] all numbers below `size` in random order.

    Sorting random keys, unlike `Generator.permutation`, gives the same order in every version of NumPy.
    """
    order = np.argsort(row_starts(seed, purpose, epoch, np.arange(size)), kind="stable")
    return order.astype(np.uint32 if size < 1 << 32 else np.int64)
