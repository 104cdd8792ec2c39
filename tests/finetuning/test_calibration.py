"""Calibration: fitted temperatures, cross-fitted scores, and reasons if no temperature is used."""

import numpy as np
import pytest

from glassbert.finetuning.calibration import calibrate
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome, choices, probabilities
from glassbert.metrics import Scores, fit_scaling, fit_temperature
from glassbert.ops.losses import sigmoid
from glassbert.tasks import TaskData

N = 4000


def outcome(head, truth, outputs, labels, metric=""):
    rows = TaskData.of([{"text": "a", "y": "0"}] * len(truth), text="text", target="y")
    return Outcome(TaskCard(title="toy", head=head, labels=labels, metric=metric), rows, truth, outputs, Scores())


def calibrated_logits(generator, shape):
    return generator.normal(0, 2, shape)


def test_finds_a_temperature_of_three_for_binary():
    generator = np.random.default_rng(0)
    z = calibrated_logits(generator, N)
    truth = (generator.random(N) < sigmoid(z)).astype(np.int64)
    found = calibrate(outcome("binary", truth, 3 * z, ("no", "yes")))
    assert found.temperature == pytest.approx(3, rel=0.1)
    assert found.before.ece.value > 0.08 > 0.03 > found.after.ece.value
    assert found.after.log_loss.value < found.before.log_loss.value and found.thresholds is None
    assert found.apply_to(TaskCard(title="t", head="binary", labels=("no", "yes"))).temperature == found.temperature


def test_ordinal_token_and_multilabel_temperature():
    generator = np.random.default_rng(1)
    z = calibrated_logits(generator, (N, 3))
    passed = generator.random((N, 3)) < sigmoid(z)
    ranks = np.cumprod(passed, 1).sum(1)
    ordinal = outcome("ordinal", ranks, 2 * z, tuple("1234"), "mae")
    alone = calibrate(ordinal)  # a temperature moves the median, so the reported examples do not fit one
    assert alone.temperature is None and "other ranks" in alone.reason and not alone.calibrated
    found = calibrate(ordinal, bias=True)
    card = found.apply_to(ordinal.card)
    cumulative = np.cumsum(probabilities(ordinal.outputs, card), 1)
    answers = choices(ordinal.outputs, card)
    assert (answers == (cumulative < 0.5).sum(1)).all()  # the answer is the median of the probabilities shown
    assert (answers != choices(ordinal.outputs, ordinal.card)).any()
    assert found.temperature == pytest.approx(2, rel=0.1) and found.after.ece.value < found.before.ece.value
    found = calibrate(outcome("multilabel", passed.astype(np.float32), 2 * z, tuple("abc")))
    assert found.temperature == pytest.approx(2, rel=0.1) and len(found.thresholds) == 3
    classes = (z + generator.gumbel(size=z.shape)).argmax(1)
    sentences = np.split(2 * z, 40), np.split(classes, 40)
    found = calibrate(outcome("token", list(sentences[1]), list(sentences[0]), tuple("abc")))
    assert found.temperature == pytest.approx(2, rel=0.1) and found.after.ece.value < found.before.ece.value


def test_scores_are_cross_fitted():
    """Even rows are overconfident by 4, odd rows are calibrated: each half gets the wrong temperature."""
    generator = np.random.default_rng(2)
    z = calibrated_logits(generator, N)
    truth = (generator.random(N) < sigmoid(z)).astype(np.int64)
    odd = np.arange(N) % 2 == 1
    found = calibrate(outcome("binary", truth, np.where(odd, z, 4 * z), ("no", "yes")))
    by_half = [fit_temperature(truth[part], np.where(odd, z, 4 * z)[part]) for part in (~odd, odd)]
    assert by_half[0] == pytest.approx(4, rel=0.15) and by_half[1] == pytest.approx(1, rel=0.15)
    assert "does not lower the log loss" in found.reason  # fitted on its own rows the loss could only fall


@pytest.mark.parametrize(
    ("truth", "outputs", "reason"),
    [
        (np.array([0, 1] * 30), np.array([-2.0, 2.0] * 30), "every example is right"),
        (np.array([0, 1] * 30), np.array([2.0, -2.0] * 30), "no better than chance"),
        (np.array([0, 1] * 30), np.zeros(60), "alike"),
        (np.array([0, 1, 1, 0, 1, 0]), np.array([-1.0, 1, 0.5, 1, -0.5, -2]), "too few"),
    ],
)
def test_reason_if_no_temperature_fits(truth, outputs, reason):
    found = calibrate(outcome("binary", truth, outputs, ("no", "yes")))
    assert found.temperature is None and reason in found.reason and found.before is not None and found.after is None
    assert found.as_json()["temperature"] is None


def test_regression_has_no_probabilities():
    found = calibrate(outcome("regression", np.zeros(3), np.zeros(3), ()))
    assert found.temperature is None and "no probabilities" in found.reason


