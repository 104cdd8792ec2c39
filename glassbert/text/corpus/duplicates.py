"""Which documents of a corpus stay: the first of equal ones, the first of similar ones; and which are held out.

Decided from a table that holds some hundred bytes for each document, however long the document is: a hash of its text
and the keys of its sketch. Only documents that share a key with another are looked at more closely, by an index of
`datasketch`, in the order of the sources, so the outcome does not depend on who tokenised what when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from glassbert.errors import TextError
from glassbert.text.corpus.sketches import EMPTY, NUMBERS, mix

ENOUGH_DOCUMENTS = 50  # a source with so many gives at least one to the validation split


def near_duplicate_index(threshold: float) -> Any:
    """An empty index of datasketch; its `b` bands of `r` numbers each are chosen for the threshold."""
    try:
        from datasketch import MinHashLSH
    except ImportError as error:
        raise TextError(
            'finding near-duplicates needs one more package: pip install "glassbert[data]"; '
            "or keep them with --keep-near-duplicates"
        ) from error
    return MinHashLSH(threshold=threshold, num_perm=NUMBERS, weights=(0.4, 0.6))


def exact_duplicates(hashes: np.ndarray) -> np.ndarray:
    """[documents] the first document with the same hash, or -1 where there is none before. hashes [documents, 2]."""
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
    """[documents] the earlier surviving document that is as similar as `threshold`, or -1.

    keys [documents, bands]; candidates [documents] says who takes part; `sketches_of` gives the sketches of numbered
    documents one after the other.
    """
    from datasketch import LeanMinHash

    index = near_duplicate_index(threshold)
    originals = np.full(len(keys), -1, np.int64)
    suspects = np.flatnonzero(_share_a_key(keys, candidates))
    survivors: dict[int, Any] = {}
    for number, values in zip(suspects.tolist(), sketches_of(suspects), strict=True):
        if values[0] == EMPTY:
            continue
        document = LeanMinHash(seed=1, hashvalues=values, scheme="affine32")
        similar = [other for other in index.query(document) if document.jaccard(survivors[other]) >= threshold]
        if similar:
            originals[number] = min(similar)
        else:
            index.insert(number, document)
            survivors[number] = document
    return originals


def _share_a_key(keys: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """[documents] whether another candidate has the same key in some band."""
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
    """[documents] which go to the validation split: decided by text and seed, not by place.

    A source with ENOUGH_DOCUMENTS of which chance would hold out none gives the one that came closest.
    """
    if not share:
        return np.zeros(len(hashes), bool)
    draw = mix(hashes[:, 0] ^ mix(np.array([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15)))
    chosen = kept & (draw < np.uint64(min(int(share * 2.0**64), 2**64 - 1)))
    numbers = np.flatnonzero(kept)
    if not len(numbers):
        return chosen
    there = np.bincount(sources[numbers])
    taken = np.bincount(sources[chosen], minlength=len(there))
    for source in np.flatnonzero((there >= ENOUGH_DOCUMENTS) & (taken == 0)):
        mine = numbers[sources[numbers] == source]
        chosen[mine[np.argmin(draw[mine])]] = True
    if len(numbers) > 1 and not chosen.any():
        chosen[numbers[np.argmin(draw[numbers])]] = True
    return chosen
