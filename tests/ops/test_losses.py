"""The values of losses and poolings, against formulas written out in full."""

import numpy as np
import pytest

from glassbert import get_engine, ops

RNG = np.random.default_rng(4)
LOGITS = 2.0 * RNG.standard_normal((5, 4))
TARGETS = np.array([3, -100, 0, 1, 3])
KEPT = TARGETS != -100
WEIGHTS = (0.5, 2.0, 1.0, 3.0)


def log_probabilities(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def of_targets(values):
    return values[np.flatnonzero(KEPT), TARGETS[KEPT]]


def test_class_weights_multiply_each_row_and_the_mean_is_still_over_rows():
    loss, _ = ops.cross_entropy(LOGITS, TARGETS, weights=WEIGHTS)
    expected = -(np.array(WEIGHTS)[TARGETS[KEPT]] * of_targets(log_probabilities(LOGITS))).sum() / 4
    assert loss == pytest.approx(expected, rel=1e-12)


def test_a_weighted_loss_is_the_same_however_the_batch_is_cut():
    whole, _ = ops.cross_entropy(LOGITS, TARGETS, weights=WEIGHTS, smoothing=0.1)
    parts = [
        ops.cross_entropy(LOGITS[i], TARGETS[i], weights=WEIGHTS, smoothing=0.1)[0] for i in (slice(3), slice(3, 5))
    ]
    assert whole == pytest.approx(np.average(parts, weights=[2, 2]), rel=1e-12)


def test_smoothing_spreads_a_share_over_all_classes():
    loss, _ = ops.cross_entropy(LOGITS, TARGETS, smoothing=0.2)
    surprise = -log_probabilities(LOGITS)
    expected = 0.8 * of_targets(surprise).mean() + 0.2 * surprise[KEPT].mean()
    assert loss == pytest.approx(expected, rel=1e-12)


def test_weights_of_one_change_nothing():
    plain, _ = ops.cross_entropy(LOGITS, TARGETS)
    assert ops.cross_entropy(LOGITS, TARGETS, weights=(1.0,) * 4)[0] == pytest.approx(plain, rel=1e-12)
    scores, answers = LOGITS[:, :1], np.array([[1.0], [0.0], [1.0], [-100], [0.4]])
    logistic, _ = ops.binary_cross_entropy(scores, answers)
    assert ops.binary_cross_entropy(scores, answers, (1.0,))[0] == pytest.approx(logistic, rel=1e-12)
    assert ops.binary_focal_loss(scores, answers, 0.0)[0] == pytest.approx(logistic, rel=1e-12)
    assert ops.focal_loss(LOGITS, TARGETS, 0.0)[0] == pytest.approx(plain, rel=1e-12)


def test_focal_loss_by_its_formula():
    p = np.exp(of_targets(log_probabilities(LOGITS)))
    loss, _ = ops.focal_loss(LOGITS, TARGETS, 2.0, WEIGHTS)
    expected = -(np.array(WEIGHTS)[TARGETS[KEPT]] * (1 - p) ** 2 * np.log(p)).mean()
    assert loss == pytest.approx(expected, rel=1e-12)
    z, y = LOGITS[:, :2], np.array([[1, 0], [0, 1], [1, 1], [0, 0], [-100, 1]], np.float64)
    s = 1 / (1 + np.exp(-z))
    each = -3.0 * y * (1 - s) ** 1.5 * np.log(s) - (1 - y) * s**1.5 * np.log(1 - s)
    expected = each[y != -100].mean()
    assert ops.binary_focal_loss(z, y, 1.5, (3.0, 3.0))[0] == pytest.approx(expected, rel=1e-12)


def test_the_ordinal_loss_is_the_surprise_at_the_rank():
    steps = LOGITS[:, :3]
    passed = np.cumprod(1 / (1 + np.exp(-steps)), -1)
    above = np.concatenate([np.ones((5, 1)), passed], -1)
    ranks = above - np.concatenate([passed, np.zeros((5, 1))], -1)
    assert (ranks > 0).all() and np.allclose(ranks.sum(-1), 1)
    loss, _ = ops.ordinal_loss(steps, TARGETS)
    assert loss == pytest.approx(-np.log(of_targets(ranks)).mean(), rel=1e-12)


def test_a_rank_further_off_costs_more():
    """Scores that say rank 1 of 0..4: each further step of the truth adds a question answered wrongly."""
    sure = np.array([[4.0, -4.0, -4.0, -4.0]])
    costs = [float(ops.ordinal_loss(sure, np.array([rank]))[0]) for rank in (1, 2, 3, 4)]
    assert costs == sorted(costs) and costs[-1] > 2 * costs[1]


@pytest.mark.parametrize("scale", [1e3, 1e4])
def test_nothing_overflows(scale):
    logits, targets = np.array([[scale, -scale, 0.0]] * 3), np.array([0, 1, 2])
    answers = np.array([[1.0, 1.0, 0.0]] * 3)
    for forward, backward, given, options in (
        (ops.cross_entropy, ops.cross_entropy_backward, targets, {"smoothing": 0.1}),
        (ops.focal_loss, ops.focal_loss_backward, targets, {"gamma": 0.5}),
        (ops.binary_focal_loss, ops.binary_focal_loss_backward, answers, {"gamma": 0.5}),
        (ops.binary_cross_entropy, ops.binary_cross_entropy_backward, answers, {"positive_weights": (2, 2, 2)}),
        (ops.ordinal_loss, ops.ordinal_loss_backward, targets, {}),
    ):
        loss, state = forward(logits, given, **options)
        assert np.isfinite(loss) and np.isfinite(backward(np.float64(1.0), state)).all()


def test_contrastive_loss_by_its_formula_and_pairs_left_out():
    first, second = RNG.standard_normal((2, 4, 6))
    a, b = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (first, second))
    expected = -np.diag(log_probabilities(a @ b.T / 0.2)).mean()
    assert ops.contrastive_loss(first, second, np.ones(4), 0.2)[0] == pytest.approx(expected, rel=1e-9)
    kept = [0, 2, 3]
    without, _ = ops.contrastive_loss(first, second, np.array([1.0, -100, 1, 1]), 0.2)
    alone, _ = ops.contrastive_loss(first[kept], second[kept], np.ones(3), 0.2)
    assert without == pytest.approx(alone, rel=1e-12)


