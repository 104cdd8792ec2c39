"""Finished suites on disk: what is read back, and what is not used."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from glassbert.cli.evaluate import RemainingTime
from glassbert.engines import NumpyEngine
from glassbert.evaluation import SUITES, Measure, Options, SuiteResult, estimate, evaluate, mean
from glassbert.evaluation import evaluation as module
from glassbert.evaluation.kept import CannotKeep, KeptSuites, from_plain, function_of, key_of, to_plain
from glassbert.evaluation.probes.suite import mix_weights
from glassbert.evaluation.suite import Picture, Suite, Table
from glassbert.tasks.checks import Finding
from tests.evaluation.subjects import subject

RESULT = SuiteResult(
    "cost",
    "Cost",
    rows=[
        estimate("share", mean, np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0]), key="k", unit="share", resamples=50),
        Measure("odd", float("inf"), None, higher_is_better=None),
        Measure("none", None, reason="no data"),
    ],
    tables=[Table("T", ["a", "b"], [["x", np.float64(2.5)], ("y", None)], folded=True)],
    figures=[Picture(partial(mix_weights, ["one", "two"], {"pos": np.array([0.25, 0.75])}, "Weights"), "A caption.")],
    findings=[Finding("note", "p", "e", "r")],
    notes=["a note"],
    marks={"g": {"chance": 0.5}},
    seconds=3.5,
)


def through_files(result, tmp_path, options=None, one=None):
    one, options, suite = one or subject(), options or Options(), SUITES["cost"]
    KeptSuites(tmp_path).keep(suite, one, options, result)
    return KeptSuites(tmp_path, reuse=True).find(suite, one, options)


def test_a_result_is_the_same_when_it_is_read_again(tmp_path):
    again = through_files(RESULT, tmp_path)
    assert again.as_json() == RESULT.as_json() and again.marks == RESULT.marks
    assert again.rows[0].sample.statistic is mean and again.rows[0].sample.key == "k"
    np.testing.assert_array_equal(again.rows[0].sample.columns[0], RESULT.rows[0].sample.columns[0])
    assert again.rows[0].sample.minus(RESULT.rows[0].sample, 50).value == 0.0
    assert again.rows[1].value == float("inf") and again.rows[2].reason == "no data"
    assert again.figures[0].caption == "A caption." and again.figures[0].draw().axes


def test_every_suite_of_a_small_model_can_be_kept(tmp_path):
    one = subject()
    options = Options(quick=True, resamples=20)
    for name in ("cost", "embeddings"):
        made = SUITES[name](one, options)
        KeptSuites(tmp_path).keep(SUITES[name], one, options, made)
        assert KeptSuites(tmp_path, reuse=True).find(SUITES[name], one, options).as_json() == made.as_json()


def test_nothing_is_read_without_resume_or_with_other_weights_options_or_data(tmp_path):
    one, suite = subject(), SUITES["cost"]
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.txt").write_text("one")
    options = Options(data=data)
    KeptSuites(tmp_path).keep(suite, one, options, RESULT)
    kept = KeptSuites(tmp_path, reuse=True)
    assert kept.find(suite, one, options) is not None
    assert KeptSuites(tmp_path).find(suite, one, options) is None
    assert kept.find(suite, subject(seed=1), options) is None
    assert kept.find(SUITES["embeddings"], one, options) is None
    for change in ({"quick": True}, {"thorough": True}, {"seed": 1}, {"resamples": 7}, {"data": None}):
        assert kept.find(suite, one, replace(options, **change)) is None
    (data / "a.txt").write_text("other")
    assert kept.find(suite, one, options) is None


def test_the_key_depends_on_threads_and_on_the_corpus_of_the_run(tmp_path):
    (tmp_path / "manifest.json").write_text("one")
    one = replace(subject(), corpus=SimpleNamespace(folder=tmp_path))
    key = key_of(SUITES["cost"], one, Options())
    assert key == key_of(SUITES["cost"], one, Options())
    (tmp_path / "manifest.json").write_text("another text")
    changed = key_of(SUITES["cost"], one, Options())
    one.model.engine = NumpyEngine(threads=1)
    assert len({key, changed, key_of(SUITES["cost"], one, Options())}) == 3


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_damaged_files_are_not_used(tmp_path, ending):
    assert through_files(RESULT, tmp_path) is not None
    for path in (tmp_path / "suites").glob(f"*{ending}"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
    one = subject()
    assert KeptSuites(tmp_path, reuse=True).find(SUITES["cost"], one, Options()) is None


def test_only_functions_of_the_package_are_named():
    with pytest.raises(CannotKeep):
        to_plain(partial(print, "x"), {})
    with pytest.raises(CannotKeep):
        to_plain([lambda: None], {})
    for name in ("os:system", "glassbert.evaluation.kept:import_module", "glassbert.files:write_json", "builtins:eval"):
        with pytest.raises(KeyError):
            function_of(name)
    with pytest.raises(KeyError):
        from_plain({"is": "Popen", "fields": {}}, {})


def test_suites_of_a_user_and_failed_ones_are_not_kept(tmp_path):
    one, options = subject(), Options()
    mine = Suite("mine", "Mine", lambda subject, options: RESULT)
    kept = KeptSuites(tmp_path, reuse=True)
    kept.keep(mine, one, options, RESULT)
    kept.keep(SUITES["cost"], one, options, SuiteResult("cost", skipped_because="it broke", failed=True))
    assert not (tmp_path / "suites").exists()


def test_an_interrupted_evaluation_goes_on(tmp_path, monkeypatch):
    ran = []

    def suite_of(name, result=RESULT):
        def run(subject, options):
            ran.append(name)
            if result is None:
                raise KeyboardInterrupt
            return result

        run.__module__ = "glassbert.evaluation.cost"
        return Suite(name, name, run)

    one = subject()
    with pytest.raises(KeyboardInterrupt):
        evaluate([one], [suite_of("first"), suite_of("second", None)], kept=KeptSuites(tmp_path))
    calls = []
    found = evaluate([one], [suite_of("first"), suite_of("second")], kept=KeptSuites(tmp_path, True),
                     progress=lambda *given: calls.append(given))  # fmt: skip
    assert ran == ["first", "second", "second"]
    assert found.results["toy"]["first"].as_json()["measures"] == RESULT.as_json()["measures"]
    assert calls[0] == ("toy", "first", 1, 1, "finished before")
    assert json.loads(json.dumps(found.as_json()))["format"] == module.FORMAT


def test_a_key_is_the_same_for_the_same_things():
    assert key_of(SUITES["cost"], subject(), Options()) == key_of(SUITES["cost"], subject(), Options())


# ---- the remaining time ----------------------------------------------------------------------------------------------


def test_the_remaining_time_goes_by_the_efforts():
    clock = RemainingTime([1.0, 3.0], started=0.0)
    assert clock.update("a", 0.0, 0.0) and clock.seconds_left(1.0) is None and clock.text(1.0) == ""
    assert not clock.update("a", 0.5, 10.0)
    assert clock.done == pytest.approx(0.125) and clock.seconds_left(10.0) == pytest.approx(70.0)
    assert clock.update("b", 0.0, 20.0) and clock.seconds_left(20.0) == pytest.approx(60.0)
    clock.update("b", 0.5, 40.0)
    clock.update("b", 0.4, 41.0)  # never backwards
    assert clock.done == pytest.approx(0.625)
    assert clock.text(480.0) == "5 min left" and clock.text(40.0) == "24 s left"


def test_suites_that_were_finished_before_took_no_time():
    clock = RemainingTime([6.0, 2.0, 2.0], started=0.0)
    clock.update("a", 1.0, 0.0)
    clock.update("b", 0.5, 10.0)
    assert clock.seconds_left(10.0) == pytest.approx(30.0)  # a tenth took 10 s, and three tenths are left


def test_parts_of_a_suite_follow_each_other():
    calls = []
    options = Options(progress=lambda done, of, what="": calls.append((done / of, what)))
    options.part(0.0, 0.5).progress(1, 2, "one")
    options.part(0.5, 1.0).part(0.0, 0.5).progress(5, 5, "two")
    options.part(0.5, 1.0).progress(3, 0)
    assert calls == [(0.25, "one"), (0.75, "two"), (0.5, "")]
