"""Masking: properties of every row, and shares over many rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import ConfigError, InputError
from glassbert.text.masking import IGNORED, Masker, Masking, mask_tokens, ngram_starts
from glassbert.text.random_numbers import row_seeds
from tests.text.synthetic_corpus import CONTINUES, MASK, SPECIAL, VOCABULARY

KINDS = [
    Masking(),
    Masking(whole_words=True),
    Masking(spans=(3.0, 10)),
    Masking(whole_words=True, spans=(2.5, 5)),
    Masking(whole_words=True, ngrams=3),
    Masking(rate=0.4, mask_share=0.0, random_share=1.0),
]
ROWS = st.integers(1, 40).flatmap(
    lambda length: st.lists(
        st.lists(st.integers(0, VOCABULARY - 1), min_size=length, max_size=length), min_size=1, max_size=5
    )
)


def masker(masking: Masking) -> Masker:
    return Masker(masking, VOCABULARY, MASK, SPECIAL, CONTINUES)


def seeds(rows: int, epoch: int = 0, first: int = 0) -> np.ndarray:
    return row_seeds(0, "test", epoch, np.arange(first, first + rows))


def random_rows(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, (rows, length)).astype(np.int32)


def word_numbers(ids: np.ndarray) -> np.ndarray:
    """[B, T] which word of its row a token belongs to; special tokens end words."""
    begins = ~CONTINUES[ids]
    begins[:, 1:] |= ids[:, :-1] < len(SPECIAL)
    return np.cumsum(begins, axis=1)


@given(ROWS, st.sampled_from(KINDS), st.integers(0, 3), st.sampled_from([None, 0.01, 0.5, 1.0]))
@settings(deadline=None)
def test_properties_of_every_row(rows, masking, epoch, rate):
    ids = np.array(rows, np.int32)
    kept = ids.copy()
    masked_ids, labels = masker(masking)(ids, seeds(len(ids), epoch), rate)
    assert np.array_equal(ids, kept), "the rows given are not changed"
    targets = labels != IGNORED
    ordinary = ids >= len(SPECIAL)
    assert not (targets & ~ordinary).any(), "a special token is a target"
    assert np.array_equal(targets.any(1), ordinary.any(1)), "every row with an ordinary token has a target"
    assert np.array_equal(labels[targets], ids[targets])
    assert np.array_equal(masked_ids[~targets], ids[~targets])
    assert ((masked_ids[targets] == MASK) | (masked_ids[targets] >= len(SPECIAL))).all(), (
        "no other special token is inserted"
    )
    if rate == 1.0:
        assert np.array_equal(targets, ordinary)


@given(ROWS, st.sampled_from(KINDS), st.data())
@settings(deadline=None)
def test_the_mask_of_a_row_does_not_depend_on_other_rows(rows, masking, data):
    ids = np.array(rows, np.int32)
    whole = masker(masking)(ids, seeds(len(ids)))
    row = data.draw(st.integers(0, len(ids) - 1))
    alone = masker(masking)(ids[row : row + 1], seeds(1, first=row))
    assert all(np.array_equal(a[row], b[0]) for a, b in zip(whole, alone, strict=True))


def test_epochs_have_different_masks():
    ids = random_rows(8, 64)
    one, other = (masker(Masking())(ids, seeds(8, epoch))[1] for epoch in (0, 1))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("masking", KINDS)
@pytest.mark.parametrize("rate", [None, 0.3])
def test_the_shares(masking, rate):
    ids = random_rows(4000, 100)
    masked_ids, labels = masker(masking)(ids, seeds(len(ids)), rate)
    ordinary, targets = ids >= len(SPECIAL), labels != IGNORED
    assert targets.sum() / ordinary.sum() == pytest.approx(rate or masking.rate, abs=0.002)
    masked = targets & (masked_ids == MASK)
    assert masked.sum() / targets.sum() == pytest.approx(masking.mask_share, abs=0.008)
    changed = targets & ~masked & (masked_ids != ids)
    possible = VOCABULARY - len(SPECIAL)
    assert changed.sum() / targets.sum() == pytest.approx(masking.random_share * (1 - 1 / possible), abs=0.006)
    counts = np.bincount(masked_ids[changed], minlength=VOCABULARY)
    assert (counts[: len(SPECIAL)] == 0).all()
    expected = changed.sum() / possible
    assert np.abs(counts[len(SPECIAL) :] - expected).max() < 6 * np.sqrt(expected)


def test_rows_have_equal_shares_of_targets():
    """A row of n tokens has n · rate targets, rounded up or down at random."""
    ids = np.full((2000, 50), 7, np.int32)
    targets = (masker(Masking())(ids, seeds(len(ids)))[1] != IGNORED).sum(1)
    assert set(targets.tolist()) == {7, 8}
    assert targets.mean() == pytest.approx(7.5, abs=0.05)


def test_every_position_is_equally_likely():
    ids = np.full((20_000, 20), 7, np.int32)
    targets = masker(Masking())(ids, seeds(len(ids)))[1] != IGNORED
    assert targets.mean(0) == pytest.approx(np.full(20, 0.15), abs=0.012)


def test_words_are_masked_whole():
    ids = random_rows(500, 60)
    labels = masker(Masking(whole_words=True))(ids, seeds(len(ids)))[1]
    targets = labels != IGNORED
    words = word_numbers(ids) + 1000 * np.arange(len(ids))[:, None]
    ordinary = ids >= len(SPECIAL)
    total = np.bincount(words[ordinary], minlength=words.max() + 1)
    chosen = np.bincount(words[targets], minlength=words.max() + 1)
    assert set(np.unique(chosen[(chosen > 0)] == total[chosen > 0])) == {True}
    assert chosen.max() > 1


@pytest.mark.parametrize("spans", [(1.0, 1), (2.0, 2), (3.0, 10), (3.8, 30), (5.0, 6)])
def test_span_lengths(spans):
    """The lengths of units in one long row are min(geometric, longest)."""
    mean, longest = spans
    ids = np.full((1, 200_000), 7, np.int32)
    spans_masker = masker(Masking(spans=spans))
    numbers = np.random.default_rng(0).integers(0, 1 << 64, ids.shape, dtype=np.uint64)
    begins = spans_masker._unit_starts(ids, ids >= len(SPECIAL), numbers)
    lengths = np.diff(np.flatnonzero(begins[0]))
    assert lengths.max() <= longest
    assert lengths.mean() == pytest.approx(mean, rel=0.01)
    if 2 < mean < longest / 2:
        p = spans_masker.masking.end_probability
        shares = np.bincount(lengths, minlength=4)[1:4] / len(lengths)
        assert shares == pytest.approx([p, p * (1 - p), p * (1 - p) ** 2], abs=0.006)


def test_spans_do_not_cross_segments():
    ids = random_rows(50, 60)
    spans_masker = masker(Masking(whole_words=True, spans=(8.0, 20)))
    numbers = np.random.default_rng(0).integers(0, 1 << 64, ids.shape, dtype=np.uint64)
    begins = spans_masker._unit_starts(ids, ids >= len(SPECIAL), numbers)
    assert begins[:, 0].all()
    assert begins[:, 1:][ids[:, :-1] < len(SPECIAL)].all()
    assert begins.mean() < 0.3


def test_mask_tokens():
    ids = np.array([[2, 10, 11, 12, 13, 3, 0], [2, 20, 21, 22, 23, 24, 3]])
    masked_ids, targets, positions = mask_tokens(ids, MASK, VOCABULARY, 0.4)
    assert masked_ids.shape == targets.shape == ids.shape
    assert np.array_equal(positions, np.argwhere(targets != IGNORED))
    assert {tuple(position) for position in positions} <= {tuple(position) for position in np.argwhere(ids > 4)}
    assert len(positions) >= 2
    again = mask_tokens(ids, MASK, VOCABULARY, 0.4, seed=0)
    assert np.array_equal(again.targets, targets)
    fresh = np.random.default_rng(0)
    drawn = {mask_tokens(ids, MASK, VOCABULARY, seed=fresh).targets.tobytes() for _ in range(10)}
    assert len(drawn) > 1


def test_mask_tokens_of_one_row_and_other_special_ids():
    ids = np.arange(100, 150)
    masked_ids, targets, positions = mask_tokens(ids, 103, 1000, 0.5, special_ids=(100, 101, 102))
    assert masked_ids.shape == (50,)
    assert np.array_equal(positions, np.flatnonzero(targets != IGNORED))
    assert positions.min() >= 4, "[MASK] is a special token"
    assert mask_tokens(np.zeros((0, 5), int), MASK, VOCABULARY).positions.shape == (0, 2)
    assert mask_tokens([], MASK, VOCABULARY).positions.shape == (0,)
    assert mask_tokens([0, 2, 3], MASK, VOCABULARY).positions.size == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0}, "above 0"),
        ({"rate": 1.5}, "at most 1"),
        ({"rate": float("nan")}, "rate"),
        ({"mask_share": 0.9, "random_share": 0.2}, "add up to 1"),
        ({"mask_share": -0.1}, "negative"),
        ({"spans": (0.5, 3)}, "mean"),
        ({"spans": (4, 3)}, "mean"),
        ({"spans": 3}, "spans"),
    ],
)
def test_impossible_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        Masking(**settings)


def test_bad_input():
    with pytest.raises(InputError, match="outside the vocabulary"):
        mask_tokens([1, 2, VOCABULARY], MASK, VOCABULARY)
    with pytest.raises(InputError, match="outside the vocabulary"):
        mask_tokens([1, 2, 3], VOCABULARY, VOCABULARY)
    with pytest.raises(InputError, match="integers"):
        mask_tokens([1.0, 2.0], MASK, VOCABULARY)
    with pytest.raises(InputError, match="special"):
        mask_tokens([1, 2], MASK, 5)
    with pytest.raises(InputError, match="continues_word"):
        mask_tokens([1, 2], MASK, VOCABULARY, masking=Masking(whole_words=True))
    with pytest.raises(InputError, match=r"continues_word must have the shape"):
        mask_tokens([1, 2], MASK, VOCABULARY, continues_word=np.zeros(3, bool))
    with pytest.raises(ConfigError, match="above 0"):
        mask_tokens([10, 11], MASK, VOCABULARY, 0.0)


def test_ngrams_have_the_lengths_of_albert():
    """P(n) is proportional to 1/n for n = 1 to 3, and no n-gram reaches across a special token or splits a word."""
    rng = np.random.default_rng(0)
    words = rng.random((400, 120)) < 0.7
    words[:, 0] = True
    special = np.zeros(words.shape, bool)
    special[:, [0, 60]] = True
    words |= special
    starts = ngram_starts(words, special, rng.random(words.shape), 3)
    assert not (starts & ~words).any() and starts[:, [0, 60]].all()
    number = np.cumsum(starts, 1)
    lengths = [np.bincount(number[i][words[i]])[1:] for i in range(len(words))]
    inner = np.concatenate([row[:-1] for row in lengths])  # the last n-gram of a row may be cut
    shares = np.bincount(inner, minlength=4)[1:] / len(inner)
    np.testing.assert_allclose(shares, [6 / 11, 3 / 11, 2 / 11], atol=0.015)


def test_ngrams_are_masked_whole():
    ids = np.arange(5, 105, dtype=np.int32)[None].repeat(50, 0)
    masking = Masking(0.3, mask_share=1.0, random_share=0.0, ngrams=3)
    found = mask_tokens(ids, 4, 200, 0.3, masking=masking)
    assert (found.targets != -100).mean() == pytest.approx(0.3, abs=0.01)
    with pytest.raises(ConfigError, match="ngrams must be a whole number of at least 1, without spans"):
        Masking(ngrams=2, spans=(2.0, 3))
