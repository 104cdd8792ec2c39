"""`glassbert distill`: a task and a corpus from the command line, and options that do not go together."""

import json
import subprocess
import sys

import pytest

from glassbert.cli import main
from tests.finetuning.toy import make_model, tune, write_reviews
from tests.training.toy import make_trainer

QUICK = ["--epochs", "1", "--engine", "numpy", "--threads", "1", "--no-baseline", "--no-report", "--resamples", "50"]


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["distill", *map(str, arguments)])
    return ended.value.code


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distill")
    make_model(folder / "small")
    train, dev = write_reviews(folder, 32, 16)
    tune(folder / "teacher", make_model(folder / "large", hidden_size=24), train, dev, epochs=1)
    return folder


def test_a_task(place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    files = ["--train", "train.csv", "--dev", "dev.csv", "--target", "verdict", "--augment", 1]
    code = run("--teacher", "teacher", "--student", "small", *files, "--augment-model", "large", "--run", "out", *QUICK)
    shown = capsys.readouterr().out
    assert code == 0 and "of the teacher" in shown and "Teacher: teacher." in shown
    assert json.loads((place / "out" / "settings.json").read_text())["settings"]["model"] == "small"
    models = json.loads((place / "out" / "result.json").read_text())["distillation"]["models"]
    assert [one["name"] for one in models] == ["teacher", "student"]


def test_a_corpus(tmp_path, corpus, capsys, monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
    make_trainer(corpus, tmp_path / "teacher", steps=2, hidden_size=24).train()
    make_trainer(corpus, tmp_path / "small", steps=2).train()
    code = run("--teacher", tmp_path / "teacher", "--student", tmp_path / "small", "--corpus", corpus, "--steps", 2,
               "--objective", "mlm+distill+hidden+relations", "--length", 16, "--engine", "numpy", "--run",
               tmp_path / "run")  # fmt: skip
    assert code == 0 and "Held-out loss" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]["teacher"].endswith("teacher")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--train", "train.csv"], "distill needs a teacher"),
     (["--teacher", "teacher", "--train", "train.csv", "--target", "verdict", "--steps", "3"],
      "--steps goes with --corpus, not with --train or --task"),
     (["--teacher", "large", "--corpus", "x.txt", "--epochs", "3"], "--epochs goes with --train or --task, not with"),
     (["--teacher", "teacher", "--student", "small", "--from-scratch", "--preset", "mini", "--train", "train.csv"],
      "--student small does not go with it"),
     (["--teacher", "large", "--student", "small", "--train", "train.csv", "--target", "verdict"],
      "so it cannot predict; fine-tune it first"),
     (["--teacher", "large", "--corpus", "x.txt", "--preset", "larger"],
      "the student mini has its own; add --from-scratch, or leave out --preset"),
     (["--teacher", "large", "--student", "small", "--corpus", "x.txt", "--size", "4"], "leave out --size"),
     (["--teacher", "teacher", "--student", "small", "--train", "train.csv", "--target", "verdict", "--preset", "mini"],
      "the student small has its own; add --from-scratch, or leave out --preset"),
     (["--teacher", "nowhere", "--train", "train.csv", "--target", "verdict"], "nowhere")],
)  # fmt: skip
def test_bad_input(place, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(place)
    assert run(*arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_help_teaches():
    shown = subprocess.run(
        [sys.executable, "-m", "glassbert", "distill", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "glassbert distill --teacher" in shown and "With --corpus" in shown
