"""Messages of errors: short values, no control characters, and one sentence for what nobody expected."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassbert.cli import main
from glassbert.errors import GlassBertError, InputError


def test_a_long_value_is_shortened_and_the_sentence_is_whole():
    message = str(InputError(f"label must be a number, got {'x' * 10_000!r}; give a number instead"))
    assert message.startswith("label must be a number, got 'xxx") and message.endswith("; give a number instead")
    assert "(10,000 characters)" in message and len(message) < 300


def test_prose_and_short_values_are_not_changed():
    prose = "the model's file 'a.json' " + "is one of many files that belong to the run's folder, " * 6 + "and 'b' too"
    assert str(InputError(prose)) == prose


def test_an_unquoted_value_is_shortened():
    assert len(str(InputError(f"got {10**4000}"))) < 300


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "\ud800"])
def test_control_characters_are_shown(hostile):
    message = str(GlassBertError(f"no column {hostile} here\nand a second line"))
    assert hostile not in message and "\\" in message and "\nand" in message
    message.encode()


def test_an_unexpected_exception_is_one_sentence(monkeypatch, capsys):
    def fail(*arguments, **options):
        raise KeyError("secret")

    monkeypatch.setattr("glassbert.cli.verify.verify_files", fail)
    with pytest.raises(SystemExit) as ended:
        main(["verify", "."])
    assert ended.value.code == 70
    printed = capsys.readouterr().err
    assert "which is a defect: KeyError: 'secret'" in printed and "Traceback" not in printed
    path = printed.split("the traceback is in ")[1].split()[0].rstrip(".")
    assert "Traceback" in Path(path).read_text()
    monkeypatch.setenv("GLASSBERT_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["verify", "."])


def test_an_ascii_terminal(tmp_path):
    command = [sys.executable, "-m", "glassbert", "verify", str(tmp_path / "naïve-日本")]
    environment = {"PYTHONIOENCODING": "ascii", "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 2 and b"Traceback" not in done.stderr and b"there is no file or folder" in done.stderr


def test_no_verify_is_an_option_of_every_command(monkeypatch):
    seen = []
    monkeypatch.setattr("glassbert.cli.all_commands", lambda: lambda **_: seen.append(os.environ["GLASSBERT_VERIFY"]))
    monkeypatch.setenv("GLASSBERT_VERIFY", "1")
    main(["verify", "folder", "--no-verify"])
    main(["verify", "folder", "--", "--no-verify"])
    assert seen == ["0", "1"] and os.environ["GLASSBERT_VERIFY"] == "1"


def test_a_path_that_the_system_refuses_is_one_sentence(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["finetune", "--train", "x" * 5_000 + ".csv", "--target", "y"])
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and "File name too long" in shown and len(shown) < 1_000 and "defect" not in shown
