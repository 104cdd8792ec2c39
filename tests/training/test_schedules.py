"""Schedules: values, warm-up, errors, and progress measured in seconds."""

import math
from itertools import pairwise

import pytest

from glassbert.errors import TrainingError
from glassbert.training.schedules import SCHEDULES, make_schedule

POINTS = [i / 200 for i in range(201)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_warms_up_and_stays_between_0_and_1(name):
    schedule = make_schedule(name, warmup=0.1)
    assert schedule(0.0) == 0.0
    assert schedule(0.05) == pytest.approx(0.5)
    assert schedule(0.1) == pytest.approx(1.0)
    assert all(0 <= schedule(p) <= 1 for p in POINTS)
    assert all(a >= b - 1e-12 for a, b in pairwise([schedule(p) for p in POINTS if p >= 0.1]))
    assert schedule(-1.0) == schedule(0.0) and schedule(7.0) == schedule(1.0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warm_up_they_start_at_1(name):
    assert make_schedule(name)(0.0) == pytest.approx(1.0)


def test_values_of_schedules():
    assert make_schedule("constant")(0.7) == 1.0
    assert make_schedule("linear", warmup=0.2)(0.6) == pytest.approx(0.5)
    assert make_schedule("cosine")(0.25) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert make_schedule("inverse-root", warmup=0.04)(0.64) == pytest.approx(0.25)
    wsd = make_schedule("wsd", warmup=0.1, decay=0.4)
    assert wsd(0.6) == 1.0 and wsd(0.7) == pytest.approx(0.5) and wsd(1.0) == 0.0
    assert [make_schedule(name)(1.0) for name in ("linear", "cosine", "wsd")] == pytest.approx([0, 0, 0], abs=1e-12)


def test_progress_in_seconds_gives_the_same_schedule():
    """On a fast and on a slow machine."""
    schedule, budget = make_schedule("wsd", warmup=0.05), 300.0
    for seconds_a_step in (0.5, 3.0):
        seen = [schedule(i * seconds_a_step / budget) for i in range(round(budget / seconds_a_step) + 1)]
        assert seen[0] == 0.0 and max(seen) == 1.0 and seen[-1] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("cosin", {}, r"no schedule 'cosin'; did you mean 'cosine'\? There are constant, linear"),
        ("linear", {"warmup": 1.5}, r"warmup must be a share of the run, in \[0, 1\), got 1.5"),
        ("cosine", {"decay": 0.1}, "the schedule 'cosine' has no setting 'decay'"),
    ],
)
def test_bad_schedules(name, settings, message):
    with pytest.raises(TrainingError, match=message):
        make_schedule(name, **settings)
