"""Batches by length: every text once, no batch above its budget, little padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import ConfigError, InputError
from glassbert.text.buckets import batches_by_length, padding_share


@given(
    st.lists(st.integers(1, 50), max_size=300),
    st.integers(50, 400),
    st.one_of(st.none(), st.integers(1, 20)),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_every_text_once_and_every_batch_within_its_budget(lengths, budget, max_rows, epoch):
    batches = batches_by_length(lengths, budget, max_rows, epoch=epoch)
    assert sorted(int(text) for batch in batches for text in batch) == list(range(len(lengths)))
    for batch in batches:
        assert 0 < len(batch) <= (max_rows or len(batch))
        assert len(batch) * max(lengths[text] for text in batch) <= budget


LENGTHS = np.random.default_rng(0).geometric(0.07, 20_000).clip(3, 80)


@pytest.mark.parametrize("max_rows", [None, 32])
def test_little_is_padded(max_rows):
    batches = batches_by_length(LENGTHS, 2048, max_rows)
    assert padding_share(LENGTHS, batches) < 0.05
    shuffled = np.array_split(np.random.default_rng(0).permutation(len(LENGTHS)), len(batches))
    assert padding_share(LENGTHS, shuffled) > 0.5


def test_batches_come_in_random_order():
    longest = [int(LENGTHS[batch].max()) for batch in batches_by_length(LENGTHS, 2048)]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.2


def test_the_same_epoch_the_same_batches():
    def flat(**options: int) -> list[list[int]]:
        return [batch.tolist() for batch in batches_by_length(LENGTHS, 2048, **options)]

    assert flat(seed=1, epoch=2) == flat(seed=1, epoch=2)
    assert flat(seed=1, epoch=2) != flat(seed=1, epoch=3)
    assert flat(seed=1, epoch=2) != flat(seed=2, epoch=2)
    together = [{tuple(sorted(batch)) for batch in flat(epoch=epoch)} for epoch in (0, 1)]
    assert not together[0] & together[1], "the batches of two epochs differ"


def test_bad_input():
    assert batches_by_length([], 100) == []
    with pytest.raises(ConfigError, match="text 1 has 200 tokens"):
        batches_by_length([5, 200], 100)
    with pytest.raises(ConfigError, match="max_rows must be at least 1, got 0"):
        batches_by_length([5], 100, 0)
    for lengths in ([0, 4], [1.5], [[1, 2]]):
        with pytest.raises(InputError, match="whole numbers"):
            batches_by_length(lengths, 100)
