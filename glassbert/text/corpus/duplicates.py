"""Find exact and near duplicates, of which the first document is kept, and choose the held-out documents.

The input is a table of about a hundred bytes per document: a hash of its text and the band keys of its MinHash sketch.
Only documents that share a key are compared (locality-sensitive hashing), in the order of the sources. So the result
does not depend on the order in which workers finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from glassbert.text.corpus.minhash import EMPTY, NUMBERS, mix

ENOUGH_DOCUMENTS = 50  # a source with at least this many documents has at least one in the validation split
GRID = 1_000  # points of the integrals in `bands_for`
NEEDLESS, MISSED = 0.4, 0.6  # weights of a needless comparison and of a missed duplicate


def bands_for(threshold: float) -> tuple[int, int]:
    """The number of bands b and of sketch numbers per band r for a threshold t.

    P(s) = 1 - (1 - s^r)^b                                    two documents of similarity s share a key
    minimise 0.4 ∫₀ᵗ P(s) ds + 0.6 ∫ₜ¹ (1 - P(s)) ds           over all b · r ≤ 128
    """
    below = threshold * (np.arange(GRID) + 0.5) / GRID
    above = threshold + (1 - threshold) * (np.arange(GRID) + 0.5) / GRID

    def cost(bands: int, rows: int) -> float:
        needless = threshold * (1 - (1 - below**rows) ** bands).mean()
        missed = (1 - threshold) * ((1 - above**rows) ** bands).mean()
        return float(NEEDLESS * needless + MISSED * missed)

    pairs = [(bands, rows) for bands in range(1, NUMBERS + 1) for rows in range(1, NUMBERS // bands + 1)]
    return min(pairs, key=lambda pair: cost(*pair))


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
    originals = np.full(len(keys), -1, np.int64)
    numbers = np.flatnonzero(_share_a_key(keys, candidates))
    kept: dict[int, np.ndarray] = {}
    tables: list[dict[int, list[int]]] = [{} for _ in range(keys.shape[1])]  # by band: key → kept documents
    for number, sketch in zip(numbers.tolist(), sketches_of(numbers), strict=True):
        if sketch[0] == EMPTY:
            continue
        own = list(zip(tables, keys[number].tolist(), strict=True))
        met = sorted({other for table, key in own for other in table.get(key, ())})
        similarities = (np.array([kept[other] for other in met]) == sketch).mean(axis=1) if met else np.zeros(0)
        similar = np.flatnonzero(similarities >= threshold)
        if len(similar):
            originals[number] = met[similar[0]]
            continue
        kept[number] = sketch
        for table, key in own:
            table.setdefault(key, []).append(number)
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
