"""The commands `glassbert plan` and `glassbert adapt`."""

import json
import random
import re

import pytest

from glassbert.cli import main
from tests.training.toy import make_trainer

SMALL = ["--batch", 4, "--length", 16, "--engine", "numpy", "--threads", 1, "--evaluation-rows", 16,
         "--final-evaluation-rows", 16]  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path, quick_runs):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("GLASSBERT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("glassbert.training.planning.timing.SECONDS", 0.0)


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code or 0


def test_a_plan_is_printed(corpus, capsys):
    assert run("plan", "--size", 1, "--tokens", 100_000, "--corpus", corpus, *SMALL) == 0
    shown = capsys.readouterr().out
    for said in ("tokens/s", "Epoch", "Memory", "between", "Best for this budget: --size", "another text"):
        assert said in shown
    assert run("plan", "--size", 1, "--tokens", "100M", "--corpus", corpus, "--no-sizes", *SMALL) == 0
    assert re.search(r"the run reads \d[\d.]* k of them", capsys.readouterr().out)
    assert run("plan", "--size", 1, "--tokens", 10_000, "--corpus", corpus, "--no-sizes", "--json", *SMALL) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == 10_048 and found["sizes"] == [] and found["expectation"]["loss"]["low"] > 0


def test_a_finished_run_is_added(corpus, tmp_path, capsys):
    make_trainer(corpus, tmp_path / "run").train()
    assert run("plan", "--add", tmp_path / "run") == 0
    assert "1 of 1 runs added" in capsys.readouterr().out
    assert run("plan", "--add", tmp_path / "run") == 0
    assert "0 of 1 runs added" in capsys.readouterr().out


def test_an_adaptation_from_the_command_line(corpus, tmp_path, capsys):
    make_trainer(corpus, tmp_path / "run").train()
    rng = random.Random(3)
    words = ["kernel", "socket", "the", "thread", "of", "runs", "a", "house"]
    documents = ["\n".join(" ".join(rng.choices(words, k=12)) + "." for _ in range(8)) for _ in range(40)]
    (tmp_path / "domain.txt").write_text("\n\n".join(documents))
    command = ("adapt", tmp_path / "run", "--corpus", tmp_path / "domain.txt", "--new-pieces", 10, "--steps", 4)
    assert run(*command, "--general", corpus, "--run", tmp_path / "adapted", *SMALL) == 0
    shown = capsys.readouterr().out
    for said in ("new pieces, vocabulary now", "kernel", "nats per old token", "nats per word", "general", "before",
                 "of the change of the weights was kept"):  # fmt: skip
        assert said in shown
    assert run(*command, "--no-general", "--run", tmp_path / "alone", *SMALL) == 0
    shown = capsys.readouterr().out
    assert "No general text" in shown and "of the change" not in shown
    assert run(*command, "--general", corpus, "--general-limit", 0, "--json", "--run", tmp_path / "json", *SMALL) == 0
    share = json.loads(capsys.readouterr().out)["weights_share"]
    assert share == json.loads((tmp_path / "json" / "adaptation.json").read_text())["choice"]["share"]
    assert run(*command, "--general", corpus, "--general-limit", -1, "--run", tmp_path / "none", *SMALL) == 2
    assert "general_limit must be a number of at least 0" in capsys.readouterr().err
    assert run(*command, "--general", corpus, "--run", tmp_path / "adapted", *SMALL) == 2
    assert "already contains a run" in capsys.readouterr().err


def test_wrong_arguments_give_one_sentence(corpus, capsys, tmp_path):
    assert run("plan", "--minutes", 0.001, *SMALL) == 2
    assert "minutes are too short" in capsys.readouterr().err
    assert run("adapt", tmp_path / "nothing", "--corpus", corpus, "--run", tmp_path / "run") == 2
    assert "Traceback" not in capsys.readouterr().err
