"""The rounds, intervals and verdicts of the benchmarks, on synthetic noise; nothing is timed here."""

import argparse
import json

import numpy as np
import pytest

from benchmarks import common, compare, harness
from benchmarks.compare import CompareError, Verdict, percent, unpack
from benchmarks.harness import DISTURBED, Rounds, Spread, choose_rounds, interleave, median_interval


class Machine:
    """A machine with a clock of its own: turns and controls get slower while a disturbance lasts."""

    def __init__(self, disturbed_rounds=(), noise=0.0, drift=0.0, seed=0):
        self.disturbed, self.noise, self.drift = set(disturbed_rounds), noise, drift
        self.rng = np.random.default_rng(seed)
        self.controls = self.turns = 0
        self.per_round = 0

    def slowness(self):
        return (2.0 if self.turns // max(1, self.per_round) in self.disturbed else 1.0) * (1 + self.drift * self.turns)

    def control(self):
        return 0.010 * self.slowness() * float(self.rng.lognormal(0, 0.005))

    def turn(self, seconds):
        found = seconds * self.slowness() * float(self.rng.lognormal(0, self.noise))
        self.turns += 1
        return found

    def run(self, a, b, rounds, mirrored=True):
        self.per_round = 4 if mirrored else 2
        turns = {"A": lambda: self.turn(a), "B": lambda: self.turn(b)}
        return interleave(turns, rounds, settle=0, mirrored=mirrored, control=self.control)


# ---- rounds ----------------------------------------------------------------------------------------------------------


def test_quiet_rounds_are_all_kept():
    times = Machine().run(1.0, 1.0, 9)
    assert times.facts() == {"rounds": 9, "repeated_rounds": 0, "disturbed_rounds": 0}


def test_disturbed_rounds_are_repeated_and_counted():
    times = Machine(disturbed_rounds={2, 3}).run(1.0, 1.0, 9)
    assert times.repeated == 3 and times.disturbed == 0  # the round before ends in the disturbance
    assert times["A"] == pytest.approx([1.0] * 9)
    assert "3 disturbed ones repeated" in times.note()


def test_the_least_disturbed_rounds_fill_the_gaps():
    machine = Machine(disturbed_rounds=range(3, 100, 4))
    times = machine.run(1.0, 1.0, 9)
    assert times.count == 9 and times.disturbed == 0 and times.repeated == 8
    machine = Machine(disturbed_rounds=range(2, 100))
    times = machine.run(1.0, 1.0, 4, mirrored=False)
    assert times.count == 4 and machine.turns <= 16  # never more than twice the rounds


def test_choosing_prefers_calm_rounds_and_keeps_the_order():
    controls = [[1.0, 1.5], [1.0, 1.0], [1.0, 1.2], [1.0, 1.01], [1.0, 3.0]]
    assert choose_rounds(controls, 2) == ([1, 3], 2, 0)
    assert choose_rounds(controls, 3) == ([1, 2, 3], 2, 1)  # 1.2 is the least disturbed of the others
    assert choose_rounds([[1.0, DISTURBED - 1e-9]] * 3, 3) == ([0, 1, 2], 3, 0)
    assert choose_rounds([], 3) == ([], 0, 0)
    assert choose_rounds([[], []], 3) == ([0, 1], 2, 0)


def test_without_a_control_there_are_as_many_rounds_as_asked_for():
    order = []
    turns = {name: lambda name=name: order.append(name) or 1.0 for name in "AB"}
    times = interleave(turns, 2, settle=0, mirrored=True, control=None)
    assert "".join(order) == "ABBA" * 2
    assert times == {"A": [1.0, 1.0], "B": [1.0, 1.0]} and times.repeated == 0


def test_a_deadline_leaves_three_rounds():
    times = interleave({"A": lambda: 1.0}, 9, settle=0, deadline=0.0, control=None)
    assert times.count == 3


def test_a_drift_cancels_in_mirrored_rounds():
    times = Machine(drift=0.001).run(1.0, 1.0, 5)
    assert np.divide(times["B"], times["A"]) == pytest.approx(np.ones(5), abs=1e-9)


def test_the_control_is_a_positive_number_of_seconds():
    assert harness.Control(cores=2)() > 0


# ---- intervals -------------------------------------------------------------------------------------------------------


def test_an_interval_of_the_median_holds_the_true_one_about_as_often_as_it_says():
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(300):
        low, high = median_interval(rng.lognormal(0, 0.02, 15))
        inside += low <= 1.0 <= high
    assert 0.91 <= inside / 300 <= 0.99


def test_an_interval_depends_on_the_values_only():
    values = [1.0, 1.2, 0.9, 1.1, 1.05]
    assert median_interval(values) == median_interval(values)
    assert median_interval([2.0] * 4) == (2.0, 2.0)
    wide, narrow = (median_interval(values, level) for level in (0.99, 0.5))
    assert wide[0] <= narrow[0] and narrow[1] <= wide[1]


def test_one_wild_round_does_not_move_the_median():
    spread = Spread.of([1.0, 1.01, 0.99, 1.0, 50.0, 1.0, 1.01, 0.99, 1.0])
    assert spread.median == 1.0 and spread.high < 1.05


# ---- verdicts --------------------------------------------------------------------------------------------------------


def verdicts(slower, tries=20, noise=0.02):
    return [Verdict.of(Machine({3, 7}, noise, 1e-4, seed=i).run(1.0, 1.0 + slower, 12)) for i in range(tries)]


def test_a_commit_does_not_differ_from_itself():
    assert sum(one.difference == 0 for one in verdicts(0.0)) >= 19


@pytest.mark.parametrize(("slower", "expected"), [(0.04, 1), (-0.06, -1)])
def test_a_difference_is_seen(slower, expected):
    found = verdicts(slower, noise=0.01)
    assert all(one.difference == expected for one in found)
    assert ("slower" if expected > 0 else "faster") in found[0].text()


def test_only_a_slowdown_above_the_limit_fails():
    one = Verdict.of(Rounds({"A": [1.0] * 9, "B": [1.04] * 9}))
    assert one.fails(0.03) and not one.fails(0.05)
    assert not Verdict.of(Rounds({"A": [1.0] * 9, "B": [0.9] * 9})).fails(0.0)


def test_a_wide_interval_does_not_claim_that_there_is_no_difference():
    one = Verdict.of(Rounds({"A": [1.0] * 9, "B": [0.8, 1.2, 1.0, 0.9, 1.1, 1.3, 0.7, 1.0, 1.05]}))
    assert one.difference == 0 and "only one above" in one.text()
    assert Verdict.of(Rounds({"A": [1.0] * 9, "B": [1.001] * 9})).text() == "no difference"


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.03", 0.03), ("0", 0.0)])
def test_a_share_is_read(text, share):
    assert percent(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["three", "-1%", "300%", ""])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="such as 3%"):
        percent(text)


