"""Numbers of a table beside its words: knots, rows, training, prediction from new files."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.errors import ConfigError, InputError
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.display import progress_bar
from glassbert.finetuning.preparing import prepare
from glassbert.finetuning.rows import rows_of_segments
from glassbert.models.numbers import NumbersConfig
from glassbert.tasks.template import Segment
from tests.finetuning.toy import make_tokenizer, settings, tune, write_csv

COLUMNS = ["house", "river", "bird", "verdict"]


def rows(count=80, seed=0):
    """The verdict depends on a number: good above 50."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        size = round(float(rng.uniform(0, 100)), 1)
        found.append([size, "" if i % 5 == 0 else i % 7, "king" if i % 2 else "stone", "good" if size > 50 else "bad"])
    return found


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", COLUMNS, rows())


def test_knots_are_quantiles_and_values_lie_between_them():
    numbers = NumbersConfig.of([np.array([1.0, 2.0, 3.0, np.nan, 10.0]), np.array([5.0, 5.0])], count=4)
    assert numbers.knots == ((1.0, 2.0, 3.0, 10.0), (5.0, 6.0)) and numbers.rows == 5
    fields, values = np.array([[1, 1, 1, 1, 0, 2]]), np.array([[2.25, 99.0, -1.0, np.nan, 7.0, 5.5]])
    index, weights = numbers.place(fields, values)
    assert index.tolist() == [[1, 2, 0, 3, 0, 5]]
    np.testing.assert_allclose(weights[0], [[0.75, 0.25], [0, 1], [1, 0], [0, 1], [0, 0], [0.5, 0.5]])


@pytest.mark.parametrize("knots", [(), ((1.0,),), ((1.0, 1.0),), ((2.0, 1.0),), ((1.0, np.inf),), (("a", "b"),)])
def test_wrong_knots(knots):
    with pytest.raises(ConfigError):
        NumbersConfig(knots)


def test_a_number_is_one_token():
    tokenizer = make_tokenizer()
    found = rows_of_segments(
        tokenizer, [[Segment("house king", 1, 2.5), Segment("bird tree"), Segment("", 2, 1.0)]], length=10
    )
    assert found.fields.tolist() == [0, 1, 0, 0, 2, 0] and found.values.tolist() == [0, 2.5, 0, 0, 1.0, 0]
    assert (found.ids == tokenizer.mask_id).tolist() == [False, True, False, False, True, False]


def test_a_column_begins_with_the_vector_of_its_name(encoder, table):
    ready = prepare(settings(encoder, table, text=None, template="auto"), progress_bar)
    model = ready.model(0)
    words, steps = model.parameters["embeddings.token"], model.parameters["embeddings.number"]
    tokenizer = ready.tokenizer
    house = words[tokenizer.token_to_id("house")] - words[tokenizer.mask_id]
    assert ready.numbers.names == ("house", "river")
    for row in (0, -1):  # the first knot, a missing value
        assert np.corrcoef(steps[0, row], house)[0, 1] > 0.8
    long = rows_of_segments(tokenizer, [[Segment("bird " * 20), Segment("king", 1, 3.0)]], length=10, stride=8)
    assert len(long) == 3 and long.fields.sum() == 1 and (long.lengths <= 10).all()


def test_numbers_are_beside_the_words_by_default(encoder, table):
    ready = prepare(settings(encoder, table, text=None, template="auto"), progress_bar)
    assert ready.card.reads_numbers and ready.numbers.config.columns == 2
    batch = ready.train_examples.inputs(np.arange(4))
    assert (batch["fields"] == 1).sum(1).tolist() == [1] * 4 and (batch["fields"] == 2).sum(1).tolist() == [1] * 4
    first = {name: ready.train.table.column(name)[0] for name in COLUMNS}
    assert ready.card.template.shown(first).startswith(f"[house = {float(first['house']):g}] [river = unknown] bird is")
    digits = prepare(settings(encoder, table, text=None, template="auto", numbers="text"), progress_bar)
    assert not digits.card.reads_numbers and "fields" not in digits.train_examples.inputs(np.arange(4))
    assert digits.train_examples.rows.lengths.mean() > ready.train_examples.rows.lengths.mean()


