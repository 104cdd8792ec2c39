"""Stratified splits, and findings about the data."""

from collections import Counter

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.tasks import TaskData, check_data, folds, train_dev_split
from glassbert.tasks.splits import normalised, whole_texts


def make_data(n=200, **columns):
    table = {"text": [f"example number {row} of them" for row in range(n)], "y": [row % 10 == 0 for row in range(n)]}
    return TaskData.of({**table, **columns}, text="text", target="y")


def problems(*data):
    return {finding.problem: finding for finding in check_data(*data)}


def test_split_keeps_label_shares_and_order():
    data = make_data()
    train, dev = train_dev_split(data, 0.25, seed=3)
    assert len(train) == 150 and len(dev) == 50
    assert sum(dev.targets) == 5 and sum(train.targets) == 15
    assert sorted(train.texts + dev.texts) == sorted(data.texts)
    assert list(dev.table.lines) == sorted(dev.table.lines)
    assert train_dev_split(data, 0.25, seed=3)[1].texts == dev.texts
    assert train_dev_split(data, 0.25, seed=4)[1].texts != dev.texts


def test_equal_texts_stay_on_one_side():
    texts = [f"Text {row // 3}{'!' * (row % 3)}" for row in range(90)]
    train, dev = train_dev_split(make_data(90, text=texts), 0.3)
    assert len(dev) == 27
    assert not set(map(normalised, train.texts)) & set(map(normalised, dev.texts))


def test_a_text_and_its_parts_stay_on_one_side():
    whole = [f"the {row}th film is a slow and tender story" for row in range(40)]
    parts = [part for row in range(40) for part in (f"the {row}TH film!", f"{row}th film is a slow")]
    data = make_data(180, text=[*whole, *parts, *["tender story"] * 60])
    train, dev = train_dev_split(data, 0.25, seed=1)
    sides = [
        {word for text in side.texts for word in text.lower().split() if word[0].isdigit()} for side in (train, dev)
    ]
    assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == 40
    assert len(dev) >= 20 and len({"tender story"} & set(train.texts)) + len({"tender story"} & set(dev.texts)) == 1


def test_parts_are_found_word_by_word():
    texts = ["a slow and tender film", "slow and tender", "low and tender", "and tender film", "tender film", "a"]
    whole = whole_texts(texts)
    assert whole["slow and tender"] == whole["and tender film"] == texts[0]
    assert [text for text in texts if whole[text] == text] == [texts[0], "low and tender", "tender film", "a"]


def test_folds():
    data = make_data(103)
    parts = folds(data, 5)
    assert Counter(text for _, dev in parts for text in dev.texts) == Counter(data.texts)
    assert {len(dev) for _, dev in parts} <= {20, 21}
    assert {sum(dev.targets) for _, dev in parts} <= {2, 3}
    assert all(len(train) + len(dev) == 103 for train, dev in parts)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_regression_and_multilabel_are_stratified(kind):
    values = (
        list(range(200))
        if kind == "regression"
        else [["rare", "common"] if r % 20 == 0 else ["common"] for r in range(200)]
    )
    data = TaskData.of({"text": make_data().texts, "y": values}, text="text", target="y", kind=kind)
    _, dev = train_dev_split(data, 0.2, seed=1)
    if kind == "regression":
        assert np.histogram(dev.targets, 10, (0, 200))[0].tolist() == [4] * 10
    else:
        assert sum("rare" in labels for labels in dev.targets) == 2


def test_bad_splits():
    for dev in (0, 1, 1.5):
        with pytest.raises(InputError, match="between 0 and 1"):
            train_dev_split(make_data(), dev)
    with pytest.raises(InputError, match="too few"):
        train_dev_split(make_data(4, text=["same"] * 4), 0.5)
    with pytest.raises(InputError, match="between 2 and 10"):
        folds(make_data(10), 11)


def test_good_data_has_no_findings():
    assert check_data(make_data(y=[row % 2 for row in range(200)])) == []


