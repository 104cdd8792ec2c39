"""`Predictor`: all heads, all input types, output files, models without card, and errors."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import CheckpointError, InputError
from glassbert.families.bert import MINI_BERT_CONFIG, BertConfig, BertCore, BertWithHead
from glassbert.finetuning.card import TASK, TaskCard
from glassbert.finetuning.predictor import Predictor, split_words
from glassbert.tasks import TaskData
from tests.finetuning.toy import make_tokenizer

TOKENIZER = make_tokenizer()
SIZES = {
    "vocab_size": TOKENIZER.vocab_size, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
    "num_hidden_layers": 1, "max_position_embeddings": 24, "initializer_range": 0.5,
}  # fmt: skip
HEADS = {
    "binary": ("sequence", 1, "binary_cross_entropy", ("no", "yes")),
    "multiclass": ("sequence", 3, "cross_entropy", ("a", "b", "c")),
    "multilabel": ("sequence", 3, "binary_cross_entropy", ("a", "b", "c")),
    "ordinal": ("sequence", 3, "ordinal", ("low", "mid", "high")),
    "regression": ("sequence", 1, "mean_squared_error", ()),
    "token": ("token", 3, None, ("O", "B-per", "I-per")),
    "span": ("span", 0, None, ()),
    "embedding": ("embedding", 0, None, ()),
}


def save(folder: Path, head: str, with_card: bool = True, **changes) -> Path:
    """Save a model with random weights, its tokenizer and a card."""
    kind, outputs, loss, labels = HEADS[head]
    config = MINI_BERT_CONFIG.replace(**SIZES)
    options = {"loss_options": {"target_mean": [5.0], "target_scale": [2.0]}} if head == "regression" else {}
    BertWithHead(config, kind, outputs, loss=loss, engine="numpy", seed=1, **options).save(folder)
    TOKENIZER.save(folder)
    columns = {"token": {"words": "words"}, "span": {"text": "q", "pair": "c"}}.get(head, {"text": "text"})
    card = TaskCard(title="toy", head=head, labels=labels, target="y", max_length=16, **{**columns, **changes})
    if with_card:
        card.save(folder)
    return folder


def load_predictor(tmp_path, head, **changes):
    return Predictor.load(save(tmp_path / head, head, **changes), engine="numpy", threads=1)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def test_all_input_types_give_the_same_outputs(tmp_path):
    predictor = load_predictor(tmp_path, "multiclass")
    texts = ["the bird sings", "a bitter night", "king " * 60]  # the last one takes several windows
    (tmp_path / "texts.csv").write_text("id,text\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n\n")
    expected = predictor.predict(texts)
    assert expected.probabilities().shape == (3, 3) and set(expected.answers()) <= {"a", "b", "c"}
    for given_ in (
        [{"text": text} for text in texts],
        {"text": texts},
        tmp_path / "texts.csv",
        tmp_path / "texts.txt",
        TaskData.of(texts, text="text"),
    ):
        np.testing.assert_allclose(predictor.predict(given_).outputs, expected.outputs, atol=1e-6)
    np.testing.assert_allclose(predictor.predict(texts[0]).outputs[0], expected.outputs[0], atol=1e-6)
    assert expected.per_second > 0


def test_files_without_and_with_header(tmp_path):
    """The card names the columns of files without header, such as SST-5."""
    reading = {"format": "tsv", "header": False, "columns": ["label", "text"]}
    predictor = load_predictor(tmp_path, "multiclass", reading=reading)
    (tmp_path / "like.txt").write_text("3\ta bird\n1\tthe king, he sings\n")
    (tmp_path / "named.csv").write_text('id,text\n7,a bird\n8,"the king, he sings"\n')
    expected = predictor.predict(["a bird", "the king, he sings"]).outputs
    for name in ("like.txt", "named.csv"):
        np.testing.assert_allclose(predictor.predict(tmp_path / name).outputs, expected, atol=1e-6)
    (tmp_path / "lines.txt").write_text("a bird\nthe king, he sings\n")
    np.testing.assert_allclose(predictor.predict(tmp_path / "lines.txt", format="lines").outputs, expected, atol=1e-6)
    named = predictor.predict(tmp_path / "named.csv", text="id")
    assert named.data.texts == ["7", "8"]


@pytest.mark.parametrize("head", HEADS)
def test_rows_of_every_head_are_json(tmp_path, head):
    predictor = load_predictor(tmp_path, head)
    asked = ("who sings", "the king sings at night") if head == "span" else "the bird sings"
    found = predictor.predict(asked)
    row = json.loads(json.dumps(found.rows()))[0]
    answer = row["prediction"]
    if head == "token":
        assert len(answer) == 3 and "entities" in row and 0 < row["probability"] <= 1
    elif head == "embedding":
        assert np.linalg.norm(answer) == pytest.approx(1) and len(answer) == 16
    elif head == "span":
        assert answer in "the king sings at night"
    elif head == "regression":
        assert isinstance(answer, float) and answer == pytest.approx(float(found.outputs[0]))
    else:
        assert set(row["probabilities"]) == set(predictor.card.labels)
        total = sum(row["probabilities"].values())
        assert head == "multilabel" or total == pytest.approx(1, abs=1e-5)


def test_temperature_thresholds_and_names_of_the_card(tmp_path):
    predictor = load_predictor(tmp_path, "binary", label_names=("sad", "glad"))
    plain = predictor.predict("the bird sings").probabilities()[0]
    hot = load_predictor(tmp_path, "binary", temperature=50.0).predict("the bird sings")
    assert abs(hot.probabilities()[0] - 0.5) < abs(plain - 0.5)
    strict, lax = (load_predictor(tmp_path, "binary", thresholds=(cut,)).predict("the bird") for cut in (1.0, 0.0))
    assert strict.answers() == ["no"] and lax.answers() == ["yes"]
    assert strict.confidence[0] == pytest.approx(1 - strict.probabilities()[0])
    assert set(predictor.predict("the bird").by_label()[0]) == {"sad", "glad"}
    labels = load_predictor(tmp_path, "multilabel", thresholds=(0.0, 1.0, 0.0)).predict("the bird")
    assert labels.answers() == [["a", "c"]] and labels.confidence is None


@pytest.mark.parametrize("head", ["binary", "multiclass", "ordinal", "multilabel", "token"])
def test_a_card_without_labels_is_refused(head, tmp_path):
    folder = save(tmp_path / head, head, with_card=False)
    kind = {"words": "words"} if head == "token" else {"text": "text"}
    TaskCard(title="toy", head=head, target="y", max_length=16, **kind).save(folder)
    with pytest.raises(CheckpointError, match=f"names 0 labels for a {head} head"):
        Predictor.load(folder, engine="numpy", threads=1)


def test_pairs_are_tuples(tmp_path):
    predictor = load_predictor(tmp_path, "regression", pair="other")
    assert predictor.predict(("a king", "a bird")).answers() == predictor.predict([("a king", "a bird")]).answers()
    with pytest.raises(InputError, match="compares two texts"):
        predictor.predict("a king")
    with pytest.raises(InputError, match="text 2"):
        predictor.predict([("a", "b"), "c"])


def test_embeddings_of_single_texts_and_of_pairs(tmp_path):
    predictor = load_predictor(tmp_path, "embedding", pair="other")
    assert predictor.predict(["a king", "a bird"]).vectors.shape == (2, 16)
    assert predictor.predict([{"text": "a king"}]).vectors.shape == (1, 16)
    assert predictor.predict([{"text": "a king", "other": "a bird"}]).vectors.shape == (1, 2, 16)
    pair = predictor.predict(("a king", "a king"))
    assert pair.vectors.shape == (1, 2, 16) and pair.answers()[0] == pytest.approx(1)


def test_table_rows_and_missing_columns(tmp_path):
    rows = [{"sex": "male" if n % 2 else "female", "age": n % 9 + 0.5, "y": n % 2} for n in range(40)]
    template = TaskData.of(rows, template="auto", target="y").template
    predictor = load_predictor(tmp_path, "binary", text=None, template=template)
    assert predictor.predict([{"sex": "male", "age": 3}]).data.texts == ["sex is male, age is 3"]
    by_hand = predictor.predict({"sex": "male"})
    assert by_hand.data.texts[0].startswith("sex is male") and "age" in by_hand.notes[-1]
    with pytest.raises(InputError, match=r"no column 'sx'.*did you mean 'sex'"):
        predictor.predict({"sx": "male"})
    with pytest.raises(InputError, match=r"lacks the columns 'sex', 'age'.*its columns are 'a'"):
        predictor.predict([{"a": 1}])


def test_entities_are_spans_of_words(tmp_path):
    predictor = load_predictor(tmp_path, "token")
    found = predictor.predict([["the", "king", "sings"], "The king, who sings."])
    assert found.data.words == [["the", "king", "sings"], ["The", "king", ",", "who", "sings", "."]]
    for words, tags, entities in zip(found.data.words, found.answers(), found.entities, strict=True):
        assert len(tags) == len(words)
        covered = {place for entity in entities for place in range(entity.start, entity.end)}
        assert covered == {place for place, tag in enumerate(tags) if tag != "O"}
        assert all(entity.text == " ".join(words[entity.start : entity.end]) for entity in entities)


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=60))
def test_split_words_keeps_all_characters(text):
    assert "".join(split_words(text)) == "".join(text.split())


def test_split_words():
    assert split_words("Don't ask @ada, it's in the U.S. (well-known)!") == [
        "Don't", "ask", "@ada", ",", "it's", "in", "the", "U.S.", "(", "well-known", ")", "!",
    ]  # fmt: skip


# ---- scores and files ------------------------------------------------------------------------------------------------


def test_judge(tmp_path):
    predictor = load_predictor(tmp_path, "multiclass", metric="accuracy")
    (tmp_path / "f.csv").write_text("text,y\na bird,a\na king,b\na stone,c\n")
    found = predictor.judge(tmp_path / "f.csv", resamples=20)
    right = np.mean([a == b for a, b in zip(found.answers(), "abc", strict=True)])
    assert found.scores["accuracy"].value == pytest.approx(right)
    with pytest.raises(InputError, match="lacks the column 'y'"):
        predictor.judge([{"text": "a bird"}])


def test_saved_files(tmp_path):
    predictor = load_predictor(tmp_path, "binary")
    found = predictor.predict(
        [{"text": 'say "hi", bird', "prediction": 7}, {"text": "king\nand line", "prediction": None}]
    )
    with open(found.save(tmp_path / "out.csv"), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["text", "prediction", "prediction 2", "probability", "p(yes)"]
    assert rows[0]["text"] == 'say "hi", bird' and rows[1]["text"] == "king\nand line"
    assert rows[0]["prediction 2"] in ("no", "yes")
    lines = [json.loads(line) for line in found.save(tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == json.loads(found.save(tmp_path / "out.json").read_text()) and lines[1]["prediction"] is None
    vectors = load_predictor(tmp_path, "embedding").predict(["a bird", "a king"])
    loaded = np.load(vectors.save(tmp_path / "v.npy"), allow_pickle=False)
    assert loaded.shape == (2, 16) and loaded.dtype == np.float32


def test_files_are_written_atomically(tmp_path, monkeypatch):
    found = load_predictor(tmp_path, "binary").predict(["a bird"] * 3)
    with pytest.raises(InputError, match=r"one of \.csv"):
        found.save(tmp_path / "out.xlsx")
    with pytest.raises(InputError, match="holds vectors"):
        found.save(tmp_path / "out.npy")
    monkeypatch.setattr(type(found), "rows", lambda self: iter([{"a": 1}, None]))
    with pytest.raises(AttributeError):
        found.save(tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["binary"]


# ---- models without card ---------------------------------------------------------------------------------------------


def test_hugging_face_folder_without_card(tmp_path):
    config = BertConfig(**SIZES)
    BertWithHead(config, "sequence", 2, engine="numpy").save(tmp_path)
    TOKENIZER.save(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    fields |= {"id2label": {"0": "NEGATIVE", "1": "POSITIVE"}, "label2id": {"NEGATIVE": 0, "POSITIVE": 1}}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    (tmp_path / "checksums.json").unlink()
    predictor = Predictor.load(tmp_path, engine="numpy")
    found = predictor.predict("the bird sings")
    assert found.answers()[0] in ("NEGATIVE", "POSITIVE") and predictor.card.max_length == 24
    assert predictor.model.config.type_vocab_size == 2


@pytest.mark.parametrize(
    ("head", "labels"),
    [("token", 3), ("multilabel", 3), ("binary", 2), ("regression", 0), ("embedding", 0), ("span", 0)],
)
def test_card_from_config(tmp_path, head, labels):
    predictor = Predictor.load(save(tmp_path, head, with_card=False), engine="numpy")
    assert predictor.card.head == head and len(predictor.card.labels) == labels


def test_sentence_transformers_folder(tmp_path):
    BertCore(BertConfig(**SIZES), engine="numpy").save(tmp_path)
    TOKENIZER.save(tmp_path)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [{"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for n, (path, kind) in enumerate(kinds)]  # fmt: skip
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    predictor = Predictor.load(tmp_path, engine="numpy")
    assert predictor.predict(["a bird", "a king"]).vectors.shape == (2, 16)
    assert -1 <= predictor.predict(("a bird", "a king")).answers()[0] <= 1


def test_error_for_a_model_without_task_head(tmp_path):
    BertWithHead(MINI_BERT_CONFIG.replace(**SIZES), "mlm", engine="numpy").save(tmp_path / "mlm")
    BertCore(BertConfig(**SIZES), engine="numpy").save(tmp_path / "core")
    for name in ("mlm", "core"):
        with pytest.raises(CheckpointError, match="glassbert finetune --model"):
            Predictor.load(tmp_path / name, engine="numpy")


def test_error_for_a_card_that_does_not_fit(tmp_path):
    folder = save(tmp_path, "multiclass")
    card = json.loads((folder / TASK).read_text())
    (folder / TASK).write_text(json.dumps({**card, "labels": ["a", "b"], "label_names": ["a", "b"]}))
    with pytest.raises(CheckpointError, match=r"task\.json has .* bytes, but"):
        Predictor.load(folder, engine="numpy")
    (folder / "checksums.json").unlink()
    with pytest.raises(CheckpointError, match="2 labels for a multiclass head, and the model has 3 outputs"):
        Predictor.load(folder, engine="numpy")
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        Predictor.load(tmp_path, engine="numpy")


def test_a_forecast_is_sent_to_its_command(tmp_path):
    folder = save(tmp_path, "regression")
    card = json.loads((folder / TASK).read_text())
    (folder / TASK).write_text(json.dumps({**card, "head": "forecast", "text": None}))
    (folder / "checksums.json").unlink()
    with pytest.raises(InputError, match=r"reads no text; use: glassbert forecast --model .* --series FILE"):
        Predictor.load(folder, engine="numpy")


# ---- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ([], "the list is empty"),
        ([3], "text 1 must be a string, got int"),
        (["a", None], "text 2 must be a string"),
        (Path("nowhere.csv"), "there is no file nowhere.csv"),
        ([{"other": "a"}], r"lacks the column 'text'.*--text"),
    ],
)
def test_bad_input(tmp_path, given_, sentence):
    with pytest.raises(InputError, match=sentence):
        load_predictor(tmp_path, "binary").predict(given_)


def test_unusual_and_empty_texts(tmp_path):
    found = load_predictor(tmp_path, "multiclass").predict(["", "  ", "\x00\x07", "é" * 40, "king " * 20_000])
    assert len(found.answers()) == 5 and np.isfinite(found.outputs).all()
    assert found.notes[-1].startswith("2 texts are empty")
