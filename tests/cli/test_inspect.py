"""The command `glassbert inspect`: page, summary, JSON, pictures and errors."""

import json

import pytest

from glassbert.cli import main
from glassbert.reports import figures
from tests.insight.specimen import sentences, specimen

TEXT = "the [MASK] river sings."


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["inspect", *map(str, arguments)])
    return ended.value.code or 0


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def save(name, **options):
        opened = specimen(dtype="float32", **options)
        opened.model.save(folder / name)
        opened.tokenizer.save(folder / name)
        return folder / name

    return {
        "words": save("words"),
        "classes": save("classes", config="bert", head="sequence", num_labels=2),
        "bare": save("bare", config="bert", head=None),
    }


def test_a_prediction_is_shown_and_its_page_written(saved, tmp_path, capsys):
    assert run(saved["words"], TEXT, "-o", tmp_path / "page.html") == 0
    shown = capsys.readouterr()
    assert "without it" in shown.out and "layer by layer" in shown.out and str(tmp_path / "page.html") in shown.out
    assert shown.err == ""
    assert "Attributions of the words" in (tmp_path / "page.html").read_text()


def test_json_is_one_object(saved, tmp_path, capsys):
    assert run(saved["words"], TEXT, "--json", "--top", 3, "-o", tmp_path / "page.html") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["answers"]) == 3 and found["tokens"][2] == "[MASK]"


def test_another_answer_is_explained(saved, tmp_path, capsys):
    assert run(saved["words"], TEXT, "--answer", "stone", "--json", "-o", tmp_path / "page.html") == 0
    assert json.loads(capsys.readouterr().out)["explained"]["name"] == "stone"


def test_a_classifier_needs_no_mask(saved, tmp_path, capsys):
    assert run(saved["classes"], "the river sings.", "-o", tmp_path / "page.html") == 0
    assert "%" in capsys.readouterr().out


@pytest.mark.skipif(not figures.available(), reason="matplotlib is not installed")
def test_pictures_compared_with_the_untrained_model(saved, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n".join(sentences(20)))
    arguments = [
        saved["words"],
        "--pictures",
        tmp_path / "pics",
        "--against",
        "untrained",
        "--dev",
        tmp_path / "text.txt",
    ]
    assert run(*arguments, "--only", "heads", "--only", "training") == 0
    shown = capsys.readouterr().out
    assert "drawn" in shown and "left out" in shown and (tmp_path / "pics" / "heads.png").exists()
    assert run(*arguments, "--only", "attention", "--json") == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == [
        {"name": "attention", "title": "Attention maps", "left_out": ""}
    ]


@pytest.mark.parametrize(
    ("which", "arguments", "message"),
    [
        ("words", [], "nothing to inspect"),
        ("words", ["no mask"], "must contain [MASK]"),
        ("words", [TEXT, "--against", "untrained"], "--against needs --pictures"),
        ("words", ["--pictures", "x", "--only", "nothing"], "no insight 'nothing'"),
        ("words", ["--pictures", "x", "--dev", "missing.txt"], "missing.txt"),
        ("bare", [TEXT], "has no head"),
    ],
)
def test_wrong_arguments_give_an_error_message(saved, which, arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(saved[which], *arguments) == 2
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split()) and shown.out == ""
    assert not list(tmp_path.iterdir())


def test_a_missing_model_is_named(capsys, tmp_path):
    assert run(tmp_path / "nowhere", TEXT) == 2
    assert "nowhere" in capsys.readouterr().err
