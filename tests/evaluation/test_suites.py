"""User suites and measures, and evaluations of one and of several subjects."""

import json

import numpy as np
import pytest

from glassbert.errors import ConfigError, InputError
from glassbert.evaluation import (
    MEASURES,
    SUITES,
    DoesNotApply,
    Options,
    SuiteResult,
    estimate,
    evaluate,
    mean,
    measure,
    suite,
)
from glassbert.metrics import Undefined
from tests.evaluation.subjects import subject


@pytest.fixture(autouse=True)
def registry():
    """Restore the registries after each test."""
    before = dict(SUITES)
    yield
    MEASURES.clear()
    SUITES.clear()
    SUITES.update(before)


def coin(name="coin", shift=0.0):
    @suite(name, title="Coins")
    def coins(one, options):
        values = np.random.default_rng(0).uniform(0, 1, 30) + shift * (one.name == "second")
        return SuiteResult(rows=[estimate("heads", mean, values, key="coins", unit="share")])

    return coins


def test_a_user_suite():
    coins = coin()
    found = coins(subject())
    assert found.name == "coin" and found.title == "Coins" and 0.3 < found["heads"].value < 0.7
    assert evaluate([subject()], ["coin"]).results["toy"]["coin"]["heads"].interval is not None
    with pytest.raises(ConfigError, match="already"):
        coin()
    with pytest.raises(ConfigError, match="one lower-case word"):
        coin("Two Words")


def test_a_user_measure():
    @measure("layers", unit="")
    def layers(one, options):
        return one.model.config.num_hidden_layers

    @measure("nothing")
    def nothing(one, options):
        raise Undefined("there is nothing to measure")

    found = SUITES["own"](subject())
    assert found["layers"].value == 3
    assert found["nothing"].value is None and found["nothing"].reason == "there is nothing to measure"
    with pytest.raises(ConfigError, match="already"):
        measure("layers")(layers)


def test_skipped_and_failed_suites_do_not_stop_the_others():
    @suite("picky", title="Picky")
    def picky(one, options):
        raise DoesNotApply("only for models that sing")

    @suite("broken", title="Broken")
    def broken(one, options):
        return 1 / 0

    coin()
    found = evaluate([subject()], ["picky", "broken", "coin"])
    results = found.results["toy"]
    assert results["picky"].skipped_because == "only for models that sing" and not results["picky"].failed
    assert "ZeroDivisionError" in results["broken"].skipped_because and results["broken"].failed
    assert results["coin"]["heads"].value is not None
    assert found.failed == ["toy: broken"]


def test_a_suite_must_return_measures():
    @suite("odd", title="Odd")
    def odd(one, options):
        return 7

    with pytest.raises(InputError, match="must return a SuiteResult or a list of Measure, got int"):
        odd(subject())
    with pytest.raises(ConfigError, match="there is no suite 'nothing'; there are sanity, language"):
        evaluate([subject()], ["nothing"])
    with pytest.raises(InputError, match="give at least one model"):
        evaluate([], ["odd"])


def test_two_subjects_are_compared_on_the_same_units(tmp_path):
    coin(shift=0.02)
    one, two = subject(), subject(seed=1)
    two.name = "second"
    found = evaluate([one, two], ["coin", "sanity"])
    difference = next(row for row in found.comparison if row.name == "heads")
    assert difference.verdict == "better" and difference.text == "+2.0" and difference.baseline == "toy"
    page = found.write(tmp_path / "report").read_text(encoding="utf-8")
    assert "▲ better" in page and "Comparison of toy and second" in page
    written = json.loads((tmp_path / "report" / "evaluation.json").read_text(encoding="utf-8"))
    assert written["format"] == "glassbert-evaluation"
    assert {row["name"]: row.get("verdict") for row in written["comparison"]}["heads"] == "better"
    assert [one["name"] for one in written["subjects"]] == ["toy", "second"]


def test_names_are_made_unique_and_escaped(tmp_path):
    coin()
    one, two = subject(), subject()
    assert list(evaluate([one, two], ["coin"]).results) == ["toy", "toy (2)"]
    one.name = "<script>alert(1)</script>"
    page = evaluate([one], ["coin"]).write(tmp_path).read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;" in page


def test_samples_do_not_depend_on_the_options():
    options = Options(quick=True)
    some = options.sample(1000, 10, "rows")
    assert len(some) == 10 and (np.diff(some) > 0).all()
    np.testing.assert_array_equal(some, Options().sample(1000, 10, "rows"))
    assert list(options.sample(5, 10, "rows")) == [0, 1, 2, 3, 4] and len(options.sample(5, None, "rows")) == 5


def test_missing_data_is_named_by_its_pattern(tmp_path):
    with pytest.raises(DoesNotApply, match=r"there is no treebank: name a folder with \*\.conllu by --data"):
        Options().file("treebank", "*.conllu")
    with pytest.raises(DoesNotApply, match="has no file"):
        Options(data=tmp_path).file("treebank", "*.conllu")
