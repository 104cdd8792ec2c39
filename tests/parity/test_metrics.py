"""Every metric against scikit-learn, SciPy or seqeval, on random inputs full of ties, gaps and rare labels."""

import warnings

import numpy as np
import pytest
import scipy.stats
import seqeval.metrics
import sklearn.calibration
import sklearn.metrics as theirs
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, IOBES

from glassbert import metrics as ours
from glassbert.metrics import Undefined

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
seeds = st.integers(0, 2**32 - 1)
close = pytest.approx


def defined(function, *args, **options):
    """The value, or None where there is none."""
    try:
        return function(*args, **options)
    except Undefined:
        return None


def labels(seed, count=4, most=40):
    """Truth, prediction and weights; few examples, so that labels are often missing on one side."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most))
    return rng.integers(0, count, n), rng.integers(0, count, n), rng.integers(1, 4, n).astype(float)


def scored(seed, most=40):
    """Binary truth and scores with many ties."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most))
    return rng.integers(0, 2, n), rng.integers(0, 6, n) / 5, rng.integers(1, 4, n).astype(float)


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_labels(seed):
    truth, predicted, weights = labels(seed)
    for w in (None, weights):
        assert ours.accuracy(truth, predicted, weights=w) == close(
            theirs.accuracy_score(truth, predicted, sample_weight=w)
        )
        assert ours.balanced_accuracy(truth, predicted, weights=w) == close(
            theirs.balanced_accuracy_score(truth, predicted, sample_weight=w)
        )
        assert np.allclose(
            ours.confusion_matrix(truth, predicted, range(4), w),
            theirs.confusion_matrix(truth, predicted, labels=range(4), sample_weight=w),
        )
        for average in ("micro", "macro", "weighted"):
            for mine, other in (
                (ours.precision, theirs.precision_score),
                (ours.recall, theirs.recall_score),
                (ours.f1, theirs.f1_score),
            ):
                assert mine(truth, predicted, average, weights=w) == close(
                    other(truth, predicted, average=average, zero_division=0, sample_weight=w)
                )
        matthews = defined(ours.matthews_correlation, truth, predicted, weights=w)
        if matthews is None:
            assert len(set(truth)) == 1 or len(set(predicted)) == 1
        else:
            assert matthews == close(theirs.matthews_corrcoef(truth, predicted, sample_weight=w), abs=1e-12)
        for price in (None, "linear", "quadratic"):
            kappa = defined(ours.cohen_kappa, truth, predicted, price, weights=w)
            reference = theirs.cohen_kappa_score(truth, predicted, weights=price, sample_weight=w)
            assert (kappa is None) == bool(np.isnan(reference))
            if kappa is not None:
                assert kappa == close(reference, abs=1e-12)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_binary_and_per_label(seed):
    truth, predicted, weights = labels(seed, 3)
    counts = ours.count_labels(truth, predicted, range(3), weights)
    reference = theirs.precision_recall_fscore_support(
        truth, predicted, labels=range(3), sample_weight=weights, zero_division=np.nan
    )
    for metric, expected in zip(("precision", "recall", "f1"), reference, strict=False):
        assert np.allclose(counts.per_label(metric), expected, equal_nan=True)
    assert np.allclose(counts.support, reference[3])
    for mine, other in ((ours.precision, theirs.precision_score), (ours.recall, theirs.recall_score)):
        value = defined(mine, truth == 1, predicted == 1, positive=True)
        expected = other(truth == 1, predicted == 1, zero_division=np.nan)
        assert (value is None) == bool(np.isnan(expected))
        assert value is None or value == close(expected)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_multilabel(seed):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 20)), 4)
    truth, predicted = rng.random(shape) < 0.3, rng.random(shape) < 0.3
    weights = rng.integers(1, 4, shape[0]).astype(float)
    assert ours.accuracy(truth, predicted, weights) == close(
        theirs.accuracy_score(truth, predicted, sample_weight=weights)
    )
    value = defined(ours.f1, truth, predicted, "micro", weights=weights)
    if value is not None:
        assert value == close(theirs.f1_score(truth, predicted, average="micro", sample_weight=weights))
    counts = ours.count_labels(truth, predicted, weights=weights)
    if counts.occurring.all():  # sklearn counts labels that nobody has or claims as zeros
        assert counts.average("f1", "macro") == close(
            theirs.f1_score(truth, predicted, average="macro", sample_weight=weights)
        )


