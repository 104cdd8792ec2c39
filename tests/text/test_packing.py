"""Packing: every token once, no row too long, only whole sentences where they fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import ConfigError, TextError
from glassbert.text.corpus.reader import Shard, Split
from glassbert.text.packing import ADDED_TOKENS, PACKINGS, PackingPlan, best_fit, plan_rows
from tests.text.synthetic_corpus import numbered, shard

DOCUMENTS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=12)
SHARDS = st.lists(DOCUMENTS, min_size=1, max_size=3)
LENGTHS = st.integers(3, 50)


def segments(plan: PackingPlan) -> list[tuple[int, int]]:
    return [(int(start), int(start) + int(length)) for start, length in zip(plan.starts, plan.lengths, strict=True)]


def document_borders(split: Split) -> list[int]:
    borders, before = [0], 0
    for one in split.shards:
        borders += [before + int(end) for end in one.document_token_ends]
        before += len(one.tokens)
    return borders


def sentence_borders(split: Split) -> set[int]:
    borders, before = {0}, 0
    for one in split.shards:
        borders |= {before + int(end) for end in one.sentence_ends}
        before += len(one.tokens)
    return borders


@given(SHARDS, LENGTHS, st.sampled_from(PACKINGS))
@settings(deadline=None)
def test_every_token_is_in_one_row_and_no_row_is_too_long(shards, length, packing):
    split = numbered(shards)
    plan = plan_rows(split, length, packing)
    seen = np.concatenate([np.arange(a, b) for a, b in segments(plan)])
    assert np.array_equal(np.sort(seen), np.arange(split.tokens))
    assert plan.tokens == split.tokens
    rows = np.split(plan.lengths.astype(int) + ADDED_TOKENS, plan.row_ends[:-1].astype(int))
    assert all(0 < row.sum() <= length for row in rows)
    assert plan.fill == pytest.approx(sum(row.sum() for row in rows) / (length * len(rows)))


@given(SHARDS, LENGTHS, st.sampled_from(PACKINGS))
@settings(deadline=None)
def test_a_segment_is_inside_one_document_and_a_row_inside_one_shard(shards, length, packing):
    split = numbered(shards)
    plan = plan_rows(split, length, packing)
    borders = np.array(document_borders(split))
    for a, b in segments(plan):
        assert np.searchsorted(borders, a, side="right") == np.searchsorted(borders, b, side="left")
    shard_of = np.searchsorted(np.cumsum([len(one.tokens) for one in split.shards]), plan.starts, side="right")
    assert all(len(set(row)) == 1 for row in np.split(shard_of, plan.row_ends[:-1].astype(int)))


@given(SHARDS, LENGTHS)
@settings(deadline=None)
def test_only_sentences_longer_than_a_row_are_cut(shards, length):
    split = numbered(shards)
    whole = sentence_borders(split)
    ordered = np.array(sorted(whole))
    for a, b in segments(plan_rows(split, length)):
        for border in (a, b):
            if border not in whole:
                at = np.searchsorted(ordered, border)
                assert ordered[at] - ordered[at - 1] > length - ADDED_TOKENS


@given(SHARDS, LENGTHS)
@settings(deadline=None)
def test_slices_are_exact_except_at_the_end_of_a_document(shards, length):
    split = numbered(shards)
    ends = set(document_borders(split))
    assert all(b - a == length - ADDED_TOKENS or b in ends for a, b in segments(plan_rows(split, length, "tokens")))


@given(st.lists(st.integers(3, 40), max_size=80), st.integers(40, 60))
@settings(deadline=None)
def test_best_fit_in_bulk_equals_best_fit_one_by_one(widths, length):
    placed = np.sort(np.array(widths, int))[::-1]
    rows = best_fit(np.bincount(placed, minlength=length + 1), length)
    expected: list[int] = []  # the free positions of every row
    for width in placed:
        fitting = [space for space in expected if space >= width]
        if not fitting:
            expected.append(length)
        expected[expected.index(min(fitting, default=length))] -= width
    assert sorted(length - np.bincount(rows, placed)) == sorted(expected)


def test_words_are_not_cut():
    continues = np.zeros(1000, bool)
    continues[[9, 10, 20, 31]] = True  # 8-9-10, 19-20 and 30-31 are words
    plan = plan_rows(numbered([[[60]]]), 12, continues_word=continues)
    assert [a for a, _ in sorted(segments(plan))] == [0, 8, 18, 28, 38, 48, 58]
    assert not continues[plan.starts].any()
    endless = np.ones(1000, bool)  # a word longer than any row has to be cut
    assert sorted(segments(plan_rows(numbered([[[60]]]), 12, continues_word=endless))) == [
        (a, a + 10) for a in range(0, 60, 10)
    ]


def natural_split(sentences: int = 20_000) -> Split:
    """Sentences with lengths like those of prose, in documents of thirty."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(3.0, 0.7, sentences).astype(int), 1, 300)
    return numbered([np.split(lengths, range(30, sentences, 30))])


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("length", [64, 128, 512])
def test_rows_are_filled(length, packing):
    plan = plan_rows(natural_split(), length, packing)
    assert plan.fill > 0.99
    if packing == "sentences":
        assert plan.mean_context > 0.65 * length


def test_the_plan_is_deterministic():
    split = natural_split(2_000)
    one, same = (plan_rows(split, 64) for _ in range(2))
    for name in ("starts", "lengths", "row_ends"):
        assert np.array_equal(getattr(one, name), getattr(same, name))


def test_sources_choose_documents():
    split = numbered([[[5, 5], [7], [3, 9]], [[4], [6]]])  # sources 0, 1, 0 and 0, 1
    plan = plan_rows(split, 20, sources=[1])
    assert sorted(segments(plan)) == [(10, 17), (33, 39)]
    with pytest.raises(TextError, match="no tokens from these sources"):
        plan_rows(split, 20, sources=[7])


def test_a_document_without_sentences():
    empty = shard([[4, 4], [], [6]])
    for packing in PACKINGS:
        plan = plan_rows(Split("train", 3, 3, 14, [empty]), 12, packing)
        assert sorted(segments(plan)) == [(0, 8), (8, 14)]


def test_bad_settings():
    split = numbered([[[5]]])
    with pytest.raises(ConfigError, match="sentences, tokens"):
        plan_rows(split, 20, "words")
    with pytest.raises(ConfigError, match="at least 3 positions"):
        plan_rows(split, 2)
    nothing = Shard("x", np.zeros(0, np.uint16), np.zeros(0, np.uint32), np.zeros((0, 2), np.uint32))
    for packing in PACKINGS:
        with pytest.raises(TextError, match="no text to pack"):
            plan_rows(Split("validation", 0, 0, 0, [nothing]), 20, packing)
        with pytest.raises(TextError, match="no text to pack"):
            plan_rows(Split("validation", 0, 0, 0, []), 20, packing)
