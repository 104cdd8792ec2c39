"""The operations' values against direct formulas."""

import math

import numpy as np
import pytest

from glassbert import ops
from glassbert.arrays import scatter_rows
from glassbert.ops.normal import normal_cdf

RNG = np.random.default_rng(5)
POINTS = np.unique(np.r_[np.linspace(-40, 40, 2001), np.linspace(-6, 6, 4001), 0.0, [1e-30, -1e-30, 1e-8]])


def exact_cdf(x):
    return np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x.tolist()])


def test_normal_cdf_in_float64_is_right_to_the_last_digits():
    with np.errstate(under="ignore"):
        found, expected = normal_cdf(POINTS), exact_cdf(POINTS)
    assert np.abs(found - expected).max() < 5e-16
    middle = np.abs(POINTS) < 8
    assert (np.abs(found - expected)[middle] / expected[middle]).max() < 1e-13


def test_normal_cdf_in_float32_is_right_to_its_digits():
    points = POINTS.astype(np.float32)
    with np.errstate(under="ignore"):
        found = normal_cdf(points)
    assert found.dtype == np.float32
    expected = exact_cdf(points.astype(np.float64))
    assert np.abs(found - expected).max() < 3e-7
    assert np.abs(points * (found - expected)).max() < 1e-6  # what GELU sees
    assert found.min() >= 0 and found.max() <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_cdf_of_extremes_is_0_and_1_without_a_warning(dtype):
    with np.errstate(over="raise", invalid="raise"):
        found = normal_cdf(np.array([-1e4, 1e4, -100.0, 100.0], dtype))
    np.testing.assert_allclose(found, [0, 1, 0, 1], atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_is_x_times_phi(dtype):
    x = np.linspace(-5, 5, 1001).astype(dtype)
    expected = x * exact_cdf(x.astype(np.float64))
    np.testing.assert_allclose(ops.gelu(x)[0], expected, atol=1e-6 if dtype == np.float32 else 1e-15)
    assert np.abs(ops.gelu_tanh(x)[0] - expected).max() < 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_survives_any_scores(dtype):
    x = np.array([[1e4, 1e4, -1e4], [-1e30, -1e30, -1e30], [0, -1e30, 0], [80, -80, 0]], dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y, state = ops.softmax(x)
        dx = ops.softmax_backward(np.ones_like(x), state)
    np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(y[:3], [[0.5, 0.5, 0], [1 / 3] * 3, [0.5, 0, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(dx, 0, atol=1e-6)  # a constant gradient says nothing about weights that sum to one


def test_layer_norm_has_mean_0_and_variance_1_before_gamma_and_beta():
    x = 5 + 3 * RNG.standard_normal((4, 9))
    y, _ = ops.layer_norm(x, np.ones(9), None, 1e-12)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(-1), 1, rtol=1e-9)
    z, _ = ops.layer_norm(x, np.full(9, 2.0), np.full(9, 3.0), 1e-12)
    np.testing.assert_allclose(z, 2 * y + 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layer_norm_of_a_constant_row_is_beta_and_finite(dtype):
    x = np.full((1, 4), 7, dtype)
    y, state = ops.layer_norm(x, np.ones(4, dtype), np.arange(4, dtype=dtype), 1e-12)
    np.testing.assert_allclose(y[0], np.arange(4))
    assert np.isfinite(ops.layer_norm_backward(np.ones((1, 4), dtype), state)[0]).all()


def test_cross_entropy_is_the_mean_surprise_of_the_rows_that_count():
    logits, targets = RNG.standard_normal((5, 4)), np.array([3, -100, 0, 1, -100])
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -np.mean([math.log(probabilities[i, t]) for i, t in enumerate(targets) if t != -100])
    loss, state = ops.cross_entropy(logits, targets)
    assert float(loss) == pytest.approx(expected)
    onehot = np.eye(4)[np.where(targets < 0, 0, targets)]
    right = (probabilities - onehot) * (targets != -100)[:, None] / 3
    np.testing.assert_allclose(ops.cross_entropy_backward(np.asarray(1.0), state), right, atol=1e-15)


def test_cross_entropy_of_nothing_is_zero_with_zero_gradients():
    for targets in (np.full(3, -100), np.zeros(0, int)):
        logits = RNG.standard_normal((len(targets), 4))
        loss, state = ops.cross_entropy(logits, targets)
        assert float(loss) == 0.0
        assert not ops.cross_entropy_backward(np.asarray(1.0), state).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_survive_extreme_outputs(dtype):
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]], dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        loss, state = ops.cross_entropy(logits, np.array([0, 0]))
        assert float(loss) == pytest.approx(1e4)
        assert np.isfinite(ops.cross_entropy_backward(np.asarray(1.0, dtype), state)).all()
        loss, state = ops.binary_cross_entropy(logits, np.array([[1.0, 0.0], [1.0, 0.0]], dtype))
        assert float(loss) == pytest.approx(5e3)
        assert np.isfinite(ops.binary_cross_entropy_backward(np.asarray(1.0, dtype), state)).all()


def test_binary_cross_entropy_is_the_mean_surprise_of_the_answers_that_count():
    logits, targets = RNG.standard_normal((4, 3)), RNG.integers(0, 2, (4, 3)).astype(float)
    targets[2, 1] = -100
    p = 1 / (1 + np.exp(-logits))
    each = -(targets * np.log(p) + (1 - targets) * np.log(1 - p))
    loss, state = ops.binary_cross_entropy(logits, targets)
    assert float(loss) == pytest.approx(each[targets != -100].mean())
    gradient = ops.binary_cross_entropy_backward(np.asarray(1.0), state)
    np.testing.assert_allclose(gradient, np.where(targets == -100, 0, (p - targets) / 11), atol=1e-15)


def test_mean_squared_error_is_what_it_says():
    outputs, targets = RNG.standard_normal((4, 2)), RNG.standard_normal((4, 2))
    targets[0, 0] = -100
    counts = targets != -100
    loss, state = ops.mean_squared_error(outputs, targets)
    assert float(loss) == pytest.approx(((outputs - targets)[counts] ** 2).mean())
    gradient = ops.mean_squared_error_backward(np.asarray(1.0), state)
    np.testing.assert_allclose(gradient, np.where(counts, 2 * (outputs - targets) / 7, 0))


def test_embedding_gradients_are_added_and_padding_is_frozen():
    ids, dy = np.array([[2, 1, 2], [0, 2, 0]]), RNG.standard_normal((2, 3, 4))
    expected = np.zeros((5, 4))
    np.add.at(expected, ids, dy)
    _, state = ops.embedding(RNG.standard_normal((5, 4)), ids)
    found = scatter_rows(np.zeros((5, 4)), *ops.embedding_backward(dy, state))
    np.testing.assert_allclose(found, expected)
    _, state = ops.embedding(RNG.standard_normal((5, 4)), ids, 0)
    frozen = scatter_rows(np.zeros((5, 4)), *ops.embedding_backward(dy, state))
    np.testing.assert_allclose(frozen[1:], expected[1:])
    assert not frozen[0].any()


def test_embedding_backward_names_each_row_once():
    _, state = ops.embedding(np.zeros((7, 3)), RNG.integers(0, 7, (4, 50)))
    index, rows = ops.embedding_backward(RNG.standard_normal((4, 50, 3)), state)
    assert index.tolist() == sorted(set(index.tolist())) and rows.shape == (len(index), 3)


def test_rotary_keeps_lengths_and_depends_only_on_differences_of_positions():
    x = RNG.standard_normal((1, 1, 1, 6))
    y = RNG.standard_normal((1, 1, 1, 6))

    def turned(values, position):
        cos, sin = ops.rotary_angles(np.array([[position]]), 6, 10_000.0, np.dtype("float64"))
        return ops.rotary(values, cos, sin)[0].reshape(-1)

    np.testing.assert_allclose(turned(x, 0), x.reshape(-1))
    assert np.linalg.norm(turned(x, 17)) == pytest.approx(np.linalg.norm(x))
    for shift in (1, 5, 100):
        assert turned(x, 3 + shift) @ turned(y, 9 + shift) == pytest.approx(turned(x, 3) @ turned(y, 9))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rotary_angles_of_many_rows_are_those_of_each_position(dtype):
    positions = RNG.integers(0, 50, (3, 40))
    cos, sin = ops.rotary_angles(positions, 6, 10_000.0, np.dtype(dtype))
    assert cos.shape == sin.shape == (3, 40, 1, 3) and cos.dtype == dtype
    for row in range(3):
        alone = ops.rotary_angles(positions[row : row + 1], 6, 10_000.0, np.dtype(dtype))
        np.testing.assert_array_equal(cos[row], alone[0][0])
        np.testing.assert_array_equal(sin[row], alone[1][0])


def test_pooling_takes_the_first_token_or_the_mean_of_the_real_ones():
    x, mask = RNG.standard_normal((3, 4, 2)), np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(ops.cls_pool(x, mask)[0], x[:, 0])
    pooled, _ = ops.mean_pool(x, mask)
    np.testing.assert_allclose(pooled, [x[0].mean(0), x[1, :2].mean(0), [0, 0]])


def test_dropout_keeps_the_expectation_and_can_be_absent():
    x = np.ones((200, 200))
    y, _ = ops.dropout(x, RNG.random(x.shape) >= 0.3, 0.3)
    assert set(np.unique(y).round(12)) == {0.0, round(1 / 0.7, 12)}
    assert y.mean() == pytest.approx(1.0, abs=0.02)
    assert ops.dropout(x, None, 0.3)[0] is x


def test_the_bias_and_the_scale_of_attention():
    q, k, v = RNG.standard_normal((3, 2, 2, 5, 4))
    bias = RNG.standard_normal((1, 2, 5, 5))
    scores = 0.3 * q @ k.swapaxes(-1, -2) + bias
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    for attention in (ops.attention, ops.tiled_attention):
        context, _ = attention(q, k, v, ops.AttentionPattern(), bias, 0.3)
        np.testing.assert_allclose(context, weights @ v, atol=1e-14)
