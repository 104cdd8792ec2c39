"""The command `glassbert scale`."""

import json

import pytest

from glassbert.cli import main
from tests.evaluation.scaling.small_study import plant

SHARED = ["--batch", 2, "--length", 16, "--engine", "numpy", "--threads", 1, "--evaluation-rows", 16,
          "--final-evaluation-rows", 32]  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result: run.report.touch())
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("GLASSBERT_DATA", str(tmp_path / "data"))


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["scale", *(str(argument) for argument in arguments)])
    return ended.value.code or 0


def test_from_sizes_to_a_prediction(corpus, tmp_path, capsys):
    folder = tmp_path / "study"
    begin = ("--sizes", "1,1.5,2", "--tokens", "0.64k", "--repeats", 0, "--corpus", corpus, "-o", folder, *SHARED)
    run(*begin)
    shown = capsys.readouterr()
    assert "3 runs, about" in shown.err and "Point 1 of 3: size 1, 640 tokens" in shown.err
    assert "held-out loss" in shown.out and "report.html" in shown.out
    plant(folder, {"size-1-": 6.0, "size-1.5": 5.32, "size-2-": 5.1})
    assert run("-o", folder) == 0
    assert "Predicted for size 2.5 (3 × 160" in (out := capsys.readouterr().out) and "Least squares: L =" in out
    assert "the noise is assumed, not measured" in out and "Three sizes" in out
    assert run("-o", folder, "--json", "--predict", 3, "--count", "all") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["prediction"]["size"] == 3 and answer["law"]["terms"]["parameters"]["power"] > 0
    assert run(*begin, "--confirm") == 0
    assert "Then trained, size 2.5 has the loss" in capsys.readouterr().out
    plant(folder, {"size-1.5": 6.0, "size-2-": 6.0})
    assert run("-o", folder) == 1
    assert "No law: the loss does not fall" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sizes", "1,2,two", "--tokens", "1M"), "'two' is not a number"),
        (("--sizes", "1,2,3", "--tokens", "1X"), "'1X' is not a number"),
        (("--sizes", "1,2", "--tokens", "1M"), "at least 3 sizes"),
        (("--sizes", "1,2,3"), "one budget"),
        (("--tokens", "1M"), "needs --sizes"),
        ((), "there is no study"),
        (("--sizes", "1,2,3", "--tokens", "1M", "--corpus", "nowhere"), "there is no file or folder nowhere"),
        (("--sizes", "1,2,3", "--tokens", "1M", "--optimizer", "adam"), "optimizer must be one of"),
    ],
)
def test_wrong_arguments_give_an_error_message(arguments, said, tmp_path, capsys):
    assert run(*arguments, "-o", tmp_path / "study") == 2
    shown = capsys.readouterr().err
    assert said in shown and "Traceback" not in shown
    assert not (tmp_path / "study" / "study.json").exists()


def test_numbers_with_units_and_separators():
    from glassbert.cli.scale import _numbers

    assert _numbers("1, 1.5,2,", "--sizes") == [1, 1.5, 2]
    assert _numbers("500k,2M,1.5e6,1_000,1G", "--tokens") == [5e5, 2e6, 1.5e6, 1e3, 1e9]


def test_the_help_lists_the_options_of_a_study(capsys):
    assert run("--help") == 0
    shown = capsys.readouterr().out
    for flag in ("--sizes", "--tokens", "--minutes", "--predict", "--confirm", "--learning-rate", "--corpus"):
        assert flag in shown
    for flag in ("--steps", "--data-seed", "--start-from", "--patience"):
        assert flag not in shown
