"""Data frames and other objects of Python are read like files."""

import datetime

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.tasks import TaskData, read_table

COLUMNS = {"text": ["good film", "bad film", None], "label": [1, 0, 1], "share": ["1,5", "2,25", "3"]}
EXPECTED = {"text": ["good film", "bad film", None], "label": [1, 0, 1], "share": ["1.5", "2.25", "3"]}


def made(name, columns):
    package = pytest.importorskip(name)
    return package.table(columns) if name == "pyarrow" else package.DataFrame(columns)


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow"])
def test_frames(name):
    frame = made(name, COLUMNS)
    table = read_table(frame)
    assert table.columns == EXPECTED and table.where(1) == "the data, row 2"
    assert list(read_table(frame, drop=["share"]).columns) == ["text", "label"]
    assert read_table(frame, decimal=".").columns["share"] == COLUMNS["share"]
    assert TaskData.of(frame, text="text", target="label").kind == "binary"
    with pytest.raises(TextError, match="--delimiter does not apply to data in memory"):
        read_table(frame, delimiter=";")


def test_pandas_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "kind": pandas.Categorical(["a", "b"]),
            "day": pandas.to_datetime(["2024-05-01", None]),
            "n": pandas.array([1, None], dtype="Int64"),
            "x": [np.float32(0.5), float("nan")],
            "words": [["a", "b"], []],
            7: ["u", "v"],
        }
    )
    assert read_table(frame).columns == {
        "kind": ["a", "b"],
        "day": ["2024-05-01", None],
        "n": [1, None],
        "x": [0.5, None],
        "words": [["a", "b"], []],
        "7": ["u", "v"],
    }
    with pytest.raises(TextError, match="two columns called 'a'"):
        read_table(pandas.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(TextError, match="has no rows"):
        read_table(pandas.DataFrame({"a": []}))


def test_a_lazy_polars_frame():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [datetime.date(2024, 5, 1)], "b": [[1, 2]], "c": [{"k": 1}]})
    assert read_table(frame.lazy()).columns == {"a": ["2024-05-01"], "b": [[1, 2]], "c": [{"k": 1}]}


def test_other_values_become_plain():
    columns = {
        "time": [np.datetime64("2024-05-01T10:00"), np.datetime64("NaT")],
        "bytes": [b"abc", b"\xff"],
        "huge": [10**9000, 1],
        "set": [{"b", "a"}, set()],
        "array": [np.arange(2), np.array(3)],
    }
    table = read_table(columns).columns
    assert table["time"] == ["2024-05-01T10:00", None]
    assert table["bytes"] == ["abc", "\ufffd"]
    assert table["huge"] == [hex(10**9000), 1]
    assert table["set"] == [["a", "b"], []] and table["array"] == [[0, 1], 3]
    for bad in ({"a": 1}, {"a": "text"}, {"a": [1], "b": [1, 2]}, [b"bytes"], 3):
        with pytest.raises(TextError):
            read_table(bad)