# ---- the program -----------------------------------------------------------------------------------------------------


def test_an_unknown_commit_is_named(tmp_path):
    with pytest.raises(CompareError, match="no commit 'no-such-commit'"):
        unpack("no-such-commit", tmp_path / "a")


def test_a_commit_is_run_with_its_own_package(tmp_path):
    """A side whose package is another one than that of its folder is refused; a broken one is named."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken" / "glassbert").mkdir(parents=True)
    (tmp_path / "broken" / "glassbert" / "__init__.py").write_text("raise SystemExit(7)\n")
    side = compare.Side("broken", tmp_path / "broken", "tokens")
    with pytest.raises(CompareError, match="broken ended with exit code 7"):
        side.check()
    side.close()


def test_two_working_trees_are_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(harness, "default_control", lambda: lambda: 0.01)
    status = compare.main([".", ".", "--what", "tokens", "--rounds", "3", "--fail-over", "99%",
                           "--json", str(tmp_path / "report.json")])  # fmt: skip
    report = json.loads((tmp_path / "report.json").read_text())
    assert status == 0 and report["rounds"] == 3 and report["a"] == report["b"] == "working tree"
    assert report["interval"][0] <= report["ratio"] <= report["interval"][1]
    assert "2,000 texts to tokens" in capsys.readouterr().out


def test_json_goes_into_a_file_or_onto_the_last_line(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    common.add_json_option(parser)
    assert parser.parse_args([]).json is None
    common.show_json({"a": 1}, parser.parse_args(["--json"]).json)
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    common.show_json({"a": 1}, parser.parse_args(["--json", str(tmp_path / "x.json")]).json)
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1} and not capsys.readouterr().out
