"""Ranks for quadratic kappa: predicted ranks get the mean and the spread of the true ones."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glassbert.errors import ConfigError
from glassbert.finetuning.card import TaskCard, choice_sentence
from glassbert.finetuning.ranks import cross_fitted_ranks, fit_cuts, mean_ranks, median_ranks, ranks_by_cuts
from glassbert.finetuning.scoring import compute_scores
from glassbert.metrics import quadratic_weighted_kappa

LABELS = tuple("1234567")


def cautious_model(n=4_000, ranks=7, seed=0):
    """True ranks, and probabilities of a model that knows half of what makes them: narrow around the middle."""
    generator = np.random.default_rng(seed)
    known, unknown = generator.normal(size=(2, n))
    truth = np.clip(np.rint(3 + known + unknown), 0, ranks - 1).astype(np.int64)
    distance = (np.arange(ranks) - (3 + known)[:, None]) / 1.0
    likely = np.exp(-0.5 * distance**2)
    return truth, likely / likely.sum(1, keepdims=True)


def steps_of(probabilities):
    """Logits of the steps of an ordinal head with these probabilities."""
    at_least = np.cumsum(probabilities[:, ::-1], 1)[:, ::-1]
    passed = np.clip(at_least[:, 1:] / at_least[:, :-1], 1e-9, 1 - 1e-9)
    return np.log(passed / (1 - passed))


def test_cuts_give_mean_and_spread_of_the_truth_and_raise_kappa():
    truth, probs = cautious_model()
    ranks = ranks_by_cuts(probs, fit_cuts(truth, probs))
    assert ranks.mean() == pytest.approx(truth.mean(), abs=0.05) and ranks.std() == pytest.approx(truth.std(), rel=0.05)
    median = median_ranks(probs)
    assert median.std() < 0.8 * truth.std()
    kappa = quadratic_weighted_kappa(truth, ranks)
    assert kappa > quadratic_weighted_kappa(truth, median) + 0.02
    assert kappa == pytest.approx(np.corrcoef(truth, mean_ranks(probs))[0, 1], abs=0.03)  # the bound
    assert np.abs(median - truth).mean() < np.abs(ranks - truth).mean()  # what the median is better for


def test_cuts_hold_for_other_examples():
    cuts = fit_cuts(*cautious_model(seed=1))
    truth, probs = cautious_model(seed=2)
    found = quadratic_weighted_kappa(truth, ranks_by_cuts(probs, cuts))
    assert found > quadratic_weighted_kappa(truth, median_ranks(probs)) + 0.02
    crossed = quadratic_weighted_kappa(truth, cross_fitted_ranks(truth, probs))
    assert crossed == pytest.approx(found, abs=0.01)


@pytest.mark.parametrize(
    "truth, probs",
    [
        ([], np.empty((0, 4))),
        ([2, 2, 2], np.eye(4)[[0, 1, 2]]),  # one true rank
        ([0, 1, 2], np.full((3, 4), 0.25)),  # one prediction
        ([0, 1, 2], np.eye(4)[[2, 1, 0]]),  # the wrong way round
    ],
)
def test_where_nothing_can_be_fitted_the_mean_is_rounded(truth, probs):
    assert fit_cuts(np.array(truth, np.int64), probs) == (0.5, 1.5, 2.5)


def test_few_examples_move_the_cuts_little():
    truth, probs = cautious_model()
    few, many = (np.array(fit_cuts(truth[:n], probs[:n])) for n in (6, 4_000))
    rounding = np.arange(6) + 0.5
    assert np.abs(few - rounding).max() < np.abs(many - rounding).max()


def test_a_half_is_not_fitted_on_itself():
    truth, probs = cautious_model(400)
    changed = truth.copy()
    changed[::2] = 0
    np.testing.assert_array_equal(cross_fitted_ranks(truth, probs)[::2], cross_fitted_ranks(changed, probs)[::2])
    assert (cross_fitted_ranks(truth, probs)[1::2] != cross_fitted_ranks(changed, probs)[1::2]).any()


@given(
    arrays(np.float64, st.tuples(st.integers(1, 12), st.just(4)), elements=st.floats(0.01, 1)),
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
)
def test_any_predictions_give_ranks_that_exist(weights, truth):
    probs, truth = weights / weights.sum(1, keepdims=True), np.array(truth[: len(weights)])
    cuts = fit_cuts(truth, probs)
    assert len(cuts) == 3 and list(cuts) == sorted(cuts) and np.isfinite(cuts).all()
    for ranks in (ranks_by_cuts(probs, cuts), cross_fitted_ranks(truth, probs), median_ranks(probs)):
        assert ranks.shape == truth.shape and ((ranks >= 0) & (ranks <= 3)).all()


def test_the_metric_decides():
    truth, probs = cautious_model(1_000)
    steps = steps_of(probs)
    for_kappa = TaskCard(title="t", head="ordinal", labels=LABELS)
    for_errors = for_kappa.replace(metric="mae")
    kappa, errors = (compute_scores(steps, truth, card) for card in (for_kappa, for_errors))
    assert kappa["quadratic_kappa"].value > errors["quadratic_kappa"].value
    assert kappa["mae"].value > errors["mae"].value
    assert for_kappa.needs_cuts and not for_errors.needs_cuts
    assert "Borders between ranks" in choice_sentence(for_kappa) and "ranks" not in choice_sentence(for_errors)


def test_a_card_keeps_its_cuts(tmp_path):
    card = TaskCard(title="t", head="ordinal", labels=("low", "mid", "high"), cuts=(0.25, 1.0))
    card.save(tmp_path)
    assert TaskCard.load(tmp_path) == card and card.uncalibrated.cuts is None
    content = json.loads((tmp_path / "task.json").read_text())
    del content["cuts"]  # as older cards
    assert TaskCard.from_json(content).cuts is None


@pytest.mark.parametrize(
    "head, cuts, message",
    [
        ("ordinal", (0.5,), "2 for an ordinal head with these labels; got 1"),
        ("ordinal", (1.5, 0.5), "rising numbers"),
        ("ordinal", (0.5, float("nan")), "rising numbers"),
        ("ordinal", "ab", "rising numbers"),
        ("multiclass", (0.5, 1.5), "with the head multiclass"),
    ],
)
def test_cuts_that_do_not_fit_are_refused(head, cuts, message):
    with pytest.raises(ConfigError, match=message):
        TaskCard(title="t", head=head, labels=("low", "mid", "high"), cuts=cuts)
