"""`glassbert predict`: printed output, output files, and errors."""

import io
import json

import numpy as np
import pytest

from glassbert.cli import main
from glassbert.families.bert import MINI_BERT_CONFIG, BertWithHead
from glassbert.finetuning.card import TaskCard
from glassbert.tasks import TaskData
from tests.finetuning.toy import make_tokenizer

TOKENIZER = make_tokenizer()
CONFIG = MINI_BERT_CONFIG.replace(
    vocab_size=TOKENIZER.vocab_size, hidden_size=16, num_attention_heads=2, intermediate_size=32, num_hidden_layers=1,
    max_position_embeddings=24, initializer_range=0.5,
)  # fmt: skip


@pytest.fixture
def predict(tmp_path, capsys):
    """A function that runs the command on a model and returns exit status, stdout and stderr."""

    def run(head, outputs, *arguments, loss=None, kind="sequence", **card):
        BertWithHead(CONFIG, kind, outputs, loss=loss, engine="numpy", seed=2).save(tmp_path / "run")
        TOKENIZER.save(tmp_path / "run")
        TaskCard(**{"title": "toy", "head": head, "text": "text", "max_length": 16, **card}).save(tmp_path / "run")
        status = 0
        try:
            main(["predict", str(tmp_path / "run"), *map(str, arguments), "--engine", "numpy"])
        except SystemExit as exit:
            status = exit.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


BINARY = {"labels": ("no", "yes"), "loss": "binary_cross_entropy"}


def test_text(predict):
    status, out, _ = predict("binary", 1, "the bird sings", **BINARY)
    assert not status and "yes" in out and "no" in out and "%" in out


def test_json(predict):
    status, out, _ = predict("binary", 1, "the bird sings", "--json", **BINARY)
    row = json.loads(out)
    assert not status and row["prediction"] in ("no", "yes") and sum(row["probabilities"].values()) == pytest.approx(1)


def test_input_and_output_file(predict, tmp_path):
    (tmp_path / "in.csv").write_text("id,text\n1,a bird\n2,a king\n")
    status, out, err = predict("binary", 1, "--file", tmp_path / "in.csv", "--output", tmp_path / "o.csv", **BINARY)
    assert not status and not out and "2 predictions" in err and "examples/s" in err
    assert (tmp_path / "o.csv").read_text().startswith("id,text,prediction,probability,p(yes)\n1,a bird,")


def test_file_without_output(predict, tmp_path):
    (tmp_path / "in.txt").write_text("a bird\n" * 20)
    status, out, _ = predict("multiclass", 3, "--file", tmp_path / "in.txt", labels=("a", "b", "c"))
    assert not status and "8 more" in out and "20 examples" in out and "per second" in out


def test_stdin(predict, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a bird\n\na king\n")))
    status, out, _ = predict("multiclass", 3, "--file", "-", "--json", labels=("a", "b", "c"))
    assert not status and [json.loads(line)["text"] for line in out.splitlines()] == ["a bird", "a king"]


@pytest.mark.parametrize(
    ("head", "card", "arguments", "message"),
    [
        ("binary", {"pair": "other"}, ["a bird"], "reads two texts; give --pair, or a --file with the columns 'text'"),
        ("binary", {"pair": "other"}, ["--file", "-"], "reads two texts; give a --file with the columns 'text' and"),
        ("binary", {}, ["a bird", "--pair", "a king"], "this model reads one text; leave out --pair"),
        ("token", {"words": "words"}, ["a bird", "--pair", "a king"], "this model reads one text; leave out --pair"),
    ],
)
def test_texts_that_the_model_does_not_read(predict, monkeypatch, head, card, arguments, message):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a bird\n")))
    options = BINARY if head == "binary" else {"labels": ("B-x", "O"), "text": None, "kind": "token"}
    status, out, err = predict(head, len(options["labels"]) - (head == "binary"), *arguments, **options, **card)
    assert status == 2 and not out and message in " ".join(err.split())


def test_scores(predict, tmp_path):
    (tmp_path / "in.csv").write_text("text,y\na bird,no\na king,yes\na stone,yes\n")
    status, out, _ = predict("binary", 1, "--file", tmp_path / "in.csv", "--score", target="y", **BINARY)
    assert not status and "auc" in out and "accuracy" in out


def test_other_heads(predict, tmp_path):
    assert "/" in predict("token", 3, "the bird", kind="token", text=None, words="w", labels=("N", "V", "D"))[1]
    tags = {"labels": ("O", "B-per", "I-per"), "kind": "token", "text": None, "words": "w"}
    assert not predict("token", 3, "the bird sings", **tags)[0]
    assert float(predict("regression", 1, "the bird", loss="mean_squared_error")[1])
    span = predict("span", 0, "who sings", "--pair", "the king sings", kind="span", text="q", pair="c")
    assert not span[0] and span[1].strip()
    labels = predict("multilabel", 2, "a bird", labels=("x", "y"), loss="binary_cross_entropy", thresholds=(1.0, 1.0))
    assert "No label reaches its threshold" in labels[1] and "from 1.00" in labels[1]
    assert "16 numbers" in predict("embedding", 0, "the bird", kind="embedding")[1]
    assert "cosine" in predict("embedding", 0, "the bird", "--pair", "a king", kind="embedding", pair="b")[1]
    (tmp_path / "in.txt").write_text("a bird\na king\n")
    arguments = ("--file", tmp_path / "in.txt", "--output", tmp_path / "v.npy")
    assert not predict("embedding", 0, *arguments, kind="embedding")[0]
    assert np.load(tmp_path / "v.npy", allow_pickle=False).shape == (2, 16)


def test_table_row(predict):
    rows = [{"sex": "male" if n % 2 else "female", "age": n % 9 + 0.5, "y": n % 2} for n in range(40)]
    card = {"template": TaskData.of(rows, template="auto", target="y").template, "text": None}
    status, out, err = predict("binary", 1, "-c", "sex=male", **card, **BINARY)
    assert not status and "yes" in out and "taken as unknown: age" in err
    status, _, err = predict("binary", 1, "-c", "sex", **card, **BINARY)
    assert status == 2 and "NAME=VALUE" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give exactly one input"),
        (("a", "--file", "x.csv"), "a text and --file"),
        ((" ",), "the text is empty"),
        (("--file", "nowhere.csv"), "there is no file nowhere.csv"),
        (("--pair", "b", "--file", "x.csv"), "--pair needs a text"),
        (("a", "--output", "x.xls"), "unknown file extension"),
    ],
)
def test_errors(predict, arguments, message):
    status, out, err = predict("binary", 1, *arguments, **BINARY)
    assert status == 2 and not out and message in " ".join(err.split()) and "Traceback" not in err


def test_help(capsys):
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    out = capsys.readouterr().out
    assert "glassbert predict runs/titanic" in out and "calibrated" in out