@given(seeds)
@settings(max_examples=80, deadline=None)
def test_ranking(seed):
    truth, scores, weights = scored(seed)
    for w in (None, weights):
        auc = defined(ours.roc_auc, truth, scores, weights=w)
        assert (auc is None) == (len(set(truth)) == 1)
        if auc is not None:
            assert auc == close(theirs.roc_auc_score(truth, scores, sample_weight=w))
        precision = defined(ours.average_precision, truth, scores, weights=w)
        assert (precision is None) == (not truth.any())
        if precision is not None:
            assert precision == close(theirs.average_precision_score(truth, scores, sample_weight=w))
    if len(set(truth)) == 2:
        curve = ours.roc_curve(truth, scores)
        expected = theirs.roc_curve(truth, scores, drop_intermediate=False)
        for mine, other in zip(
            (curve.false_positive_rate, curve.true_positive_rate, curve.thresholds), expected, strict=True
        ):
            assert np.allclose(mine, other)
        precisions, recalls, thresholds = theirs.precision_recall_curve(truth, scores)
        found = ours.precision_recall_curve(truth, scores)
        assert np.allclose(found.precision, precisions[:-1][::-1])
        assert np.allclose(found.recall, recalls[:-1][::-1])
        assert np.allclose(found.thresholds, thresholds[::-1])


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_top_k(seed):
    rng = np.random.default_rng(seed)
    truth, scores = rng.integers(0, 5, 30), rng.normal(size=(30, 5))
    for k in (1, 2, 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = theirs.top_k_accuracy_score(truth, scores, k=k, labels=range(5))
        assert ours.top_k_accuracy(truth, scores, k) == close(expected)


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_probabilities(seed):
    truth, p, weights = scored(seed)
    assert ours.log_loss(truth, p, weights) == close(
        theirs.log_loss(truth, p, labels=[0, 1], sample_weight=weights), rel=1e-9
    )
    assert ours.brier_score(truth, p, weights) == close(
        theirs.brier_score_loss(truth, p, sample_weight=weights, labels=[0, 1]), abs=1e-12
    )
    for strategy in ("uniform", "quantile"):
        curve = ours.calibration_curve(truth, p, 5, strategy)
        came_true, confidence = sklearn.calibration.calibration_curve(truth, p, n_bins=5, strategy=strategy)
        assert np.allclose(curve.observed, came_true) and np.allclose(curve.confidence, confidence)
        error = ours.expected_calibration_error(truth, p, 5, strategy)
        assert error == close((curve.counts * abs(came_true - confidence)).sum() / len(truth), abs=1e-12)
    rng = np.random.default_rng(seed)
    several = rng.dirichlet([0.3] * 4, len(truth))
    columns = rng.integers(0, 4, len(truth))
    assert ours.log_loss(columns, several) == close(theirs.log_loss(columns, several, labels=range(4)), rel=1e-9)
    assert ours.brier_score(columns, several) == close(
        theirs.brier_score_loss(columns, several, labels=range(4), scale_by_half=False)
    )


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_temperature_is_the_minimum(seed):
    from scipy.optimize import minimize_scalar

    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(60, 4)) * rng.uniform(0.5, 8)
    truth = np.where(rng.random(60) < 0.6, logits.argmax(1), rng.integers(0, 4, 60))

    def loss(log_temperature):
        z = logits / np.exp(log_temperature)
        return -scipy.special.log_softmax(z, 1)[np.arange(60), truth].mean()

    found = defined(ours.fit_temperature, truth, logits)
    if found is not None:
        best = minimize_scalar(loss, bounds=(-6.9, 6.9), method="bounded", options={"xatol": 1e-10})
        assert loss(np.log(found)) <= best.fun + 1e-12
        assert found == close(np.exp(best.x), rel=1e-4)


