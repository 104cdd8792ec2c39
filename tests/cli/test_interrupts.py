"""Interrupted runs save, and end with the code of their signal; a closed terminal is such a signal, too."""

import os
import signal
import subprocess
import sys
import time

import pytest

from glassbert.training.run_folder import RunFolder
from tests.training.toy import SETTINGS

pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
COMMAND = [sys.executable, "-c", "from glassbert.cli import main; main()"]


def start(corpus, run, **options):
    given = {**SETTINGS, "steps": 100_000, "checkpoint_every": 5, "threads": 1}
    flags = [str(word) for name, value in given.items() for word in ("--" + name.replace("_", "-"), value)]
    return subprocess.Popen([*COMMAND, "pretrain", "--corpus", str(corpus), "--run", str(run), *flags], **options)


def wait_for_checkpoint(run, process):
    for _ in range(2400):
        if [step for step in RunFolder(run).steps() if step > 0]:
            return
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    raise AssertionError("no checkpoint within two minutes")


def resumes(run):
    """Whether the run has a checkpoint of the step at which it stopped."""
    return max(RunFolder(run).steps()) > 0 and not (run / "result.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_gives_its_code(corpus, tmp_path, number, code):
    run = tmp_path / "a run"
    process = start(corpus, run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_checkpoint(run, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert f"Continue with: glassbert resume '{run}'" in out and "Traceback" not in err and resumes(run)


def test_a_closed_terminal_saves(corpus, tmp_path):
    run = tmp_path / "run"
    keyboard, screen = pty.openpty()
    process = start(corpus, run, stdin=screen, stdout=screen, stderr=screen, start_new_session=True)
    os.close(screen)
    os.set_blocking(keyboard, False)
    for _ in range(2400):  # a terminal that nobody reads blocks the program
        try:
            os.read(keyboard, 1 << 16)
        except BlockingIOError:
            time.sleep(0.05)
        if [step for step in RunFolder(run).steps() if step > 0]:
            break
        assert process.poll() is None
    os.close(keyboard)
    process.send_signal(signal.SIGHUP)  # as the shell does for its jobs
    assert process.wait(timeout=120) == 128 + signal.SIGHUP
    assert resumes(run)


def test_under_nohup_a_closed_terminal_changes_nothing(corpus, tmp_path):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    run = tmp_path / "run"
    process = start(corpus, run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ignore)
    wait_for_checkpoint(run, process)
    process.send_signal(signal.SIGHUP)
    steps = max(RunFolder(run).steps())
    for _ in range(2400):
        if max(RunFolder(run).steps(), default=0) > steps + 10:
            break
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143
