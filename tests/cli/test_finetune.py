"""`glassbert finetune`: a run, a settings file, interruption, and errors."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from glassbert.cli import main
from tests.finetuning.toy import make_model, write_reviews


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"), train=400)


def glassbert(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def arguments(encoder, files, run):
    return (
        *("finetune", "--model", encoder, "--train", files[0], "--dev", files[1], "--target", "verdict"),
        *("--run", run, "--engine", "numpy", "--threads", 1, "--no-report", "--no-baseline", "--resamples", 20),
    )


def test_run(tmp_path, encoder, files, capsys):
    run = tmp_path / "run"
    flags = ("--epochs", 3, "--learning-rate", 0.01, "--seeds", 2, "--batch", 8)
    assert glassbert(*arguments(encoder, files, run), *flags) == 0
    shown = capsys.readouterr()
    assert "auc" in shown.out and "over 2 seeds" in shown.out and f"glassbert predict {run}" in shown.out
    assert "The head is binary" in shown.err and "examples/s" in shown.err
    assert (run / "model" / "task.json").exists()


def test_settings_file(tmp_path, encoder, files, capsys):
    (tmp_path / "settings.toml").write_text("epochs = 1\nbatch = 16\nmetric = 'f1'\n")
    flags = ("--settings", tmp_path / "settings.toml", "--metric", "accuracy")
    assert glassbert(*arguments(encoder, files, tmp_path / "run"), *flags) == 0
    assert "main metric accuracy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["finetune"], "--task"),
        (["finetune", "--model", "larger", "--train", "x.csv"], "--from-scratch --preset larger"),
        (["finetune", "--preset", "larger", "--train", "x.csv"], "add --from-scratch"),
        (["finetune", "--from-scratch", "--train", "x.csv"], "needs --preset; choose one of mini, larger"),
        (["finetune", "--from-scratch", "--preset", "mnii", "--train", "x.csv"], "there is no preset 'mnii'"),
        (
            ["finetune", "--from-scratch", "--preset", "mini", "--model", "runs/x", "--train", "x.csv"],
            "does not go with",
        ),
        (["finetune", "--model", "mini"], "--task"),
        (["finetune", "--model", "mini", "--task", "sst3"], "there is no ready task 'sst3'"),
        (["resume", "nowhere"], "there is no run nowhere"),
        (["finetune", "--model", "mini", "--task", "airline", "--data", "nowhere"], "glassbert forecast"),
    ],
)
def test_errors(flags, message, capsys):
    assert glassbert(*flags) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_interrupt_and_resume(tmp_path, encoder, files, capsys):
    flags = ("--epochs", 8, "--patience", 0, "--batch", 4)
    command = [str(a) for a in (*arguments(encoder, files, tmp_path / "run"), *flags)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from glassbert.cli import main; main()", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(tmp_path / "run" / "seed-0", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Continue with: glassbert resume" in out, err
    assert glassbert("resume", tmp_path / "run") == 0
    assert glassbert(*arguments(encoder, files, tmp_path / "whole"), *flags) == 0
    capsys.readouterr()
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "whole"))
    assert all(np.array_equal(one[name], two[name]) for name in one)


def wait_for(folder, process):
    """Wait for the first checkpoint."""
    for _ in range(600):
        if list(folder.glob("step-*")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    raise AssertionError("no checkpoint within 30 seconds")
