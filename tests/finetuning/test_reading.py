"""Reading files: recognised heads and columns, held-out examples, and errors."""

import json

import pytest

from glassbert.errors import GlassBertError, InputError
from glassbert.finetuning.reading import read_examples
from glassbert.finetuning.settings import FineTuningSettings
from tests.finetuning.toy import sentences, write_csv


def read(path, dev="", **changes):
    given = {"model": "mini", "train": str(path), "dev": str(dev), **changes}
    return read_examples(FineTuningSettings.from_dict(given))


@pytest.fixture
def reviews(tmp_path):
    return write_csv(tmp_path / "reviews.csv", ["review", "verdict"], sentences(60))


def test_head_is_recognised(reviews):
    found = read(reviews, target="verdict")
    assert found.card.head == "binary" and found.card.labels == ("bad", "good") and found.card.text == "review"
    assert any("The head is binary" in note and "--head overrides this" in note for note in found.notes)
    assert any("'review'" in note for note in found.notes)


def test_held_out_share_without_dev_file(reviews):
    found = read(reviews, target="verdict", held_out=0.25)
    assert len(found.train) + len(found.dev) == 60 and 12 <= len(found.dev) <= 18
    assert any("held out" in note for note in found.notes)


def test_limit_applies_only_to_training(reviews):
    found = read(reviews, dev=reviews, target="verdict", limit=10)
    assert len(found.train) == 10 and len(found.dev) == 60
    assert any(finding.severity == "problem" for finding in found.findings)  # dev is train