@given(seeds)
@settings(max_examples=80, deadline=None)
def test_numbers(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    x = rng.integers(0, 5, n) * rng.choice([0.1, 1.0, 1e6])
    y = np.where(rng.random(n) < 0.5, x, rng.integers(0, 4, n))
    w = rng.integers(1, 4, n).astype(float)
    assert ours.rmse(x, y, w) == close(theirs.root_mean_squared_error(x, y, sample_weight=w))
    assert ours.mae(x, y, w) == close(theirs.mean_absolute_error(x, y, sample_weight=w))
    r2 = defined(ours.r2, x, y, w)
    assert (r2 is None) == (len(set(x)) == 1)
    assert r2 is None or r2 == close(theirs.r2_score(x, y, sample_weight=w), abs=1e-9)
    for mine, other in (
        (ours.pearson, scipy.stats.pearsonr),
        (ours.spearman, scipy.stats.spearmanr),
        (ours.kendall, scipy.stats.kendalltau),
    ):
        value = defined(mine, x, y)
        assert (value is None) == (len(set(x)) == 1 or len(set(y)) == 1)
        if value is not None:
            assert value == close(other(x, y).statistic, abs=1e-9)
            twice = np.repeat(x, w.astype(int)), np.repeat(y, w.astype(int))
            assert mine(x, y, w) == close(other(*twice).statistic, abs=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_kendall_of_many(size):
    rng = np.random.default_rng(size)
    x, y = rng.normal(size=size), rng.normal(size=size)
    value = defined(ours.kendall, x, y)
    assert value == (None if size == 1 else close(scipy.stats.kendalltau(x, y).statistic, abs=1e-12))


def tag_lists(letters):
    tag = st.one_of(
        st.just("O"), st.builds("{}-{}".format, st.sampled_from(letters), st.sampled_from(["PER", "LOC-x"]))
    )
    return st.lists(st.lists(st.tuples(tag, tag), max_size=7), min_size=1, max_size=5)


@given(tag_lists("BI") | tag_lists("BIES"))
@settings(max_examples=150, deadline=None)
def test_spans_of_nonsense(sentences):
    truth = [[a for a, _ in sentence] for sentence in sentences]
    predicted = [[b for _, b in sentence] for sentence in sentences]
    for tags in truth:
        expected = [(kind, start, end + 1) for kind, start, end in get_entities(tags)]
        assert [tuple(span) for span in ours.spans(tags)] == expected
    counts = defined(ours.count_spans, truth, predicted)
    if counts is None:
        assert not any(get_entities(tags) for tags in truth + predicted)
        return
    options = {"zero_division": 0}
    for average in ("micro", "macro", "weighted"):
        for metric, reference in (
            ("precision", seqeval.metrics.precision_score),
            ("recall", seqeval.metrics.recall_score),
            ("f1", seqeval.metrics.f1_score),
        ):
            try:
                value = counts.average(metric, average)
            except Undefined:
                value = 0.0
            assert value == close(reference(truth, predicted, average=average, **options)), (metric, average)


@pytest.mark.parametrize(("letters", "scheme"), [("BI", IOB2), ("BIES", IOBES)])
def test_strict_spans(letters, scheme):
    @given(tag_lists(letters))
    @settings(max_examples=150, deadline=None)
    def check(sentences):
        truth = [[a for a, _ in sentence] for sentence in sentences if sentence]
        predicted = [[b for _, b in sentence] for sentence in sentences if sentence]
        if letters == "BIES":  # one whole span, so that both sides are seen to mark ends
            truth, predicted = [*truth, ["S-PER"]], [*predicted, ["S-PER"]]
        value = defined(ours.span_f1, truth, predicted, strict=True) if truth else None
        if value is not None:
            expected = seqeval.metrics.f1_score(truth, predicted, mode="strict", scheme=scheme, zero_division=0)
            assert value == close(expected)

    check()


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_thresholds(seed):
    truth, scores, _ = scored(seed)
    found = ours.tune_thresholds(truth, scores)
    cuts = [*np.unique(scores), 2.0]
    best = max(theirs.f1_score(truth, scores >= cut, zero_division=0) for cut in cuts)
    if truth.any():
        mine = theirs.f1_score(truth, found.apply(scores[:, None])[:, 0], zero_division=0)
        assert mine == close(best) == close(float(found.f1[0]))
    else:
        assert found.values[0] == 0.5 and found.notes


@pytest.mark.parametrize("name", ["accuracy", "matthews", "auc", "spearman", "rmse", "average_precision"])
def test_bootstrap_bounds(name):
    """The same interval as SciPy's percentile bootstrap, up to its own chance."""
    rng = np.random.default_rng(3)
    metric = ours.get_metric(name)
    truth = rng.integers(0, 2, 150)
    other = (
        truth + rng.normal(size=150) if metric.takes != "labels" else np.where(rng.random(150) < 0.8, truth, 1 - truth)
    )
    mine = ours.bootstrap(metric.function, truth, other, resamples=4000)
    result = scipy.stats.bootstrap(
        (truth, other),
        lambda a, b: metric.function(a, b),
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=1500,
        rng=np.random.default_rng(4),
    )
    width = mine.high - mine.low
    assert mine.low == close(result.confidence_interval.low, abs=0.1 * width)
    assert mine.high == close(result.confidence_interval.high, abs=0.1 * width)