def test_empty_and_long_texts():
    texts = make_data().texts
    texts[4], texts[7] = " ", "word " * 20_000
    found = problems(make_data(text=texts))
    assert "row 5" in found["There are empty texts."].evidence
    assert "row 8 has 100,000 characters" in found["There are very long texts."].evidence


def test_label_findings():
    assert "'1'" in problems(make_data(y=[1] * 200))["There is only one class."].evidence
    found = problems(make_data(y=[row < 5 for row in range(200)]))
    assert "98%" in found["The classes are imbalanced."].evidence
    assert "'True' (5)" in found["Some labels have very few examples."].evidence


def test_conflicting_labels_and_copies():
    texts = make_data().texts
    texts[150:] = [text.upper() for text in texts[:50]]
    found = problems(make_data(text=texts, y=[row % 2 if row < 150 else (row + (row < 153)) % 2 for row in range(200)]))
    evidence = found["The same text has different labels."].evidence
    assert "row 1 has 0 and row 151 has 1" in evidence and "6 rows" in evidence
    assert "50 of 200" in found["Many texts occur more than once."].evidence


def test_overlap_of_train_and_dev():
    train = make_data()
    dev = make_data(
        text=[
            *(f"another example {row}" for row in range(170)),
            *[t.upper() for t in train.texts[:20]],
            *train.texts[:10],
        ]
    )
    found = problems(train, dev)["Texts of the validation data are also in the training data."]
    assert found.severity == "problem" and "30 of 200 (15.0%), 10 of them exactly equal" in found.evidence
    assert "row 171" in found.evidence
    short = make_data(text=["oh yes"] * 200)
    assert "Texts of the validation data are also in the training data." not in problems(short, short)
    unseen = make_data(text=[f"new {row} and different" for row in range(200)], y=["odd"] * 200)
    assert (
        "row 1 has 'odd'"
        in problems(train, unseen)["The validation data has a label that is not in the training data."].evidence
    )


def table(**columns):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    base = {"age": rng.integers(1, 80, 300).tolist(), "town": [f"t{n}" for n in rng.integers(0, 9, 300)]}
    added = {name: column(y, rng) for name, column in columns.items()}
    return TaskData.of({**base, **added, "y": y.tolist()}, target="y", template="auto")


LEAKS = {
    "copy": lambda y, rng: y.tolist(),
    "word": lambda y, rng: ["saved" if v else "lost" for v in y],
    "boat": lambda y, rng: [f"b{rng.integers(5)}" if v else None for v in y],
    "amount": lambda y, rng: (y * 100 + rng.normal(size=300)).tolist(),
}


@pytest.mark.parametrize("name", LEAKS)
def test_leaking_columns(name):
    leaks = [problem for problem in problems(table(**{name: LEAKS[name]})) if "leaks the target" in problem]
    assert leaks == [f"The column {name!r} leaks the target."]


def test_informative_column_is_no_leak():
    good = table(helpful=lambda y, rng: np.where(rng.random(300) < 0.85, y, 1 - y).tolist())
    assert not [problem for problem in problems(good) if "leaks" in problem]
    names = table(key=lambda y, rng: [f"k{row}" for row in range(300)])  # unique values teach no rule
    assert not [problem for problem in problems(names) if "leaks" in problem]


def test_leak_in_regression():
    y = np.random.default_rng(1).normal(size=100)
    noisy = (y + np.random.default_rng(2).normal(size=100)).tolist()
    data = TaskData.of({"euros": (y * 1.1 + 3).tolist(), "hint": noisy, "y": y.tolist()}, target="y", template="auto")
    assert [problem for problem in problems(data) if "leaks" in problem] == ["The column 'euros' leaks the target."]


def test_normalised():
    assert normalised("Good  Film!") == normalised("good film") == "good film"
    assert normalised("-3") != normalised("3") and normalised("1.5") != normalised("15") != normalised("1 5")
    assert normalised("?!") == "?!"