def test_table_without_text_uses_a_template(tmp_path):
    rows = [[i % 3, "fm"[i % 2], 20.5 + i % 17, i // 2 % 2] for i in range(60)]
    found = read(write_csv(tmp_path / "t.csv", ["class", "sex", "age", "survived"], rows), target="survived")
    assert found.card.template is not None and "sex is" in found.train.texts[0]
    assert any("becomes a sentence" in note for note in found.notes)


def test_short_texts_beside_other_columns_are_a_table(tmp_path):
    names = ["Braund, Mr. Owen {}", "Cumings, Mrs. John B. {}", "Heikkinen, Miss. Laina {}"]
    rows = [[names[i % 3].format(i), "fm"[i % 2], 20.5 + i % 17, i // 2 % 2] for i in range(60)]
    file = write_csv(tmp_path / "t.csv", ["name", "sex", "age", "survived"], rows)
    found = read(file, target="survived")
    assert found.card.template is not None and "sex is" in found.train.texts[0]
    assert any("--text name reads that column alone" in note for note in found.notes)
    assert read(file, target="survived", text="name").card.template is None
    long = [[f"a review of many words about the film number {i}", *row[1:]] for i, row in enumerate(rows)]
    found = read(write_csv(tmp_path / "l.csv", ["review", "sex", "age", "survived"], long), target="survived")
    assert found.card.template is None and found.card.text == "review"


def test_ready_task_and_another_head(tmp_path):
    (tmp_path / "sst5").mkdir()
    for name in ("train", "dev"):
        lines = [f"__label__{i % 5 + 1}\tthe bird sings {i}" for i in range(20)]
        (tmp_path / "sst5" / f"{name}.txt").write_text("\n".join(lines) + "\n")
    given = {"model": "mini", "task": "sst5", "data": str(tmp_path)}
    found = read_examples(FineTuningSettings.from_dict(given))
    assert found.card.head == "ordinal" and found.card.metric == "quadratic_kappa"
    assert found.card.label_names[0] == "very negative" and found.card.labels[0] == "1"
    other = read_examples(FineTuningSettings.from_dict({**given, "head": "multiclass"}))
    assert other.card.head == "multiclass" and other.card.metric == "accuracy"
    with pytest.raises(InputError, match="with --data"):
        read_examples(FineTuningSettings.from_dict({**given, "data": str(tmp_path / "nowhere")}))


def test_default_columns_of_spans(tmp_path):
    rows = [
        {"question": "who", "context": f"a king {i}", "answers": {"text": ["king"], "answer_start": [2]}}
        for i in range(20)
    ]
    rows[3]["answers"] = {"text": [], "answer_start": []}
    path = tmp_path / "qa.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    card = read(path, head="span").card
    assert (card.text, card.pair, card.target) == ("question", "context", "answers")
    assert card.details["may_be_empty"]


def test_pairs_with_and_without_scores(tmp_path):
    rows = [[f"bird {i}", f"king {i}", i % 6] for i in range(30)]
    path = write_csv(tmp_path / "pairs.csv", ["a", "b", "y"], rows)
    scored = read(path, head="embedding", text="a", pair="b", target="y").card
    assert scored.metric == "spearman" and scored.details["score_range"] == [0.0, 5.0]
    assert read(path, head="embedding", text="a", pair="b").card.metric == "accuracy"


def test_bio_tags_use_span_f1(tmp_path):
    path = tmp_path / "x.conll"
    path.write_text("".join(f"king\tB-PER\nsings{i}\tO\n\n" for i in range(20)))
    assert read(path, target="tags").card.metric == "span_f1"


@pytest.mark.parametrize(
    ("columns", "rows", "changes", "message"),
    [
        (["t", "y"], [["bird", "a"]] * 20, {"target": "y"}, r"all \d+ examples have the label 'a'"),
        (["t", "y"], [["bird king runs", "a"], ["x", ""]] * 10, {"target": "y"}, r"line 3 has no target.*drop-missing"),
        (["t", "y"], [["b", "1"], ["c", "nan"], ["d", "2.5"]], {"target": "y", "head": "regression"}, "has no target"),
        (["t", "y"], [["b", 1], ["c", "oops"], ["d", 2]], {"target": "y", "head": "regression"}, "'oops' is no number"),
        (["t", "y"], [["", "a"], ["", "b"]] * 10, {"target": "y", "text": "t"}, "every text is empty"),
        (["t", "y"], [["b", "a"]] * 9, {"target": "z", "text": "t"}, "no column 'z'; its columns are 't', 'y'"),
        (["t", "y"], [["b", "a"]] * 9, {"target": "y", "text": "tt"}, "no column 'tt'.*did you mean 't'"),
        (["t", "y"], [["b", "a"]] * 9, {}, "target column with --target"),
        (["t", "y"], [[f"b{i}", i % 4] for i in range(9)], {"target": "y", "head": "binary"}, "there are 4"),
        (["t", "y"], [["b", 3], ["c", 3]] * 9, {"target": "y", "head": "regression"}, "every target is 3"),
        (["t", "y"], [["b", "a"]] * 9, {"target": "y", "head": "embedding", "text": "t"}, "--pair"),
        (["t", "y"], [["b", "a"]] * 9, {"target": "y", "head": "token", "text": "t"}, "--words"),
    ],
)  # fmt: skip
def test_bad_data(tmp_path, columns, rows, changes, message):
    with pytest.raises(GlassBertError, match=message):
        read(write_csv(tmp_path / "bad.csv", columns, rows), **changes)


def test_error_for_an_unseen_label_in_dev(tmp_path, reviews):
    dev = write_csv(tmp_path / "dev.csv", ["review", "verdict"], [["a bird sings", "mediocre"]])
    with pytest.raises(InputError, match=r"dev\.csv, line 2: the label 'mediocre' was not seen in training"):
        read(reviews, dev=dev, target="verdict")


def test_error_for_dev_examples_of_one_class(tmp_path, reviews):
    dev = write_csv(tmp_path / "dev.csv", ["review", "verdict"], [["a bird sings", "good"]] * 5)
    with pytest.raises(InputError, match="auc cannot be computed"):
        read(reviews, dev=dev, target="verdict")
    assert read(reviews, dev=dev, target="verdict", metric="accuracy").card.metric == "accuracy"


def test_error_for_ragged_rows(tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text("t,y\na bird,1\na king,2,3\n")
    with pytest.raises(GlassBertError, match="line 3"):
        read(path, target="y")
