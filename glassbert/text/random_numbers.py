"""Stateless random numbers: a pure function of (seed, purpose, epoch, row).

There is no generator state, so any worker can make any batch, or part of a batch, in any order and after a restart. A
hash of (seed, purpose, epoch) plus the row number is the seed of a SplitMix64 stream.
"""

from __future__ import annotations

import hashlib

import numpy as np

from glassbert.engines.numpy_engine import splitmix


def row_seeds(seed: int, purpose: str, epoch: int, rows: np.ndarray) -> np.ndarray:
    """[rows] uint64: one seed per row."""
    name = hashlib.blake2b(f"{seed}/{purpose}/{epoch}".encode(), digest_size=8).digest()
    return rehash(np.frombuffer(name, "<u8").astype(np.uint64) + rows.astype(np.uint64))


def random_bits(seeds: np.ndarray, count: int) -> np.ndarray:
    """[rows, count] uint64: a stream of random numbers per seed."""
    return splitmix(seeds[:, None], count)


def rehash(numbers: np.ndarray, index: int = 1) -> np.ndarray:
    """One new uint64 per number, of the same shape; each `index` (from 1) gives different numbers."""
    return splitmix(numbers[..., None] + np.uint64(index - 1), 1)[..., 0]


def integers_below(limit: int | np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Integers from 0 to limit - 1 from the upper 32 bits of `numbers`, uniform up to about limit / 2^32."""
    return ((numbers >> np.uint64(32)) * np.asarray(limit).astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def uniform_floats(numbers: np.ndarray) -> np.ndarray:
    """Floats in [0, 1)."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(seed: int, purpose: str, epoch: int, size: int) -> np.ndarray:
    """[size] the numbers 0 to size - 1 in random order.

    Unlike `Generator.permutation`, sorting random keys gives the same order in every version of NumPy.
    """
    order = np.argsort(row_seeds(seed, purpose, epoch, np.arange(size)), kind="stable")
    return order.astype(np.uint32 if size < 1 << 32 else np.int64)
