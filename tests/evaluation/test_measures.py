"""Measures: intervals over units, paired differences, reasons for missing values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassbert.evaluation import Measure, Sample, estimate, mean, rate, undefined
from glassbert.evaluation.comparison import Comparison
from glassbert.evaluation.measures import write
from glassbert.metrics import Undefined, bootstrap


def test_the_interval_is_over_units_and_not_over_tokens():
    generator = np.random.default_rng(0)
    asked = np.full(40, 1000.0)
    right = asked * generator.uniform(0.2, 0.8, 40)  # the rate differs between documents
    found = estimate("accuracy", rate, right, asked, unit="share", resamples=500)
    low, high = found.interval
    assert found.value == pytest.approx(right.sum() / asked.sum())
    assert high - low > 0.05  # forty thousand independent tokens would give 0.01
    assert (low, high) == bootstrap_of(right, asked)


def bootstrap_of(right, asked):
    found = bootstrap(rate, right, asked, resamples=500)
    return found.low, found.high


def test_a_missing_value_has_a_reason():
    nothing = estimate("accuracy", rate, np.zeros(9), np.zeros(9), unit="share")
    assert nothing.value is None and nothing.text == "–" and nothing.range == "the count is 0"
    assert undefined("x", "because").as_json()["reason"] == "because"
    few = estimate("accuracy", rate, [1.0, 2.0], [2.0, 2.0])
    assert few.value == 0.75 and few.interval is None and "too few units" in few.note


def compared(first, second, **fields):
    return Comparison("s", "b", "a", Measure("m", 0.0, **fields), Measure("m", 0.0, **fields), second.minus(first))


def test_paired_differences_are_narrower_than_two_intervals():
    generator = np.random.default_rng(1)
    hard = generator.uniform(0, 1, 60)  # the same units are hard for both
    one, two = (Sample(mean, (hard + shift,), "same") for shift in (0.0, 0.01))
    wide = estimate("m", mean, hard).interval
    assert wide[1] - wide[0] > 0.1
    assert compared(one, two).verdict == "better"
    assert compared(one, two, higher_is_better=False).verdict == "worse"
    assert compared(one, two, higher_is_better=None).verdict == "more"
    noisy = Sample(mean, (hard + generator.normal(0, 0.3, 60),), "same")
    assert compared(one, noisy).verdict == "could be chance"


@pytest.mark.parametrize("other", [Sample(mean, (np.ones(6),), "b"), Sample(mean, (np.ones(7),), "a")])
def test_different_units_are_not_compared(other):
    with pytest.raises(Undefined, match="not about the same units"):
        Sample(mean, (np.ones(6),), "a").minus(other)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.4531, "share", "45.3 %"), (2.8642, "nats", "2.864 nats"), (2_940_608, "", "2.94 M"), (12, "ms", "12 ms"),
     (float("inf"), "", "∞")],
)  # fmt: skip
def test_formatting_of_numbers(value, unit, text):
    assert write(value, unit) == text


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=5, max_size=30))
def test_a_rate_of_whole_counts_is_their_ratio(pairs):
    hits, asked = (np.array(column, float) for column in zip(*pairs, strict=True))
    weights = np.stack([np.ones(len(hits)), np.arange(len(hits)) + 1.0])
    expected = [hits.sum() / asked.sum(), (weights[1] @ hits) / (weights[1] @ asked)]
    np.testing.assert_allclose(rate(hits, asked, weights), expected)


def test_no_difference_of_few_units():
    """One document cannot show that a model is better."""
    one, two = (estimate("loss", mean, [value] * 4, key="text") for value in (4.0, 4.1))
    with pytest.raises(Undefined, match="4 units are too few for an interval"):
        two.sample.minus(one.sample)


def test_rates_of_single_units_have_exact_intervals():
    right = estimate("right", rate, np.ones(34), np.ones(34), unit="share")
    assert right.interval == pytest.approx((0.8972, 1.0), abs=1e-4)
    by_document = estimate("right", rate, np.full(34, 5.0), np.full(34, 5.0), unit="share")  # words of one text
    assert by_document.interval is None and "all resamples" in by_document.note
