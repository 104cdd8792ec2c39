"""Files people really have, through fine-tuning, prediction and forecasting."""

import datetime

import numpy as np
import pytest

from glassbert.errors import GlassBertError
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.run import _with_saved_examples
from glassbert.tasks import Series
from glassbert.training.run_folder import RunFolder
from tests.finetuning.test_predictor import save
from tests.finetuning.test_reading import read
from tests.finetuning.toy import sentences
from tests.tasks.awkward import excel

TEXTS = ["the bird sings", "a bitter night", "the king runs"]


def test_a_german_table(tmp_path):
    rows = "".join(f"{text};{i / 4:.2f};{label}\r\n".replace(".", ",") for i, (text, label) in enumerate(sentences(60)))
    path = tmp_path / "größe.csv"
    path.write_bytes(f"Text;Größe;Urteil\r\n{rows}".encode("cp1252"))
    found = read(path, target="Urteil", template="auto")
    assert found.train.table.columns["Größe"][1] in {f"{i / 4:.2f}" for i in range(60)}
    note = next(note for note in found.notes if note.startswith("größe.csv: "))
    assert "Windows-1252" in note and "semicolons" in note and "decimal commas" in note and "\n" not in note


def test_the_positive_class_is_named_and_chosen(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,y\n" + "".join(f"{text},{y}\n" for text, y in sentences(60)))
    found = read(path, target="y")
    assert "The positive class is 'good'; --positive chooses the other one." in found.notes
    other = read(path, target="y", positive="bad")
    assert other.card.labels == ("good", "bad") and "The positive class is 'bad'" in " ".join(other.notes)
    with pytest.raises(GlassBertError, match="no label 'best' for --positive; its labels are 'bad', 'good'"):
        read(path, target="y", positive="best")
    with pytest.raises(GlassBertError, match="--positive is for two classes"):
        read(path, target="y", positive="bad", head="multiclass")


def test_two_text_columns_are_a_pair(tmp_path):
    rows = [(i, a, b, y) for i, ((a, y), (b, _)) in enumerate(zip(sentences(60), sentences(60, 1), strict=True))]
    path = tmp_path / "t.csv"
    path.write_text("id,first text,second,y\n" + "".join(f"{i},{a},{b},{y}\n" for i, a, b, y in rows))
    found = read(path, target="y")
    assert (found.card.text, found.card.pair) == ("first text", "second")
    assert any("are read as a pair (--text 'first text' --pair second)" in note for note in found.notes)
    path.write_text("n,first,second,y\n" + "".join(f"{i % 7},{a},{b},{y}\n" for i, a, b, y in rows))
    other = read(path, target="y")
    assert other.card.pair is None and other.card.template is not None
    assert any("--text first --pair second compares them" in note for note in other.notes)
    assert read(path, target="y", pair="second").card.text == "first"


def test_options_that_fit_one_file_are_not_forced_on_another(tmp_path):
    train, dev = tmp_path / "train.csv", tmp_path / "dev.xlsx"
    train.write_text("text^y^id\n" + "".join(f"{text}^{y}^7\n" for text, y in sentences(60)))
    dev.write_bytes(excel([["text", "y"], *map(list, sentences(20, 1))])())
    found = read(train, dev=dev, target="y", delimiter="^", drop=["id"])
    assert len(found.dev) == 20 and found.card.reading == {"delimiter": "^"}
    with pytest.raises(GlassBertError, match="--sheet does not apply to csv files"):
        read(train, target="y", sheet="1")
    with pytest.raises(GlassBertError, match=r"no column 'idd'.*did you mean 'id'"):
        read(train, target="y", delimiter="^", drop=["idd"])


def test_a_header_of_numbers_is_found_by_the_target(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2\n" + "".join(f"{text},{y}\n" for text, y in sentences(60)))
    assert read(path, target="2").card.text == "1"


# ---- prediction ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    folder = save(tmp_path_factory.mktemp("model") / "m", "multiclass", reading={"delimiter": ";"})
    return Predictor.load(folder, engine="numpy", threads=1)


def files(tmp_path):
    lines = "".join(f"{i};{text}\n" for i, text in enumerate(TEXTS))
    contents = {
        "a.csv": (f"id;text\n{lines}".encode("utf-16"), {}),
        "b.csv": (f"id^text\n{lines}".replace(";", "^").encode(), {"delimiter": "^"}),
        "c.xlsx": (excel([["id", "text"], *map(list, enumerate(TEXTS))])(), {}),
        "d.txt": ("\n".join(TEXTS).encode("utf-16"), {}),
        "e.csv": (f"id;title\n{lines}".encode(), {"text": "title"}),
        "f.dat": ("\n".join(TEXTS).encode("cp1252"), {"format": "lines", "encoding": "cp1252"}),
    }
    for name, (content, options) in contents.items():
        (tmp_path / name).write_bytes(content)
        yield tmp_path / name, options


def test_predictions_for_files(predictor, tmp_path):
    expected = predictor.predict(TEXTS).probabilities()
    for path, options in files(tmp_path):
        assert np.allclose(predictor.predict(path, **options).probabilities(), expected, atol=1e-6), path.name
    with pytest.raises(GlassBertError, match=r"lacks the column 'text'.*name the text column with --text"):
        predictor.predict(tmp_path / "e.csv")


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_predictions_for_frames(predictor, name):
    package = pytest.importorskip(name)
    expected = predictor.predict(TEXTS).probabilities()
    frame = package.DataFrame({"id": range(3), "text": TEXTS})
    for given in (frame, frame["text"]):
        assert np.allclose(predictor.predict(given).probabilities(), expected, atol=1e-6)


# ---- series ----------------------------------------------------------------------------------------------------------


def test_a_series_with_decimal_commas(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("Monat;Höhe\n2020-01;1.234,5\n2020-02;0,25\n".encode("cp1252"))
    series = Series.of(path)
    assert series.values.tolist() == [1234.5, 0.25] and series.name == "Höhe"
    path.write_text("Monat;Wert\n2020-01;1\n2020-02;viel\n")
    with pytest.raises(GlassBertError, match=r"line 3: 'viel' in the column 'Wert' is no number.*--value"):
        Series.of(path)


# ---- data frames -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_training_on_a_frame(name, tmp_path):
    package = pytest.importorskip(name)
    rows = sentences(60)
    columns = {"review": [text for text, _ in rows], "code": ["007" if y == "good" else "01" for _, y in rows]}
    frame = package.DataFrame({**columns, "when": [datetime.date(2024, 5, 1)] * 60})
    with _with_saved_examples(RunFolder(tmp_path / "run"), {"train": frame, "target": "code"}) as given:
        found = read(given["train"], target="code", text="review", drop=["when"])
    assert found.card.labels == ("01", "007") and "when" not in found.train.table.columns
