"""The law: recovered from synthetic points, coverage of its intervals, and refusal where there is none."""

import numpy as np
import pytest

from glassbert.evaluation.scaling.law import POWER_RANGE, SEED_NOISE, SHAPE_NOISE, expected_distance, fit_law
from glassbert.metrics import Undefined

SIZES = np.array([50e3, 224e3, 397e3, 928e3, 1.34e6])
TOKENS = np.full(5, 2e6)


def law_of(floor, scale, power, sizes=SIZES):
    return floor + scale * (sizes / sizes[0]) ** -power


def single(losses):
    return [[loss] for loss in losses]


def test_a_law_without_noise_predicts_the_next_size():
    true = law_of(3.0, 3.5, 0.35)
    found = fit_law(SIZES[:4], TOKENS[:4], single(true[:4]))
    predicted = found.predict(SIZES[4], 2e6)
    assert abs(predicted.middle - true[4]) < 0.01 and true[4] in predicted
    assert abs(found.at(np.array([[SIZES[4], 2e6]]))[0] - true[4]) < 0.005
    assert 3.0 in found.range_of(found.floor) and 0.35 in found.range_of(found.powers[:, 0])
    assert abs(found.residuals).max() < 0.002


def test_many_points_without_noise_recover_the_law(monkeypatch):
    monkeypatch.setattr("glassbert.evaluation.scaling.law.SHAPE_NOISE", 1e-3)
    monkeypatch.setattr("glassbert.evaluation.scaling.law.SEED_NOISE", 1e-3)
    sizes = np.geomspace(1e4, 1e8, 12)
    found = fit_law(sizes, np.ones(12), single(law_of(2.0, 5.0, 0.5, sizes)))
    floor, powers, _ = found.best
    assert abs(floor - 2.0) < 0.02 and abs(powers[0] - 0.5) < 0.02
    assert found.knows_power(0)


def studies(count, seed, repeats):
    """Synthetic studies with different laws and noise; the last size is to be predicted."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        floor, power, first = generator.uniform(1, 3.5), generator.uniform(0.1, 0.7), generator.uniform(4.5, 6.5)
        true = law_of(floor, first - floor, power)
        departure, noise = generator.uniform(0.001, 0.006, 2) * true.mean()
        centres = true + departure * generator.standard_normal(5)
        runs = [1 + repeats, 1, 1, 1, 1]
        yield [list(c + noise * generator.standard_normal(n)) for c, n in zip(centres, runs, strict=True)]


@pytest.mark.parametrize("repeats", [0, 2])
def test_the_intervals_have_the_right_coverage(repeats):
    inside, defined = 0, 0
    for losses in studies(250, 7, repeats):
        try:
            predicted = fit_law(SIZES[:4], TOKENS[:4], losses[:4]).predict(SIZES[4], 2e6)
        except Undefined:
            continue
        defined += 1
        inside += losses[4][0] in predicted
    assert defined > 230
    assert 0.85 <= inside / defined <= 0.97


def test_a_grid_of_sizes_and_tokens():
    generator = np.random.default_rng(3)
    sizes, tokens = np.repeat(SIZES, 3), np.tile([1e6, 2e6, 4e6], 5)
    inside = 0
    for trial in range(12):
        power, other = generator.uniform(0.2, 0.7, 2)
        true = 2.5 + 2.0 * (sizes / SIZES[0]) ** -power + 1.5 * (tokens / 1e6) ** -other
        seen = single(true + 0.015 * generator.standard_normal(15))
        found = fit_law(sizes[:12], tokens[:12], seen[:12], seed=trial)
        assert found.names == ("parameters", "tokens")
        inside += seen[14][0] in found.predict(SIZES[4], 4e6)
        assert found.predict(SIZES[4], 4e6).middle < found.predict(SIZES[4], 1e6).middle
    assert inside >= 9


def test_more_noise_between_seeds_makes_wider_intervals():
    true = law_of(3.0, 3.5, 0.35)[:4]
    quiet = [[true[0] - 0.002, true[0] + 0.002], *single(true[1:])]
    noisy = [[true[0] - 0.1, true[0] + 0.1], *single(true[1:])]
    ranges = [fit_law(SIZES[:4], TOKENS[:4], losses).predict(SIZES[4], 2e6) for losses in (quiet, noisy)]
    assert ranges[1].high - ranges[1].low > 2 * (ranges[0].high - ranges[0].low)


def test_the_expected_distance():
    assert expected_distance(single([4.0, 4.0])) == pytest.approx(4 * np.hypot(SHAPE_NOISE, SEED_NOISE))
    seeds = expected_distance([[4.1, 3.9], [4.0, 4.0]])  # variance 0.01 with two degrees of freedom, halved by the mean
    assert seeds == pytest.approx(np.sqrt((4 * SHAPE_NOISE) ** 2 + 0.02 / 2 / 2))


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([5.0, 5.02, 4.99, 5.01], "does not fall with the size by more than chance"),
        ([4.0, 4.3, 4.6, 5.0], "does not fall with the size"),
        ([6.0, 5.2, 5.9, 4.6], "follow no power law"),
        ([6.0, 5.5, float("nan"), 5.0], "not a positive number"),
        ([6.0, 5.5, float("inf"), 5.0], "not a positive number"),
    ],
)
def test_points_without_a_law_raise_undefined(losses, said):
    with pytest.raises(Undefined, match=said):
        fit_law(SIZES[:4], TOKENS[:4], single(losses))


def test_two_sizes_are_too_few():
    with pytest.raises(Undefined, match="at least 3 sizes"):
        fit_law([1e5, 1e5, 2e5, 2e5], [1e6, 2e6, 1e6, 2e6], single([5, 4.8, 4.7, 4.5]))


def test_an_unknown_power():
    found = fit_law(SIZES[:3], TOKENS[:3], single([5.0, 4.9, 4.86]))
    assert not found.knows_power(0)
    power = found.range_of(found.powers[:, 0])
    assert POWER_RANGE[0] <= power.low < power.high <= POWER_RANGE[1]


def test_the_same_points_give_the_same_numbers_in_any_order():
    losses = single(law_of(3.0, 3.5, 0.35)[:4])
    one = fit_law(SIZES[:4], TOKENS[:4], losses)
    assert one.predict(1e6, 1) == fit_law(SIZES[:4], TOKENS[:4], losses).predict(1e6, 1)
    turned = fit_law(SIZES[3::-1], TOKENS[:4], losses[::-1])
    assert turned.predict(1e6, 1) == pytest.approx(one.predict(1e6, 1), abs=1e-9)
