"""Intervals of shares: known values, coverage by simulation, and what is said where no interval exists."""

import math
from functools import partial

import numpy as np
import pytest

from glassbert import metrics
from glassbert.errors import InputError
from glassbert.metrics import Undefined, bootstrap, exact_interval, measure
from glassbert.metrics.intervals import resample_weights


@pytest.mark.parametrize(
    ("hits", "count", "level", "low", "high"),
    [  # scipy.stats.binomtest(hits, count).proportion_ci(level, method="exact")
        (34, 34, 0.95, 0.8971820757409873, 1.0),
        (0, 34, 0.95, 0.0, 0.1028179242590127),
        (33, 34, 0.95, 0.8467323304396823, 0.9992556357652834),
        (8, 10, 0.95, 0.4439045376923585, 0.9747892736731665),
        (81, 263, 0.95, 0.25273674558504267, 0.36762192260134746),
        (1, 29, 0.9, 0.0017671710005495393, 0.1533920245256886),
        (50, 100, 0.9, 0.4136217146309117, 0.5863782853690883),
        (60000, 67349, 0.95, 0.8885028096497551, 0.8932271036876048),
        (3, 1000000, 0.99, 3.378636695261169e-07, 1.0977433719255259e-05),
    ],
)
def test_exact_interval(hits, count, level, low, high):
    assert exact_interval(hits, count, level) == pytest.approx((low, high), rel=1e-7)


def test_interval_solves_its_equations():
    """P(X ≥ k | low) = P(X ≤ k | high) = 2.5 %, by summing the binomial distribution."""
    for hits, count in ((3, 17), (16, 17), (1, 400), (250, 400)):
        low, high = exact_interval(hits, count)
        chances = [[math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)] for p in (low, high)]
        assert sum(chances[0][hits:]) == pytest.approx(0.025) and sum(chances[1][: hits + 1]) == pytest.approx(0.025)


def test_bad_counts():
    for hits, count in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(InputError, match="a share needs"):
            exact_interval(hits, count)


RIGHT = np.arange(34) % 2


@pytest.mark.parametrize(
    ("metric", "columns", "count"),
    [
        (metrics.accuracy, (RIGHT, RIGHT), 34),
        (metrics.precision, (RIGHT, RIGHT), 17),
        (metrics.recall, (RIGHT, RIGHT), 17),
        (metrics.roc_auc, (RIGHT, RIGHT / 2), 17),
        (metrics.exact_match, ([["a dog"]] * 34, ["A dog"] * 34), 34),
    ],
)
def test_interval_at_the_ceiling(metric, columns, count):
    found = bootstrap(metric, *columns)
    assert (found.value, found.high, found.resamples) == (1, 1, 0)
    assert found.low == pytest.approx(0.025 ** (1 / count))


def test_no_interval_of_rounding_errors():
    with pytest.raises(Undefined, match="all resamples"):
        bootstrap(metrics.brier_score, RIGHT, np.where(RIGHT, 0.9, 0.1))


def test_f1_is_a_function_of_a_share():
    truth, guess = np.array([1] * 10 + [0] * 30), np.array([1] * 8 + [0] * 2 + [1] * 3 + [0] * 27)
    found = bootstrap(metrics.f1, truth, guess)
    low, high = exact_interval(8, 13)
    assert found.value == pytest.approx(16 / 21) and found.low == pytest.approx(2 * low / (1 + low))
    assert found.high == pytest.approx(2 * high / (1 + high))
    assert bootstrap(metrics.f1, RIGHT, RIGHT).low == pytest.approx(2 * 0.025 ** (1 / 17) / (1 + 0.025 ** (1 / 17)))
    named = np.where(truth, "yes", "no"), np.where(guess, "yes", "no")
    assert bootstrap(metrics.f1, *named, positive="yes").low == found.low


@pytest.mark.parametrize(
    "metric", [metrics.matthews_correlation, metrics.cohen_kappa, partial(metrics.f1, average="macro")]
)
def test_no_interval_without_spread(metric):
    """Resamples of a perfect result are all perfect: the reason stands in place of "1.0000 to 1.0000"."""
    with pytest.raises(Undefined, match="all resamples of the 34 examples have this value"):
        bootstrap(metric, RIGHT, RIGHT)
    score = measure(metric, RIGHT, RIGHT, resamples=100)
    assert score.value == 1 and score.low is None and score.reason.startswith("no interval")


@pytest.mark.parametrize(("share", "count"), [(0.97, 34), (0.995, 34), (0.9, 20), (0.6, 50)])
def test_coverage_of_counts_and_of_resampling(share, count):
    """Of samples with a known share, at least 95 % of the intervals contain it; near 1 resampling fails."""
    generator = np.random.default_rng(5)
    hits = generator.binomial(count, share, 2000)
    exact = {k: exact_interval(k, count) for k in set(hits.tolist())}
    covered = np.mean([exact[k][0] <= share <= exact[k][1] for k in hits.tolist()])
    assert covered >= 0.945  # 2,000 samples: 0.95 less one standard error
    if share > 0.95:
        weights = resample_weights(count, 400, generator)
        ends = {k: np.quantile(weights @ (np.arange(count) < k) / count, [0.025, 0.975]) for k in set(hits.tolist())}
        resampled = np.mean([ends[k][0] <= share <= ends[k][1] for k in hits.tolist()])
        assert resampled < 0.7


def test_coverage_of_the_auc_bound():
    """Where all pairs are in order, the low end is below the true AUC in at least 97.5 % of all samples."""
    generator = np.random.default_rng(6)
    auc, missed = 0.9214, 0  # Φ(2 / √2) for unit normals 2 apart
    for _ in range(1500):
        truth = np.arange(16) % 2
        scores = generator.standard_normal(16) + 2.0 * truth
        if metrics.roc_auc(truth, scores) == 1:
            missed += bootstrap(metrics.roc_auc, truth, scores).low > auc
    assert missed == 0
