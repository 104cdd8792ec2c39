"""Samples of a softmax: the right column for every number, the right frequencies, the same on both engines."""

import numpy as np
import pytest

from glassbert.ops.sampling import sample_columns


def reference(logits, uniform):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    reached = np.cumsum(weights, -1)
    return np.array([np.searchsorted(row, u * row[-1], side="right") for row, u in zip(reached, uniform, strict=True)])


@pytest.mark.parametrize("columns", [1, 2, 63, 64, 65, 128, 1000])
def test_the_first_column_whose_sum_exceeds_the_number(columns):
    rng = np.random.default_rng(columns)
    logits, uniform = 3 * rng.standard_normal((200, columns)), rng.random(200)
    np.testing.assert_array_equal(sample_columns(logits, uniform), reference(logits, uniform))


def test_frequencies_are_the_probabilities():
    logits = np.random.default_rng(0).standard_normal(70)
    grid = (np.arange(20_000) + 0.5) / 20_000
    chosen = sample_columns(np.broadcast_to(logits, (20_000, 70)), grid)
    found = np.bincount(chosen, minlength=70) / 20_000
    np.testing.assert_allclose(found, np.exp(logits) / np.exp(logits).sum(), atol=1.1e-4)


def test_impossible_columns_are_never_chosen():
    logits = np.full((3, 130), -np.inf, np.float32)
    logits[:, [7, 129]] = 0.0
    np.testing.assert_array_equal(sample_columns(logits, np.array([0.0, 0.49, 0.999999])), [7, 7, 129])


def test_large_scores_do_not_overflow():
    logits = np.array([[1e4, -1e4, 1e4]], np.float32)
    assert sample_columns(logits, np.array([0.2]))[0] == 0
    assert sample_columns(logits, np.array([0.8]))[0] == 2


def test_mlx_chooses_the_same():
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
    rng = np.random.default_rng(1)
    logits, uniform = rng.standard_normal((50, 300)).astype(np.float32), rng.random(50).astype(np.float32)
    found = np.array(sample_columns(mx.array(logits), mx.array(uniform)))
    assert (found == sample_columns(logits, uniform)).mean() > 0.97  # sums in another order may round across an edge
