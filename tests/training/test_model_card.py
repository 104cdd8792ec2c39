"""Model cards and run pages: which weights, which machine, documents that were kept, and no paths of this machine."""

import json
import re
from pathlib import Path

import pytest

from glassbert.files import portable
from glassbert.training.history import History, weights_sentence
from glassbert.training.model_card import machine_of, model_card, without_paths
from glassbert.training.report import write_report
from glassbert.training.run_folder import RunFolder
from tests.training.toy import make_trainer

pytestmark = pytest.mark.usefixtures("quick_runs")
MACHINE = {"accelerator": "NVIDIA H200", "processor": "EPYC", "cores": 4}


@pytest.fixture
def finished(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "run").train()
    return tmp_path / "run"


def test_card_has_no_absolute_paths(finished, tmp_path):
    card = (finished / "model" / "README.md").read_text()
    assert str(tmp_path) not in card and str(Path.home()) not in card
    assert not re.search(r'[\s"`(](/[A-Za-z][\w.-]*){2,}', card), card
    assert 'glassbert.load("run/model")' in card and "without an accelerator" in card
    assert "The weights are" in card and "| source | documents kept | read |" in card


def test_card_counts_the_documents_that_were_kept(finished, without_checksums):
    settings = json.loads((finished / "settings.json").read_text())
    settings["data"]["sources"] = [
        {"name": str(finished / "texts" / "a.txt"), "documents": 1200, "kept": 1100},
        {"name": "b"},
    ]
    (finished / "settings.json").write_text(json.dumps(settings))
    result = json.loads((finished / "result.json").read_text())
    card = model_card(RunFolder(finished), result, "run", "run/model")
    assert "| a.txt | 1,100 | 1,200 |" in card and "| b | – | – |" in card


def test_card_names_the_teacher_and_the_texts_of_a_second_corpus(finished, without_checksums):
    path = finished / "settings.json"
    settings = json.loads(path.read_text())
    settings["data"]["general"] = {"sources": [{"name": "/texts/letters.txt", "documents": 30, "kept": 20}]}
    given = {"objective": "mlm+hidden", "teacher": "/models/large", "general": ["/texts/more"], "general_share": 0.25}
    settings["settings"] |= given
    settings["model"]["config"]["teacher_size"] = 384
    path.write_text(json.dumps(settings))
    card = model_card(RunFolder(finished), json.loads((finished / "result.json").read_text()), "run", "run/model")
    assert "The objective is `mlm+hidden`, with the teacher `large`. 25% of the rows are of letters.txt." in card
    assert "| letters.txt | 20 | 30 |" in card and "/texts" not in card and "/models" not in card
    width, own = settings["model"]["config"]["hidden_size"], settings["model"]["parameters"]
    assert f"of {own - 384 * width:,} parameters" in card  # the map to the teacher's width is not saved


def test_commands_name_no_folders_of_this_machine(finished):
    history = History.read(RunFolder(finished))
    history.info["settings"] |= {"corpus": ["/data/mine/corpus"], "wandb": "/var/log/x", "teacher": "runs/large"}
    settings = without_paths(history).settings
    assert settings["corpus"] == ["corpus"] and settings["wandb"] == "x" and settings["teacher"] == "large"


@pytest.mark.parametrize(
    ("engine", "machine", "text"),
    [
        ("mlx", MACHINE, "NVIDIA H200"),
        ("numpy", MACHINE, "EPYC with 4 cores, without an accelerator"),  # the card of the machine was not used
        ("mlx", {**MACHINE, "accelerator": ""}, "EPYC with 4 cores, without an accelerator"),
    ],
)
def test_machine_is_the_one_that_computed(engine, machine, text):
    assert machine_of({"machine": machine, "engine": {"name": engine}}) == text


def test_weights_are_named_with_their_step():
    best = weights_sentence({"weights": "best", "weights_step": 1200, "steps": 1500})
    assert "step 1,200" in best and "lowest held-out loss" in best and "1,500" in best
    assert "last step, 1,500" in weights_sentence({"weights": "last", "weights_step": 1500, "steps": 1500})
    assert "moving average" in weights_sentence({"weights": "average", "weights_step": 9, "steps": 9})
    assert weights_sentence({"weights": "last", "steps": 9}) == ""


def test_run_page_says_which_weights_and_why_evaluate_differs(finished):
    result = json.loads((finished / "result.json").read_text())
    assert result["weights_step"] <= result["steps"] and result["weights"] in ("last", "best", "average")
    page = write_report(RunFolder(finished)).read_text()
    assert weights_sentence(result) in page and "glassbert evaluate</code> cuts the same documents" in page


def test_portable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert portable("runs/a") == "runs/a" and portable(tmp_path / "runs" / "a") == "runs/a"
    assert portable(tmp_path.parent / "elsewhere" / "a" / "model") == "a/model"


def test_portable_in_a_working_folder_that_was_removed(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert portable(tmp_path / "runs" / "a") == "runs/a"
