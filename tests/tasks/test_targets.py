"""Inferred kinds of targets, labels and their order, encoding."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.tasks import LabelMap, TaskData, infer_kind

KINDS = [
    (["0", "1", "1"], "binary"),
    (["yes", "no", "yes"], "binary"),
    ([True, False], "binary"),
    (["cat", "dog", "bird"], "multiclass"),
    (["0", "1", "2", "3"], "multiclass"),
    (["3", "4", "9", "5"], "ordinal"),
    (["low", "high", "medium"], "ordinal"),
    (["1.5", "2.25", "3"], "regression"),
    ([str(n) for n in range(100)], "regression"),
    (["4", "4,27", "27"] * 5, "multilabel"),
    ([["joy"], [], ["joy", "love"]], "multilabel"),
]


@pytest.mark.parametrize(("values", "kind"), KINDS)
def test_inferred_kind_and_reason(values, kind):
    found = infer_kind(values, "outcome")
    assert found.kind == kind and "'outcome'" in found.reason


def test_column_name_decides_between_ordinal_and_multiclass():
    assert infer_kind(["1", "2", "3", "4", "5"], "stars").kind == "ordinal"
    assert infer_kind(["1", "2", "3", "4", "5"], "topic").kind == "multiclass"


def test_columns_that_cannot_be_targets():
    with pytest.raises(InputError, match="holds no value"):
        infer_kind(["", None, "NaN"], "y")
    with pytest.raises(InputError, match="text or a name, not a label"):
        infer_kind([f"name {n}" for n in range(100)], "y")


def test_label_order():
    assert LabelMap.of(["10", "9", 9.0, "1"]).names == ("1", "9", "10")
    assert LabelMap.of(["Yes", "No"]).names == ("No", "Yes")
    assert LabelMap.of(["high", "low", "medium"]).names == ("low", "medium", "high")
    assert LabelMap.of(["b", "a"]).names == ("a", "b")
    assert LabelMap.of(["b", "a"]).decode([1, 0]) == ["b", "a"]
    with pytest.raises(InputError, match="twice"):
        LabelMap(("a", "a"))


def data(values, **options):
    return TaskData.of({"text": ["some text"] * len(values), "y": values}, target="y", **options)


def test_encoded():
    train = data(["pos", "neg", "pos"])
    targets = train.encoded()
    assert targets.labels.names == ("neg", "pos") and targets.values.tolist() == [1, 0, 1]
    assert data(["neg"]).encoded(targets.labels).values.tolist() == [0]
    several = data(["1,3", "", "3"], kind="multilabel", separator=",").encoded()
    assert several.values.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert data(["1.5", "-2e3"], kind="regression").encoded().values.tolist() == [1.5, -2000]
    words = TaskData.of({"w": [["a", "b"]], "t": [["X", "Y"]]}, words="w", target="t")
    assert words.kind == "tokens" and words.encoded().values[0].tolist() == [0, 1] and words.texts == ["a b"]


def test_errors_name_the_row():
    train = data(["pos", "neg"]).encoded()
    with pytest.raises(InputError, match=r"row 2: the label 'odd' was not seen in training.*known are 'neg', 'pos'"):
        data(["pos", "odd"], kind="binary").encoded(train.labels)
    with pytest.raises(InputError, match=r"row 2 has no target \(2 rows have none\).*--drop-missing"):
        data(["1.5", np.nan, "", "2.5"]).encoded()
    with pytest.raises(InputError, match="row 2: the target 'x' is no number"):
        data(["1.5", "x"], kind="regression").encoded()
    with pytest.raises(InputError, match="a binary task has two labels, but there are 3"):
        data(["a", "b", "c"], kind="binary").encoded()
    with pytest.raises(InputError, match="no kind of target 'ranking'"):
        data(["a", "b"], kind="ranking").encoded()
    with pytest.raises(InputError, match="row 1: 2 words and 1 tags"):
        TaskData.of({"w": [["a", "b"]], "t": [["X"]]}, words="w", target="t")
    tags = TaskData.of({"w": [["a", "b"]], "t": [["X", "Q"]]}, words="w", target="t")
    with pytest.raises(InputError, match="row 1, word 2: the label 'Q'"):
        tags.encoded(LabelMap(("X",)))
    with pytest.raises(InputError, match="no targets"):
        TaskData.of(["a"]).encoded()


def test_drop_missing():
    kept = data(["a", "", "b", None], drop_missing=True)
    assert kept.targets == ["a", "b"] and kept.where(1) == "the data, row 3"
    assert "2 rows without a target" in kept.notes[-1]


def test_text_column_is_found_or_an_error():
    table = {"id": [1, 2], "review": ["a very good film", "a very bad film"], "y": [1, 0]}
    assert TaskData.of(table, target="y").names["text"] == "review"
    with pytest.raises(InputError, match="name the text column with --text"):
        TaskData.of({"a": ["x", "y"], "b": ["x", "y"], "y": [1, 0]}, target="y")
