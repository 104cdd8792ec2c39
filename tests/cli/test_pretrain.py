"""`glassbert pretrain`, `resume`, `fill-mask` and `runs`, called through the command line."""

import json

import pytest

from glassbert.cli import main
from glassbert.training.trainer import Trainer
from tests.training.toy import SETTINGS


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code or 0


def flags(**changes):
    given = {**SETTINGS, **changes}
    return [word for name, value in given.items() for word in ("--" + name.replace("_", "-"), value)]


def test_pretrain_fill_mask_and_runs(corpus, tmp_path, capsys):
    assert run("pretrain", "--corpus", corpus, "--run", tmp_path / "runs" / "one", *flags()) == 0
    shown = capsys.readouterr()
    assert "Held-out loss" in shown.out and "report.html" in shown.out
    assert "100%" in shown.err  # plain lines, since there is no terminal
    assert (
        run("fill-mask", tmp_path / "runs" / "one", "the [MASK] sings and [MASK].", "--engine", "numpy", "--json") == 0
    )
    answers = json.loads(capsys.readouterr().out)
    assert len(answers) == 2 and len(answers[0]) == 5
    assert run("fill-mask", tmp_path / "runs" / "one", "the [MASK] sings.", "--engine", "numpy") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("the ")
    assert run("runs", tmp_path / "runs") == 0
    assert "one" in capsys.readouterr().out
    assert run("runs", tmp_path / "runs", "-o", tmp_path / "runs.html") == 0
    assert "Comparison of runs" in (tmp_path / "runs.html").read_text()


def test_pretrain_from_a_text_file(tmp_path, capsys):
    from tests.training.toy import texts

    (tmp_path / "book.txt").write_text("\n\n".join(texts(300)))
    given = flags(vocab_size=64, steps=3)
    assert run("pretrain", "--corpus", tmp_path / "book.txt", "--run", tmp_path / "run", *given) == 0
    assert (tmp_path / "run" / "corpus" / "manifest.json").exists()


def test_flags_override_a_settings_file(corpus, tmp_path, monkeypatch):
    path = tmp_path / "run.toml"
    path.write_text('preset = "mini"\nsteps = 500\nbatch = 4\n[model]\nhidden_size = 32\n')
    seen = []
    monkeypatch.setattr(Trainer, "train", lambda self: seen.append(self.settings) or exit(0))
    run("pretrain", "--settings", path, "--steps", "3", "--corpus", corpus, "--length", "16", "--run", tmp_path / "run")
    assert seen[0].steps == 3 and seen[0].batch == 4 and seen[0].model == {"hidden_size": 32}


def test_help_lists_the_flags_of_settings(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run("pretrain", "--help") == 0
    shown = capsys.readouterr().out
    for flag in ("--minutes", "--learning-rate", "--gradient-checkpointing", "--hidden-size", "--size", "--settings"):
        assert flag in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "5", "--minutes", "1"], "choose one of them"),
        (["--preset", "tiny"], "there is no preset 'tiny'"),
        (["--corpus", "nowhere.txt"], "nowhere.txt"),
        (["--settings", "nowhere.toml"], "cannot be read"),
    ],
)
def test_mistakes_give_clear_errors(arguments, message, tmp_path, capsys):
    assert run("pretrain", "--run", tmp_path / "run", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_corpus_smaller_than_a_batch_is_refused(corpus, tmp_path, capsys):
    assert run("pretrain", "--run", tmp_path / "run", "--corpus", corpus, *flags(batch=5000)) == 2
    said = capsys.readouterr().err
    assert "fewer than a batch of 5000" in said and "max_seq_length" not in said
    assert not (tmp_path / "run" / "settings.json").exists()


def test_too_few_minutes_are_refused(corpus, tmp_path, capsys):
    given = [word for word in flags() if word not in ("--steps", 12)]
    assert run("pretrain", "--run", tmp_path / "run", "--corpus", corpus, *given, "--minutes", "0.0001") == 2
    assert "too short" in capsys.readouterr().err
    assert not (tmp_path / "run" / "settings.json").exists()


def test_resume_and_runs_report_what_is_missing(tmp_path, capsys):
    assert run("resume", tmp_path / "nothing") == 2
    assert "there is no run" in capsys.readouterr().err
    assert run("runs", tmp_path / "nothing") == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run("runs", tmp_path) == 2
    assert "there are no runs" in capsys.readouterr().err