def test_thresholds_are_tuned_on_calibrated_probabilities():
    generator = np.random.default_rng(3)
    z = calibrated_logits(generator, (N, 2)) - 1
    truth = (generator.random((N, 2)) < sigmoid(z)).astype(np.float32)
    given = outcome("multilabel", truth, 5 * z, ("a", "b"))
    finished = calibrate(given).apply_to(given.card)
    chances = sigmoid(5 * z / finished.temperature)

    def f1(cut):
        claimed = chances[:, 0] >= cut
        return 2 * (claimed & (truth[:, 0] == 1)).sum() / (claimed.sum() + truth[:, 0].sum())

    assert f1(finished.thresholds[0]) >= max(f1(cut) for cut in np.linspace(0.05, 0.95, 19)) - 1e-9


def test_temperature_without_gain_is_not_used():
    generator = np.random.default_rng(4)
    found = []
    for seed in range(8):
        z = calibrated_logits(np.random.default_rng(seed), 60)
        found.append(calibrate(outcome("binary", (generator.random(60) < sigmoid(z)).astype(int), z, ("no", "yes"))))
    kept = [one for one in found if one.temperature is not None]
    left = [one for one in found if one.temperature is None]
    assert left and all("does not lower the log loss" in one.reason and one.after is None for one in left)
    assert all(one.after.log_loss.value < one.before.log_loss.value for one in kept)


def test_ordinal_answers_and_probabilities_agree():
    """Reported examples get no temperature; with other examples, answers are medians of the calibrated ranks."""
    generator = np.random.default_rng(5)
    z = calibrated_logits(generator, (N, 3))
    ranks = np.cumprod(generator.random((N, 3)) < sigmoid(z), 1).sum(1)
    given = outcome("ordinal", ranks, 3 * z, tuple("1234"), "mae")
    for one in (given, apart(given)):
        found = calibrate(one)
        assert (found.temperature is not None) == one.card.chosen_apart
        finished = Outcome(found.apply_to(one.card), given.data, ranks, given.outputs, Scores())
        for answer, row in zip(finished.choices(), finished.probabilities(), strict=True):
            assert row[: answer + 1].sum() >= 0.5 and row[answer:].sum() >= 0.5


def apart(found):
    """The outcome of a run that reports other examples than those that choose."""
    return Outcome(found.card.replace(chosen_on="other"), found.data, found.truth, found.outputs, found.scores)


def test_bias_of_binary_and_multiclass_is_found_if_other_examples_are_reported():
    generator = np.random.default_rng(3)
    z = calibrated_logits(generator, N)
    truth = (generator.random(N) < sigmoid(z)).astype(np.int64)
    shifted = outcome("binary", truth, 2 * (z - 1.5), ("no", "yes"))
    found = calibrate(apart(shifted))
    assert found.temperature == pytest.approx(2, rel=0.1) and found.bias[0] == pytest.approx(1.5, rel=0.15)
    assert calibrate(shifted).bias is None  # the answers that were scored must not change
    scores = calibrated_logits(generator, (N, 3))
    classes = (scores + generator.gumbel(size=scores.shape)).argmax(1)
    found = calibrate(apart(outcome("multiclass", classes, 3 * (scores - [0.0, 1.0, 2.0]), tuple("abc"))))
    np.testing.assert_allclose(found.bias, [-1.0, 0.0, 1.0], atol=0.15)
    assert found.temperature == pytest.approx(3, rel=0.1)


def test_bias_decides_the_answers_of_the_card():
    card = TaskCard(title="t", head="binary", labels=("no", "yes"), temperature=2.0, bias=(1.0,))
    assert choices(np.array([-1.9, -2.1]), card).tolist() == [1, 0]
    np.testing.assert_allclose(probabilities(np.array([-2.0]), card), [0.5])
    classes = TaskCard(title="t", head="multiclass", labels=tuple("abc"), bias=(0.0, 0.0, 3.0))
    assert choices(np.array([[2.0, 1.0, 0.0]]), classes).tolist() == [2]
    assert TaskCard.from_json(classes.as_json()).bias == (0.0, 0.0, 3.0)


def test_calibrated_is_said_only_where_it_is():
    """Fitted on overconfident logits, evaluated on calibrated ones: the correction makes those worse."""
    generator = np.random.default_rng(4)
    z = calibrated_logits(generator, N)
    truth = (generator.random(N) < sigmoid(z)).astype(np.int64)
    fitted = calibrate(apart(outcome("binary", truth, 3 * z, ("no", "yes"))))
    assert fitted.measured_on(outcome("binary", truth, 3 * z, ("no", "yes"))).calibrated
    worse = fitted.measured_on(outcome("binary", truth, z, ("no", "yes")))
    assert worse.apart and not worse.calibrated and worse.as_json()["calibrated"] is False


def test_rare_class_gets_a_finite_bias():
    temperature, bias = fit_scaling([0, 1, 0, 1, 0, 1, 0, 0], np.random.default_rng(0).normal(size=(8, 3)))
    assert np.isfinite(bias).all() and abs(bias.sum()) < 1e-9 and temperature > 0
