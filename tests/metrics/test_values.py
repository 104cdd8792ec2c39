"""Values computed by hand for small inputs."""

import math

import numpy as np
import pytest

from glassbert.metrics import (
    accuracy,
    answer_f1,
    average_precision,
    balanced_accuracy,
    brier_score,
    calibration_curve,
    cohen_kappa,
    confusion_matrix,
    exact_match,
    expected_calibration_error,
    f1,
    fit_temperature,
    kendall,
    linear_cka,
    log_loss,
    mae,
    mase,
    matthews_correlation,
    pearson,
    perplexity,
    precision,
    precision_recall_curve,
    quadratic_weighted_kappa,
    r2,
    recall,
    rmse,
    roc_auc,
    roc_curve,
    smape,
    spearman,
    top_k_accuracy,
    tune_thresholds,
)

TRUTH = [1, 1, 1, 0, 0, 0, 0, 0]
GUESS = [1, 1, 0, 1, 0, 0, 0, 0]  # TP 2, FN 1, FP 1, TN 4


def test_two_classes():
    assert accuracy(TRUTH, GUESS) == 6 / 8
    assert precision(TRUTH, GUESS) == recall(TRUTH, GUESS) == f1(TRUTH, GUESS) == pytest.approx(2 / 3)
    assert balanced_accuracy(TRUTH, GUESS) == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert confusion_matrix(TRUTH, GUESS).tolist() == [[4, 1], [1, 2]]
    assert matthews_correlation(TRUTH, GUESS) == pytest.approx((2 * 4 - 1) / math.sqrt(3 * 3 * 5 * 5))
    by_chance = (3 * 3 + 5 * 5) / 64
    assert cohen_kappa(TRUTH, GUESS) == pytest.approx((6 / 8 - by_chance) / (1 - by_chance))


def test_averages_over_labels():
    truth, guess = list("aaabbc"), list("aabbbb")
    # a: TP 2 FP 0 FN 1;  b: TP 2 FP 2 FN 0;  c: TP 0 FP 0 FN 1
    assert f1(truth, guess, "macro") == pytest.approx((4 / 5 + 4 / 6 + 0) / 3)
    assert f1(truth, guess, "micro") == pytest.approx(4 / 6)
    assert f1(truth, guess, "weighted") == pytest.approx((3 * 4 / 5 + 2 * 4 / 6) / 6)
    assert precision(truth, guess, positive="b") == 0.5
    assert confusion_matrix(truth, guess, labels=list("cba")).tolist() == [[0, 1, 0], [0, 2, 0], [0, 1, 2]]


def test_multilabel():
    truth, guess = [[1, 0, 1], [0, 1, 0]], [[1, 0, 0], [0, 1, 0]]
    assert accuracy(truth, guess) == 0.5
    assert f1(truth, guess, "micro") == pytest.approx(2 * 2 / (2 * 2 + 1))
    assert f1(truth, guess, "macro") == pytest.approx(2 / 3)


def test_top_k():
    scores = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]]
    assert top_k_accuracy([0, 1, 2], scores, 1) == pytest.approx(1 / 3)
    assert top_k_accuracy([0, 1, 2], scores, 2) == pytest.approx(2 / 3)
    assert top_k_accuracy([0, 0], np.zeros((2, 4)), 1) == 0.25  # equal scores for all labels


