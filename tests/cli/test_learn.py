"""`glassbert learn`: the list, opening a lesson, checking a file, solutions, and what goes wrong."""

import subprocess

import pytest

from glassbert import cli
from glassbert.learn import course


@pytest.fixture(autouse=True)
def own_data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def learn(capsys):
    """`learn(*arguments)` runs the command: exit code, output and error output."""

    def learn(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main(["learn", *arguments])
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return learn


@pytest.fixture
def opened(monkeypatch):
    """The commands that would have opened a notebook."""
    commands = []
    monkeypatch.setattr("glassbert.cli.learn.run_notebook", lambda command: commands.append(command) or 0)
    return commands


def test_the_list_shows_phases_minutes_and_what_was_done(learn, tmp_path):
    code, out, _ = learn()
    assert code == 0 and "1. Building blocks" in out and "6. Mastery" in out and "0 of 18 lessons done" in out
    answer = tmp_path / "answer.py"
    answer.write_text("def relu(x):\n    return (x + abs(x)) / 2\n")
    assert learn("check", str(answer))[0] == 0
    assert "1 of 2 exercises" in learn()[1]


def test_a_lesson_is_copied_once_and_never_overwritten(learn, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(course, "has_marimo", lambda: True)
    code, out, _ = learn("7", "--no-browser")
    copy = tmp_path / "data" / "glassbert" / "lessons" / course.get_lesson(7).file
    assert code == 0 and "Lesson 7" in out and copy.read_text() == course.get_lesson(7).path.read_text()
    assert str(copy) in opened[0] and "--headless" in opened[0]
    assert "--no-token" not in opened[0]  # the server runs code: its address is a secret
    copy.write_text("my own answers")
    code, out, _ = learn("7", "--no-browser")
    assert copy.read_text() == "my own answers" and "Your copy" in out
    assert "opened" in learn()[1]


def test_without_a_screen_the_address_is_for_the_user_to_open(learn, opened, monkeypatch, tmp_path):
    monkeypatch.setattr(course, "has_marimo", lambda: True)
    monkeypatch.setattr(course, "can_open_browser", lambda: False)
    code, out, _ = learn("2", "--folder", str(tmp_path / "mine"))
    assert code == 0 and "No browser can be opened from here" in out and "--headless" in opened[0]
    assert (tmp_path / "mine" / course.get_lesson(2).file).is_file()


def test_without_marimo_it_says_what_to_install(learn, opened, monkeypatch):
    monkeypatch.setattr(course, "has_marimo", lambda: False)
    code, _, error = learn("1")
    assert code == 2 and "pip install marimo" in error and not opened


@pytest.mark.parametrize("number", ["0", "19", "-1", "seven", "1.5"])
def test_a_number_that_is_no_lesson_lists_the_lessons(learn, number):
    code, out, error = learn("open", "--", number)
    assert code == 2 and "there is no lesson" in error and "18 The fast kernels" in error and "Traceback" not in out


def test_a_wrong_word_is_no_lesson(learn):
    assert "there is no lesson sevn. The lessons: 1 Words" in learn("sevn")[2]


def test_check_says_what_is_wrong_and_gives_another_hint_the_second_time(learn, tmp_path):
    answer = tmp_path / "answer.py"
    answer.write_text("print('hello')\ndef layer_norm(x, gamma, beta, eps):\n    return gamma * x + beta\n")
    first, second = learn("check", str(answer)), learn("check", str(answer), "--only", "layer_norm")
    assert first[0] == second[0] == 1 and "hello" in first[1] and "not yet" in first[1]
    hints = [next(line for line in out.splitlines() if "Hint:" in line) for _, out, _ in (first, second)]
    assert hints[0] != hints[1]


def test_solutions_and_statements(learn):
    code, out, _ = learn("solution", "layer_norm_backward")
    assert code == 0 and "def layer_norm_backward" in out and "glassbert/ops/layer_norm.py, line" in out
    code, out, _ = learn("exercise", "attention_fault")
    assert "np.where" in out and "returns context" in out
    assert "The fault is in line" in learn("solution", "attention_fault")[1]
    assert "relu" in learn("exercises")[1]
    assert learn("solution", "atention")[2].startswith("there is no exercise 'atention'; did you mean 'attention'")


def test_no_home_is_a_sentence(learn, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert "Your progress is not kept: there is no home folder" in learn()[1].replace("\n", " ")
    assert learn("3")[2].startswith("there is no home folder")


def test_export_writes_notebooks(learn, tmp_path, monkeypatch):
    pytest.importorskip("marimo")
    monkeypatch.setattr(course, "LESSONS", course.LESSONS[1:2])
    code, out, _ = learn("export", "-o", str(tmp_path / "out"), "--format", "ipynb")
    assert code == 0 and "1 lessons written" in out
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["lesson_02_activations.ipynb"]
    assert "not as 'pdf'" in learn("export", "-o", str(tmp_path), "--format", "pdf")[2]


def test_a_lesson_that_fails_to_export_is_named(learn, tmp_path, monkeypatch):
    pytest.importorskip("marimo")
    failed = subprocess.CompletedProcess([], 1, "", "no such cell")
    monkeypatch.setattr(course.subprocess, "run", lambda *command, **options: failed)
    assert "lesson 1 could not be exported: no such cell" in learn("export", "-o", str(tmp_path))[2]
