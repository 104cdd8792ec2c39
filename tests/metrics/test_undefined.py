"""Undefined metrics give a reason; invalid input is an error."""

import numpy as np
import pytest

from glassbert import metrics
from glassbert.errors import ConfigError, InputError
from glassbert.metrics import METRICS, Scores, Undefined, get_metric, measure

REASONS = [
    (metrics.roc_auc, [1, 1], [0.2, 0.3], "both classes, and all examples are positive"),
    (metrics.roc_auc, [[1], [1]], [[0.2], [0.3]], "some do not have"),
    (metrics.roc_curve, [0, 0], [0.2, 0.3], "all examples are negative"),
    (metrics.average_precision, [0, 0], [0.2, 0.3], "no example is positive"),
    (metrics.precision, [1, 0], [0, 0], "nothing was predicted"),
    (metrics.recall, [0, 0], [1, 0], "no example has"),
    (metrics.f1, [0, 0], [0, 0], "neither"),
    (metrics.matthews_correlation, [1, 1], [0, 1], "two labels"),
    (metrics.cohen_kappa, [1, 1], [1, 1], "same label"),
    (metrics.r2, [0.1, 0.1, 0.1], [1, 2, 3], "all of them are 0.1"),
    (metrics.pearson, [0.1, 0.1, 0.1], [1, 2, 3], "constant"),
    (metrics.spearman, [1, 2, 3], [7, 7, 7], "constant"),
    (metrics.kendall, [1, 2, 3], [7, 7, 7], "constant"),
    (metrics.span_f1, [["O"]], [["O"]], "no spans"),
    (metrics.fit_temperature, [1, 0], [3.0, -3.0], "every example is right"),
    (metrics.fit_temperature, [1, 0], [-3.0, 3.0], "no better than chance"),
    (metrics.fit_temperature, [1, 0], [0.0, 0.0], "alike"),
    (metrics.perplexity, [0.0], [0], "no tokens"),
    (metrics.linear_cka, np.ones((3, 2)), np.ones((3, 2)), "same for all inputs"),
]


@pytest.mark.parametrize(("metric", "truth", "other", "reason"), REASONS)
def test_undefined_reasons(metric, truth, other, reason):
    with pytest.raises(Undefined, match=reason):
        metric(truth, other)


@pytest.mark.parametrize("name", METRICS)
def test_no_examples(name):
    with pytest.raises(Undefined, match="no examples"):
        METRICS[name].function([], [])


@pytest.mark.parametrize("name", METRICS)
def test_different_lengths(name):
    truth = {"tags": [["O"]] * 2, "answers": ["a", "b"]}.get(METRICS[name].takes, [0, 1])
    other = {"tags": [["O"]], "answers": ["a"]}.get(METRICS[name].takes, [1])
    with pytest.raises(InputError, match=r"one value for each example|forecasts and truth must have"):
        METRICS[name].function(truth, other)


BAD = [
    (metrics.rmse, [1.0, np.nan], [1.0, 2.0], r"truth\[1\] is nan"),
    (metrics.pearson, [1.0, np.inf], [1.0, 2.0], r"x\[1\] is inf"),
    (metrics.roc_auc, [1, 2], [0.1, 0.2], "must hold 0 and 1"),
    (metrics.roc_auc, ["yes", "no"], [0.1, 0.2], "must hold 0 and 1"),
    (metrics.log_loss, [1, 0], [2.3, -1.0], "are these logits"),
    (metrics.log_loss, [1, 0], [[0.2, 0.2], [0.5, 0.5]], "those of row 0 sum to 0.4"),
    (metrics.log_loss, [2, 0], [[0.5, 0.5], [0.5, 0.5]], "0 to 1"),
    (metrics.confusion_matrix, [[1, 0]], [[1, 0]], "one label for each example"),
    (metrics.spans, ["PER"], False, "'PER' is no span tag"),
    (metrics.spans, ["O", "X-PER"], False, "word 1: 'X-PER'"),
    (metrics.span_f1, [["O", "O"]], [["O"]], "sentence 0 has 2 tags and 1"),
    (metrics.exact_match, [[]], ["x"], "holds no answer"),
]


@pytest.mark.parametrize(("metric", "truth", "other", "reason"), BAD)
def test_bad_input(metric, truth, other, reason):
    with pytest.raises(InputError, match=reason):
        metric(truth, other)


def test_bad_options():
    with pytest.raises(InputError, match="k must be"):
        metrics.top_k_accuracy([0], [[0.1, 0.9]], 3)
    with pytest.raises(InputError, match="average"):
        metrics.f1([0, 1], [0, 1], "mean")
    with pytest.raises(InputError, match="none of the 2 labels"):
        metrics.confusion_matrix([0, 5], [0, 1], labels=[0, 1])
    with pytest.raises(InputError, match="negative"):
        metrics.accuracy([0, 1], [0, 1], weights=[-1, 1])
    with pytest.raises(Undefined, match="no example counts"):
        metrics.accuracy([0, 1], [0, 1], weights=[0, 0])
    with pytest.raises(Undefined, match="no two values"):
        metrics.mase([1], [1], history=[1, 2], period=12)
    with pytest.raises(ConfigError, match="there is no metric 'auk'"):
        get_metric("auk")


def test_scores_print_the_reason():
    scores = Scores()
    scores.add("auc", metrics.roc_auc, [1, 1], [0.1, 0.2])
    scores.add("accuracy", metrics.accuracy, [1, 1, 0, 1], [1, 1, 0, 0], resamples=200)
    first, second = str(scores).splitlines()
    assert first.split()[:2] == ["auc", "–"] and "both classes" in first
    assert "0.7500" in second and "[" in second
    assert scores.as_json()["auc"] == {
        "value": None,
        "reason": "AUC needs both classes, and all examples are positive",
    }
    assert scores.rows()[1][1] == 0.75 and list(scores) == ["auc", "accuracy"]


def test_value_without_interval():
    score = measure(metrics.cohen_kappa, [1, 0], [1, 0], resamples=100)  # half of the resamples have a single class
    assert score.value == 1.0 and score.low is None and "resamples" in score.reason


def test_register_a_metric():
    @metrics.metric("twice_wrong", takes="labels", higher_is_better=False)
    def twice_wrong(truth, predicted, weights=None):
        return 2 * (1 - metrics.accuracy(truth, predicted, weights))

    try:
        assert get_metric("twice_wrong").better(0.1, than=0.2)
        assert measure(get_metric("twice_wrong").function, [1, 0], [1, 1], resamples=50).value == 1.0
        with pytest.raises(ConfigError, match="already"):
            metrics.metric("twice_wrong", takes="labels")(twice_wrong)
    finally:
        del METRICS["twice_wrong"]