def test_ranking_loss_by_its_formula_and_pairs_left_out():
    first, second = RNG.standard_normal((2, 5, 6))
    targets, kept = np.array([0.1, 0.8, -100, 0.8, -0.3]), [0, 1, 3, 4]
    a, b = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (first, second))
    cosines = (a * b).sum(-1)
    compared = [(i, j) for i in kept for j in kept if targets[i] > targets[j]]
    expected = np.log(1 + sum(np.exp((cosines[j] - cosines[i]) / 0.2) for i, j in compared))
    assert ops.ranking_loss(first, second, targets, 0.2)[0] == pytest.approx(expected, rel=1e-9)
    alone, _ = ops.ranking_loss(first[kept], second[kept], targets[kept], 0.2)
    assert alone == pytest.approx(expected, rel=1e-9)
    shifted, _ = ops.ranking_loss(first, second, np.where(targets == -100, targets, targets**3), 0.2)
    assert shifted == pytest.approx(expected, rel=1e-9)  # only the order of the targets counts


def test_ranking_loss_without_a_comparison_or_with_a_tiny_temperature_is_finite():
    first, second = RNG.standard_normal((2, 3, 4))
    for targets, temperature in (([0.5, 0.5, 0.5], 0.1), ([-100, -100, -100], 0.1), ([0.1, 0.5, 0.9], 1e-6)):
        loss, state = ops.ranking_loss(first, second, np.array(targets), temperature)
        gradients = ops.ranking_loss_backward(np.float64(1), state)
        assert np.isfinite(loss) and all(np.isfinite(d).all() for d in gradients)
        if temperature == 0.1:
            assert loss == 0 and not np.any(gradients)


def test_vectors_of_zeros_have_no_direction_and_no_nan():
    zeros = np.zeros((2, 3))
    loss, state = ops.cosine_loss(zeros, zeros, np.array([1.0, 0.0]))
    assert loss == pytest.approx(0.5)
    assert all(np.isfinite(d).all() for d in ops.cosine_loss_backward(np.float64(1), state))


def test_poolings_see_real_tokens_only():
    x = RNG.standard_normal((3, 4, 5))
    mask = np.array([[1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
    x[mask == 0] = 1e6
    largest, _ = ops.max_pool(x, mask)
    assert np.array_equal(largest[0], x[0, [0, 1, 3]].max(0)) and np.array_equal(largest[1], x[1, 0])
    query = RNG.standard_normal(5)
    pooled, (_, weights, _) = ops.attention_pool(x, mask, query)
    assert np.allclose(pooled[1], x[1, 0]) and np.allclose(weights.sum(-1), [1, 1, 0])
    assert not largest[2].any() and not pooled[2].any()
    mean, _ = ops.mean_pool(x, mask)
    assert np.allclose(ops.attention_pool(x, mask, 0.0 * query)[0], mean)


@pytest.mark.parametrize(("options", "size"), [({}, 5), ({"smoothing": 0.1}, 4), ({"weights": WEIGHTS}, 4)])
def test_the_kernel_of_cross_entropy_takes_the_common_case_and_leaves_the_others_to_the_plain_operation(options, size):
    loss, state = get_engine("numpy", "float64").ops.cross_entropy(LOGITS, TARGETS, **options)
    assert len(state.values) == size  # 5: the kernel's own state
    assert loss == pytest.approx(ops.cross_entropy(LOGITS, TARGETS, **options)[0], rel=1e-12)
