"""MinHash sketches estimate the similarity of documents; the first of similar documents is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glassbert.text.corpus.duplicates import bands_for, exact_duplicates, held_out, near_duplicates
from glassbert.text.corpus.minhash import EMPTY, NUMBERS, RUN, band_keys, sketch
from tests.text.corpus.sample_corpora import build, stories, story, texts, write


def runs(tokens: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(tokens[i : i + RUN].tolist()) for i in range(len(tokens) - RUN + 1)}


@pytest.mark.parametrize("length", [20, 60, 400, 2000])
@pytest.mark.parametrize("changed", [0.0, 0.05, 0.2, 0.9])
def test_sketches_estimate_the_overlap(length: int, changed: float) -> None:
    rng = np.random.default_rng(length)
    estimates, truths = [], []
    for _ in range(40):
        one = rng.integers(0, 8000, length)
        index = rng.integers(0, length)
        other = np.concatenate([one[:index], rng.integers(0, 8000, round(changed * length)), one[index:]])
        table = sketch(np.concatenate([one, other]).astype(np.uint16), np.array([len(one), len(other)]))
        estimates.append((table[0] == table[1]).mean())
        a, b = runs(one), runs(other)
        truths.append(len(a & b) / len(a | b))
    # One estimate has a standard error of sqrt(J (1 - J) / 128) at best and about 0.1 for very short documents.
    assert abs(np.mean(estimates) - np.mean(truths)) < 0.05
    assert changed != 0 or np.mean(estimates) == 1


def test_a_sketch_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 100, length).astype(np.uint16) for length in (3, 50, 4, 7, 300)]
    together = sketch(np.concatenate(parts), np.array([len(part) for part in parts]))
    for row, part in zip(together, parts, strict=True):
        assert np.array_equal(row, sketch(part, np.array([len(part)]))[0])
    assert (together[0] == EMPTY).all() and (together[3] != EMPTY).all() and together.shape[1] == NUMBERS


def test_exact_duplicates_point_to_the_first() -> None:
    hashes = np.array([[5, 1], [7, 1], [5, 1], [5, 2], [7, 1], [5, 1]], np.uint64)
    assert exact_duplicates(hashes).tolist() == [-1, -1, 0, -1, 1, 0]
    assert exact_duplicates(np.zeros((0, 2), np.uint64)).tolist() == []


def test_the_share_held_out() -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**63, (100_000, 2), dtype=np.uint64)
    sources = np.repeat([0, 1, 2], [99_900, 60, 40])
    kept = rng.random(100_000) < 0.9
    chosen = held_out(hashes, sources, kept, 0.002, seed=1)
    assert 120 < chosen.sum() < 260 and not (chosen & ~kept).any()
    assert chosen[sources == 1].sum() >= 1
    assert np.array_equal(chosen, held_out(hashes, sources, kept, 0.002, seed=1))
    assert not np.array_equal(chosen, held_out(hashes, sources, kept, 0.002, seed=2))
    assert not held_out(hashes, sources, kept, 0.0, seed=1).any()


def test_duplicates_are_removed_and_shown(tmp_path: Path) -> None:
    originals = stories(6)
    almost = originals[2] + "\nAnd one more sentence was written under it, and that is all the difference."
    source = write(tmp_path / "a.txt", [*originals, originals[1], story(1, 8), "A short document by itself.", almost])
    corpus = build([source], tmp_path / "out", near_duplicates=0.5, validation=0.0)
    counts = corpus.manifest["counts"]
    assert (counts["documents_read"], counts["documents_kept"]) == (10, 7)
    assert (counts["exact_duplicates"], counts["near_duplicates"]) == (2, 1)
    example = corpus.manifest["examples"]["near_duplicates"][0]
    assert example["text"].startswith(originals[2][:100]) and example["of"]["text"].startswith(originals[2][:100])
    assert len(set(texts(corpus, "train"))) == 7
    kept = build([source], tmp_path / "kept", exact_duplicates=False)
    assert kept.manifest["counts"]["documents_kept"] == 10


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.2, (35, 2)), (0.5, (25, 5)), (0.7, (16, 8)), (0.8, (10, 12)), (0.9, (6, 21)), (0.95, (3, 38))],
)
def test_bands_as_another_implementation_chooses_them(threshold: float, expected: tuple[int, int]) -> None:
    """Recorded from `MinHashLSH(threshold, num_perm=128, weights=(0.4, 0.6))` of datasketch 2."""
    assert bands_for(threshold) == expected


def test_the_highest_threshold_has_bands_too() -> None:
    bands, rows = bands_for(0.99)
    assert bands >= 1 and bands * rows <= NUMBERS


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_near_duplicates_are_those_of_a_comparison_of_all_pairs(threshold: float) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 8000, rng.integers(3, 200)) for _ in range(120)]
    for number in range(0, 120, 3):  # copies with some of the tokens replaced
        copy = documents[number].copy()
        copy[: round(0.1 * rng.random() * len(copy))] = 8001 + number
        documents.append(copy)
    order = rng.permutation(len(documents))
    documents = [documents[number] for number in order]
    sketches = sketch(np.concatenate(documents).astype(np.uint16), np.array([len(one) for one in documents]))
    keys = band_keys(sketches, *bands_for(threshold))
    candidates = rng.random(len(documents)) < 0.95
    found = near_duplicates(keys, candidates, threshold, lambda numbers: iter(sketches[numbers]))

    kept: list[int] = []
    for number in np.flatnonzero(candidates).tolist():
        share = [(keys[other] == keys[number]).any() for other in kept]
        close = [(sketches[other] == sketches[number]).mean() >= threshold for other in kept]
        similar = [other for other, key, near in zip(kept, share, close, strict=True) if key and near]
        if sketches[number][0] == EMPTY or not similar:
            assert found[number] == -1
            kept += [number] * int(sketches[number][0] != EMPTY)
        else:
            assert found[number] == similar[0]
    assert (found[~candidates] == -1).all() and (found >= 0).sum() > 10