def test_a_pattern_keeps_its_words(encoder, table):
    ready = prepare(settings(encoder, table, text=None, template="the {bird} of {house} runs"), progress_bar)
    batch = ready.train_examples.inputs(np.arange(3))
    assert ready.numbers.config.columns == 1 and (batch["fields"] == 1).sum() == 3


def test_train_save_predict(tmp_path, encoder, table):
    changes = {"text": None, "template": "auto", "report": True}
    tuned = tune(tmp_path / "run", encoder, table, **changes, epochs=12, learning_rate=1e-2, dropout=0.0)
    assert tuned.scores["auc"].value > 0.95
    page = tuned.report.read_text()
    assert "[house = " in page and "No epoch was chosen" in page
    content = json.loads((tuned.model / "config.json").read_text())
    assert content["model_type"] == "glassbert"  # transformers has no class for it
    predictor = glassbert.Predictor.load(tuned.run, engine="numpy")
    new = write_csv(tmp_path / "new.csv", COLUMNS[:3], [row[:3] for row in rows(20, 5)])
    answers = predictor.predict(new).answers()
    assert np.mean([a == row[3] for a, row in zip(answers, rows(20, 5), strict=True)]) > 0.8
    one = predictor.predict({"house": 99, "bird": "king"})
    assert one.answers() == ["good"] and any("river" in note for note in one.notes)
    assert predictor.predict({"house": 1e9, "river": "many", "bird": "king"}).answers() == ["good"]
    assert TaskCard.load(tuned.run).template.values


def test_start_from_a_model_of_another_table(tmp_path, encoder, table):
    first = tune(tmp_path / "run", encoder, table, text=None, template="auto", epochs=1)
    other = write_csv(tmp_path / "o.csv", ["road", "verdict"], [[i % 23 + 0.5, "ab"[i % 2]] for i in range(60)])
    tuned = tune(tmp_path / "next", first.model, other, text=None, template="auto", epochs=1)
    assert glassbert.load(tuned.model, engine="numpy").config.numbers.columns == 1


def test_numbers_option_where_it_does_not_apply(encoder, tmp_path):
    words = write_csv(tmp_path / "w.csv", ["house", "bird", "verdict"], [["a", "bc"[i % 2], i % 2] for i in range(30)])
    with pytest.raises(InputError, match="without a column of numbers"):
        prepare(settings(encoder, words, text=None, template="auto", numbers="values"), progress_bar)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fields": [[1, 0]]}, "go together"),
        ({"fields": [[3, 0]], "values": [[1.0, 0.0]]}, "from 1 to 1"),
        ({"fields": [[1]], "values": [[1.0]]}, "the shape of input_ids"),
        ({"fields": [[1, 0]], "values": [[np.inf, 0.0]]}, "finite"),
        ({"fields": [[0.5, 0]], "values": [[1.0, 0.0]]}, "from 1 to 1"),
    ],
)
def test_wrong_inputs(encoder, given, message):
    plain = glassbert.load(encoder, engine="numpy", head="core")
    config = plain.config.replace(embeddings="numbers", numbers=NumbersConfig(((0.0, 1.0),)))
    model = type(plain)(config, engine="numpy")
    with pytest.raises(InputError, match=message):
        model.forward([[5, 6]], **given)
    with pytest.raises(InputError, match=r"reads no numbers|go together"):
        plain.forward([[5, 6]], **given)


def test_padding_is_skipped_without_an_effect(encoder):
    plain = glassbert.load(encoder, engine="numpy", head="core")
    config = plain.config.replace(embeddings="numbers", numbers=NumbersConfig(((0.0, 1.0, 3.0),)))
    model = type(plain)(config, engine="numpy", seed=1)
    ids, mask = [[5, 6, 7], [8, 0, 0]], [[1, 1, 1], [1, 0, 0]]
    given = {"fields": [[0, 1, 0], [1, 0, 0]], "values": [[0, 2.0, 0], [0.5, 0, 0]]}
    whole = model.forward(ids, mask, **given)[0]
    skipped = model.predict(ids, mask, **given)
    np.testing.assert_allclose(skipped[0], whole[0], atol=1e-6)
    np.testing.assert_allclose(skipped[1, 0], whole[1, 0], atol=1e-6)
    assert np.abs(whole - model.forward(ids, mask)[0]).max() > 1e-4