def test_kappa_counts_gaps_in_the_scale():
    assert quadratic_weighted_kappa([3, 4, 9], [4, 4, 9]) == quadratic_weighted_kappa(
        [3, 4, 9], [4, 4, 9], range(3, 10)
    )
    assert quadratic_weighted_kappa([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert cohen_kappa([1, 2, 3], [1, 2, 3], "linear") == 1


def test_areas_with_ties():
    assert roc_auc([0, 1, 0, 1], [0.1, 0.4, 0.4, 0.8]) == pytest.approx(3.5 / 4)
    assert roc_auc([0, 1], [0.5, 0.5]) == 0.5
    curve = roc_curve([0, 1, 0, 1], [0.1, 0.4, 0.4, 0.8])
    assert curve.true_positive_rate.tolist() == [0, 0.5, 1, 1]
    assert curve.false_positive_rate.tolist() == [0, 0, 0.5, 1]
    assert curve.thresholds.tolist() == [np.inf, 0.8, 0.4, 0.1]
    assert average_precision([0, 1, 0, 1], [0.1, 0.4, 0.4, 0.8]) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert precision_recall_curve([1, 0], [0.9, 0.1]).precision.tolist() == [1, 0.5]


def test_mean_area_over_labels():
    truth, scores = [[0, 1], [1, 1], [0, 1]], [[0.1, 0.3], [0.9, 0.2], [0.5, 0.1]]
    assert roc_auc(truth, scores) == 1  # the second label has no negatives and is left out


def test_probabilities():
    assert log_loss([1, 0], [0.5, 0.75]) == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert log_loss([1], [0.0]) == pytest.approx(52 * math.log(2))
    assert brier_score([1, 0], [0.5, 0.75]) == pytest.approx((0.25 + 0.5625) / 2)
    assert brier_score([0], [[0.5, 0.3, 0.2]]) == pytest.approx(0.25 + 0.09 + 0.04)
    curve = calibration_curve([1, 0, 1], [0.2, 0.2, 0.9], bins=2)
    assert curve.confidence.tolist() == [0.2, 0.9] and curve.observed.tolist() == [0.5, 1]
    assert expected_calibration_error([1, 0, 1], [0.2, 0.2, 0.9], bins=2) == pytest.approx((2 * 0.3 + 0.1) / 3)
    assert expected_calibration_error([1, 0], [0.4, 0.6], bins=2) == pytest.approx(0.6)  # gaps do not cancel


def test_temperature_by_hand():
    """Predicted odds of 9 : 1, correct in three of four: the calibrated logit is ln 3."""
    logit = math.log(9)
    assert fit_temperature([1, 1, 1, 0], [logit] * 4) == pytest.approx(logit / math.log(3))
    assert fit_temperature([1, 1, 1, 0], [[0, logit]] * 4) == pytest.approx(logit / math.log(3))


def test_numbers():
    assert rmse([1, 2, 3], [1, 2, 6]) == pytest.approx(math.sqrt(3))
    assert mae([1, 2, 3], [1, 2, 6]) == 1
    assert r2([1, 2, 3], [1, 2, 6]) == pytest.approx(1 - 9 / 2)
    assert pearson([1, 2, 3], [2, 4, 7]) == pytest.approx(2.5 / math.sqrt(19 / 3))
    assert spearman([1, 2, 3], [1, 10, 100]) == pytest.approx(1)
    assert spearman([1, 1, 1, 2], [1, 2, 3, 3]) == pytest.approx(2 / math.sqrt(3 * 4.5))  # ranks 2 2 2 4, 1 2 3.5 3.5
    assert kendall([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)


def test_forecasts():
    assert smape([100, 0], [50, 0]) == pytest.approx(200 / 3 / 2)
    assert mase([5, 6], [6, 8], history=[1, 2, 4, 8], period=1) == pytest.approx(1.5 / (7 / 3))
    assert mase([[5, 6]], [[6, 8]], history=[1, 2, 4, 8], period=2) == pytest.approx(1.5 / 4.5)


def test_answers():
    assert exact_match(["The cat!"], ["cat"]) == 1
    assert answer_f1([["a red cat", "dog"]], ["red bird"]) == pytest.approx(0.5)
    assert answer_f1([""], [""]) == 1 and answer_f1([""], ["cat"]) == 0


def test_perplexity():
    assert perplexity([math.log(8), math.log(2)]) == pytest.approx(4)
    assert perplexity([3 * math.log(2), math.log(2)], tokens=[3, 1]) == pytest.approx(2)
    assert perplexity([1e4]) == math.inf


def test_thresholds():
    found = tune_thresholds([[1, 0], [1, 0], [0, 0]], [[0.3, 0.9], [0.2, 0.8], [0.1, 0.1]], names=["joy", "fear"])
    assert 0.1 < found.values[0] <= 0.2 and found.f1[0] == 1
    assert found.values[1] == 0.5 and np.isnan(found.f1[1]) and "fear" in found.notes[0]
    assert found.apply([[0.25, 0.4]]).tolist() == [[True, False]]
    assert tune_thresholds([1, 0], [0.9, 0.1]).values[0] == 0.5  # every value between the scores has the same F1


def test_similarity():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    assert linear_cka(x, 3 * x @ turn + 1) == pytest.approx(1)
    wide = rng.normal(size=(10, 40))
    by_columns = np.linalg.norm((wide - wide.mean(0)).T @ (x[:10] - x[:10].mean(0))) ** 2
    sizes = [np.linalg.norm((a - a.mean(0)).T @ (a - a.mean(0))) for a in (wide, x[:10])]
    assert linear_cka(wide, x[:10]) == pytest.approx(by_columns / sizes[0] / sizes[1])
