"""Find exact and near duplicates, of which the first document is kept, and choose the held-out documents.

The input is a table of about a hundred bytes per document: a hash of its text and the band keys of its MinHash sketch.
Only documents that share a key are compared, with an index of `datasketch`, in the order of the sources. So the result
does not depend on the order in which workers finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from glassbert.errors import TextError
from glassbert.text.corpus.minhash import EMPTY, NUMBERS, mix

ENOUGH_DOCUMENTS = 50  # a source with at least this many documents has at least one in the validation split


def near_duplicate_index(threshold: float) -> Any:
    """An empty datasketch index for the threshold; it has `b` bands of `r` numbers each."""
    try:
        from datasketch import MinHashLSH
    except ImportError as error:
        raise TextError(
            'finding near-duplicates needs another package: pip install "glassbert[data]"; '
            "or use --keep-near-duplicates"
        ) from error
    return MinHashLSH(threshold=threshold, num_perm=NUMBERS, weights=(0.4, 0.6))


def exact_duplicates(hashes: np.ndarray) -> np.ndarray:
    """[documents] the first document with the same hash, or -1 if the document is the first. hashes [documents, 2]."""
    order = np.lexsort((np.arange(len(hashes)), hashes[:, 1], hashes[:, 0]))
    same = (hashes[order[1:]] == hashes[order[:-1]]).all(axis=1)
    group_start = np.concatenate(([True], ~same)) if len(order) else np.zeros(0, bool)
    first = order[np.maximum.accumulate(np.where(group_start, np.arange(len(order)), 0))]
    originals = np.full(len(hashes), -1, np.int64)
    originals[order] = np.where(first == order, -1, first)
    return originals


def near_duplicates(
    keys: np.ndarray,
    candidates: np.ndarray,
    threshold: float,
    sketches_of: Callable[[np.ndarray], Iterator[np.ndarray]],
) -> np.ndarray:
    """[documents] the first kept document with a similarity of at least `threshold`, or -1.

    keys [documents, bands]; candidates bool [documents]: the documents to compare; `sketches_of(numbers)` yields the
    sketches of documents.
    """
    from datasketch import LeanMinHash

    index = near_duplicate_index(threshold)
    originals = np.full(len(keys), -1, np.int64)
    numbers = np.flatnonzero(_share_a_key(keys, candidates))
    kept: dict[int, Any] = {}
    for number, values in zip(numbers.tolist(), sketches_of(numbers), strict=True):
        if values[0] == EMPTY:
            continue
        document = LeanMinHash(seed=1, hashvalues=values, scheme="affine32")
        similar = [other for other in index.query(document) if document.jaccard(kept[other]) >= threshold]
        if similar:
            originals[number] = min(similar)
        else:
            index.insert(number, document)
            kept[number] = document
    return originals


def _share_a_key(keys: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """bool [documents]: whether another candidate has the same key in at least one band."""
    shares = np.zeros(len(keys), bool)
    numbers = np.flatnonzero(candidates)
    for band in range(keys.shape[1]):
        column = keys[numbers, band]
        order = np.argsort(column, kind="stable")
        same = column[order[1:]] == column[order[:-1]]
        shares[numbers[order[1:][same]]] = True
        shares[numbers[order[:-1][same]]] = True
    return shares


def held_out(hashes: np.ndarray, sources: np.ndarray, kept: np.ndarray, share: float, seed: int) -> np.ndarray:
    """bool [documents]: the documents of the validation split, chosen by a hash of text and seed.

    If no document of a source with ENOUGH_DOCUMENTS is chosen, the one with the smallest hash is added.
    """
    if not share:
        return np.zeros(len(hashes), bool)
    draw = mix(hashes[:, 0] ^ mix(np.array([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15)))
    chosen = kept & (draw < np.uint64(min(int(share * 2.0**64), 2**64 - 1)))
    numbers = np.flatnonzero(kept)
    if not len(numbers):
        return chosen
    available = np.bincount(sources[numbers])
    taken = np.bincount(sources[chosen], minlength=len(available))
    for source in np.flatnonzero((available >= ENOUGH_DOCUMENTS) & (taken == 0)):
        of_source = numbers[sources[numbers] == source]
        chosen[of_source[np.argmin(draw[of_source])]] = True
    if len(numbers) > 1 and not chosen.any():
        chosen[numbers[np.argmin(draw[numbers])]] = True
    return chosen
