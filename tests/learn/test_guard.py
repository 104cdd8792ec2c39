"""Files of answers: in their own process, with limits, and without writing where they should not."""

import sys

import pytest

from glassbert.errors import InputError
from glassbert.learn.course import get_lesson
from glassbert.learn.guard import check_file, refuse_outside


def write(folder, text):
    path = folder / "answer.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_functions_named_like_exercises_are_judged(tmp_path):
    path = write(
        tmp_path,
        "import numpy as np\nprint('hello')\ndef helper(x): return x\n"
        "def relu(x): return np.maximum(x, 0)\ndef linear(x, weight, bias): return x @ weight.T\nattention_fault = 4\n",
    )
    result = check_file(path)
    assert result.printed.strip() == "hello"
    assert {one.exercise: one.passed for one in result.verdicts} == {
        "relu": True,
        "linear": False,
        "attention_fault": True,
    }
    assert result.verdicts[1].mistake == "the bias is forgotten"


def test_a_single_function_of_another_name_is_taken_for_the_named_exercise(tmp_path):
    path = write(tmp_path, "def mine(x):\n    return abs(x)\n")
    assert check_file(path, "relu").verdicts[0].mistake == "the absolute value"


def test_the_answers_in_a_lesson_are_found(tmp_path):
    pytest.importorskip("marimo")
    text = get_lesson(2).path.read_text(encoding="utf-8")
    path = write(tmp_path, text.replace("def relu(x): ...", "def relu(x):\n        return abs(x)"))
    verdicts = {one.exercise: one for one in check_file(path, seconds=120).verdicts}
    assert verdicts["relu"].mistake == "the absolute value" and not verdicts["gelu"].answered


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("while True: pass", "did not end within 2 s. Is there a loop that does not end?"),
        ("def relu(x):\n    while True: pass", "did not end within 2 s"),
        ("def relu(x)\n    return x", "answer.py, line 1: expected ':'"),
        ("1 / 0", "ZeroDivisionError"),
        ("import os\nos._exit(3)", "ended before its functions could be checked"),
        ("raise SystemExit", "SystemExit"),
        ("x = 1", "has no function with the name of an exercise"),
        ("import subprocess\nsubprocess.run(['true'])", "starting a program is not allowed"),
        ("import os\nos.system('true')", "starting a program is not allowed"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "opening a connection is not allowed"),
    ],
)
def test_a_file_that_cannot_be_judged_gives_one_sentence(tmp_path, text, words):
    with pytest.raises(InputError) as error:
        check_file(write(tmp_path, text), seconds=2 if "while" in text else 20)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_files_outside_the_temporary_folder_are_not_touched(tmp_path):
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    path = write(
        tmp_path,
        "import pathlib, os\n"
        "pathlib.Path('own.txt').write_text('allowed')\n"
        f"def relu(x): pathlib.Path({str(kept)!r}).write_text('gone')\n"
        f"def gelu(x): os.remove({str(kept)!r})\n"
        f"def softmax(x): os.rename('own.txt', {str(kept)!r})\n"
        "def layer_norm(x, gamma, beta, eps): open(os.path.expanduser('~/own.txt'), 'w').close()\n",
    )
    verdicts = {one.exercise: one for one in check_file(path).verdicts}
    assert kept.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "data") == ["answer.py", "kept.txt"]
    for name in ("relu", "gelu", "softmax"):
        assert "PermissionError" in verdicts[name].problem, verdicts[name]
    assert "returned nothing" in verdicts["layer_norm"].problem  # its home is the temporary folder


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_memory_is_limited(tmp_path):
    path = write(tmp_path, "import numpy as np\ndef relu(x): return np.ones(10**10)\n")
    assert "MemoryError" in check_file(path).verdicts[0].problem


def test_a_file_or_exercise_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        check_file(tmp_path / "none.py")
    with pytest.raises(InputError, match="there is no exercise 'rellu'; did you mean 'relu'"):
        check_file(write(tmp_path, "x = 1"), "rellu")
    with pytest.raises(InputError, match=r"there is no exercise 'xyzzy'\. The exercises: "):
        check_file(write(tmp_path, "x = 1"), "xyzzy")


def test_the_guard_sees_modes_and_flags(tmp_path):
    hook = refuse_outside(tmp_path)
    hook("open", ("/etc/hostname", "r", 0))
    hook("open", (str(tmp_path / "a"), "w", 577))
    hook("open", (1, "w", 577))
    for event in (("open", ("/etc/x", "w", 577)), ("open", ("/etc/x", "a", None)), ("os.mkdir", ("/etc/x", 511, -1))):
        with pytest.raises(PermissionError):
            hook(*event)
