"""Predictions of every kind of head as columns of Arrow: their types do not depend on the values of a piece."""

import numpy as np
import pyarrow
import pytest

from glassbert.bulk.answers import with_answers
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.predictions import Predictions
from glassbert.metrics import Scores
from glassbert.tasks import TaskData
from glassbert.tasks.reading import table_from_records

CASES = {
    "binary": ({"labels": ("no", "yes")}, np.array([2.0, -1.0]), ["yes", "no"], "string"),
    "multiclass": ({"labels": ("a", "b", "c")}, np.eye(3)[[2, 0]] * 5, ["c", "a"], "string"),
    "ordinal": ({"labels": ("1", "2", "3")}, np.array([[5.0, 5.0], [-5.0, -5.0]]), ["3", "1"], "string"),
    "multilabel": (
        {"labels": ("a", "b")},
        np.array([[3.0, 3.0], [-3.0, -3.0]]),
        [["a", "b"], []],
        "list<item: string>",
    ),
    "regression": ({}, np.array([1.5, 2.0]), [1.5, 2.0], "double"),
}


@pytest.mark.parametrize("head", CASES)
def test_columns_of_a_head(head):
    fields, outputs, expected, kind = CASES[head]
    card = TaskCard(title="a task", head=head, text="text", **fields)
    data = TaskData(["one", "two"], table_from_records([{"text": "one"}, {"text": "two"}], "the texts"))
    whole = Predictions(card, data, None, outputs, Scores())
    table = with_answers(pyarrow.table({"text": data.texts}), whole, "a.parquet", 10)
    assert table["prediction"].to_pylist() == expected
    assert table["source_row"].to_pylist() == [11, 12]
    assert str(table.schema.field("prediction").type).replace("element", "item") == kind
    part = Predictions(card, data.select([1]), None, outputs[1:], Scores())
    assert with_answers(pyarrow.table({"text": ["two"]}), part, "a.parquet", 11).schema == table.schema
    if fields:
        assert [name for name in table.column_names if name.startswith("p(")] == [
            f"p({one})" for one in fields["labels"]
        ]
