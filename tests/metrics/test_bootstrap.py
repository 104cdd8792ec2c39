"""Resampling by weights equals repeating the examples, for every metric; intervals and paired differences."""

import numpy as np
import pytest

from glassbert import metrics
from glassbert.metrics import METRICS, Undefined, bootstrap, paired_difference
from glassbert.metrics.intervals import resample_weights

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def columns(takes, rng, n=25):
    truth = rng.integers(0, 2, n)
    if takes == "labels":
        return truth, rng.integers(0, 2, n)
    if takes == "probabilities":
        return truth, rng.integers(0, 6, n) / 5
    if takes == "numbers":
        return rng.integers(0, 6, n).astype(float), rng.integers(0, 6, n).astype(float)
    if takes == "tags":
        return tuple([[TAGS[i] for i in rng.integers(0, 5, 4)] for _ in range(n)] for _ in range(2))
    words = np.array(["red cat", "a cat", "dog", ""])
    return words[rng.integers(0, 4, n)].tolist(), words[rng.integers(0, 4, n)].tolist()


def pick(column, drawn):
    return column[drawn] if isinstance(column, np.ndarray) else [column[i] for i in drawn]


@pytest.mark.parametrize("name", METRICS)
def test_weights_equal_repeated_examples(name):
    """One row of weights, many rows at once, and repeated examples give the same value."""
    metric = METRICS[name]
    rng = np.random.default_rng(len(name))
    truth, other = columns(metric.takes, rng)
    weights = resample_weights(25, 6, rng)
    weights[5] = 0
    weights[5, 3] = 1  # a single example, for which many metrics are undefined
    values = metric.function(truth, other, weights=weights)
    for row, value in zip(weights, values, strict=True):
        drawn = np.repeat(np.arange(25), row.astype(int))
        try:
            expected = metric.function(pick(truth, drawn), pick(other, drawn))
        except Undefined:
            expected = np.nan
        assert np.isclose(value, expected, equal_nan=True), name
        try:
            assert np.isclose(metric.function(truth, other, weights=row), expected)
        except Undefined:
            assert np.isnan(expected)


def test_interval_matches_the_normal_approximation():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 400)
    guess = np.where(rng.random(400) < 0.8, truth, 1 - truth)
    found = bootstrap(metrics.accuracy, truth, guess)
    p = found.value
    assert found.low < p < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(p * (1 - p) / 400), rel=0.1)
    resampled = bootstrap(metrics.balanced_accuracy, truth, guess)
    assert resampled.high - resampled.low == pytest.approx(found.high - found.low, rel=0.1)
    assert resampled == bootstrap(metrics.balanced_accuracy, truth, guess)
    assert resampled != bootstrap(metrics.balanced_accuracy, truth, guess, seed=1)


def test_resamples_are_computed_in_parts(monkeypatch):
    truth = np.arange(50) % 2
    monkeypatch.setattr("glassbert.metrics.intervals.MAX_WEIGHTS", 120)
    found = bootstrap(metrics.cohen_kappa, truth, np.roll(truth, 1) * (np.arange(50) < 20), resamples=201)
    assert found.resamples == 201 and found.low < found.value < found.high


def test_paired_difference_is_sharper_than_single_intervals():
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, 500)
    first = np.where(rng.random(500) < 0.75, truth, 1 - truth)
    second = first.copy()
    changed = np.flatnonzero(first == truth)[:15]  # the same but for 15 examples
    second[changed] = 1 - truth[changed]
    found = paired_difference(metrics.accuracy, truth, first, second)
    assert found.value == pytest.approx(0.03) and found.low > 0 and found.p < 0.01
    single = bootstrap(metrics.accuracy, truth, first)
    assert single.low < metrics.accuracy(truth, second)
    same = paired_difference(metrics.accuracy, truth, first, first)
    assert same.value == same.low == same.high == 0 and same.p == 1


def test_undefined_resamples_are_counted():
    truth = np.array([1, 0, 0, 0, 0])
    found = bootstrap(metrics.roc_auc, truth, [0.9, 0.1, 0.2, 0.3, 0.95], resamples=500)
    assert 100 < found.undefined < 250  # (4/5)^5 of them have no positive
    with pytest.raises(Undefined, match=r"no interval: .* of 999 resamples have no value"):
        bootstrap(mostly_undefined, np.arange(40), resamples=999)


def mostly_undefined(values, weights=None):
    """Defined only where the first example was drawn at least twice."""
    return 1.0 if weights is None else np.where(weights[:, 0] > 1, 1.0, np.nan)
