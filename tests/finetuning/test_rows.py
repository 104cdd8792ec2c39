"""Rows are equal to the windows of `cut_windows`; padding of batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import InputError
from glassbert.finetuning.rows import rows_of_texts, rows_of_windows
from glassbert.tasks import cut_windows
from tests.finetuning.toy import WORDS, make_tokenizer

TOKENIZER = make_tokenizer()
TEXTS = st.lists(st.lists(st.sampled_from([*WORDS, "zzz", "é"]), max_size=30).map(" ".join), min_size=1, max_size=5)


@given(TEXTS, st.booleans(), st.integers(6, 20), st.one_of(st.none(), st.integers(1, 3)), st.sampled_from([None, 1, 2]))
@settings(max_examples=60, deadline=None)
def test_rows_are_equal_to_windows(texts, paired, length, stride, max_windows):
    pairs = texts[::-1] if paired else None
    stride = None if paired else stride
    windows = cut_windows(TOKENIZER, texts, pairs, length=length, stride=stride, max_windows=max_windows)
    fast = rows_of_texts(TOKENIZER, texts, pairs, length=length, stride=stride, max_windows=max_windows)
    slow = rows_of_windows(windows, paired)
    for one, two in zip((fast.ids, fast.starts, fast.owners), (slow.ids, slow.starts, slow.owners), strict=True):
        np.testing.assert_array_equal(one, two)
    if paired:
        np.testing.assert_array_equal(fast.types, slow.types)
    assert fast.texts == len(texts)


def test_padding():
    rows = rows_of_texts(TOKENIZER, ["the bird", "", "a king runs"], length=10)
    block = rows.padded(rows.ids, np.array([2, 1]), -1, 6)
    assert block.shape == (2, 6)
    assert (block[1] == [TOKENIZER.cls_id, TOKENIZER.sep_id, -1, -1, -1, -1]).all()
    assert (block[0] >= 0).sum() == rows.lengths[2] == 5


def test_error_for_different_numbers_of_texts():
    with pytest.raises(InputError, match="2 texts and 1 second texts"):
        rows_of_texts(TOKENIZER, ["a", "b"], ["c"], length=10)


def test_progress():
    seen = []
    rows_of_texts(TOKENIZER, ["the bird"] * 10, length=8, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (10, 10)
