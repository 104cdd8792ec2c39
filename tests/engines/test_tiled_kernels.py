"""Short documents of packed rows: grouped by length, computed together, and equal to the plain operation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert import ops
from glassbert.engines import NumpyEngine
from glassbert.engines.threads import using_threads
from glassbert.engines.tiled_kernels import LONGEST, STEP, groups_of_documents
from glassbert.ops import AttentionPattern


def packed(rows):
    """Segments of rows of documents; a negative length is padding. Rows are filled up with padding."""
    names = [np.concatenate([np.full(abs(n), i + 1 if n > 0 else 0) for i, n in enumerate(row)]) for row in rows]
    longest = max(map(len, names))
    return np.stack([np.pad(row, (0, longest - len(row))) for row in names])


def arrays(rng, segments, dtype, heads=3, size=5):
    batch, length = segments.shape
    qkv = rng.standard_normal((batch, length, 3, heads, size)).astype(dtype)
    return *qkv.transpose(2, 0, 3, 1, 4), rng.standard_normal((batch, heads, length, size)).astype(dtype)


def compare(segments, dtype, threads, **pattern):
    q, k, v, dy = arrays(np.random.default_rng(0), segments, dtype)
    who = AttentionPattern(segments=segments, **pattern)
    with using_threads(threads):
        y, state = NumpyEngine(dtype, threads).ops.tiled_attention(q, k, v, who)
        found = (y, *state.backward(dy, state.values))
    right_y, right_state = ops.tiled_attention(q, k, v, who)
    right = (right_y, *ops.tiled_attention_backward(dy, right_state))
    for one, other in zip(found[:4], right[:4], strict=True):
        np.testing.assert_allclose(one, other, atol=5e-6 if dtype == "float32" else 1e-13)
    assert found[4] is right[4] is None


ROWS = st.lists(st.lists(st.integers(-4, 40).filter(bool), min_size=1, max_size=6), min_size=1, max_size=3)


@given(ROWS, st.sampled_from(["float32", "float64"]), st.sampled_from([1, 2]))
@settings(max_examples=60, deadline=None)
def test_any_documents_have_the_contexts_and_gradients_of_the_plain_operation(rows, dtype, threads):
    segments = packed(rows)
    compare(segments, dtype, threads)
    x = np.zeros((len(rows), 1, segments.shape[1], 2))
    assert groups_of_documents(x, x, AttentionPattern(segments=segments)) is not None


@pytest.mark.parametrize("window", [3, 39, 40, 200])
def test_a_window_that_is_narrower_than_a_document_is_kept(window):
    compare(packed([[40, 7, 40]]), "float32", 1, window=window)


@pytest.mark.parametrize("length", [LONGEST, LONGEST + 1])
def test_long_documents_are_left_to_the_plain_operation(length):
    segments = packed([[length, 5]])
    x = np.zeros((1, 1, segments.shape[1], 2))
    assert (groups_of_documents(x, x, AttentionPattern(segments=segments)) is None) == (length > LONGEST)
    compare(segments, "float32", 2)


def test_documents_of_like_length_share_a_group():
    segments = packed([[STEP, STEP - 1, 1, STEP + 1]])
    x = np.zeros((1, 1, segments.shape[1], 2))
    groups = groups_of_documents(x, x, AttentionPattern(segments=segments))
    assert groups[0].real.sum(1).tolist() == [STEP, STEP - 1, 1]
    assert groups[1].real is None and groups[1].places.tolist() == [list(range(2 * STEP, 3 * STEP + 1))]


def test_what_is_not_finite_stays_in_its_document():
    segments = packed([[6, 9, 4]])
    q, k, v, _ = arrays(np.random.default_rng(1), segments, "float32")
    v[0, 0, 7, 2] = np.nan
    context = NumpyEngine("float32", 1).ops.tiled_attention(q, k, v, AttentionPattern(segments=segments))[0]
    lost = np.isnan(context).any((1, 3))[0]
    assert lost[6:15].all() and not lost[:6].any() and not lost[15:].any()


def test_a_batch_of_padding_alone_gives_zeros():
    segments = np.zeros((2, 5), int)
    compare(segments, "float32", 1)
