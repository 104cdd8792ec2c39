"""Every kind of terminal and pipe: no traceback, and output that can be read."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from glassbert.cli import main; main()"]
ODD = {
    "no home": {"HOME": None},
    "a home that is missing": {"HOME": "/nowhere/at/all", "XDG_DATA_HOME": None, "XDG_CACHE_HOME": None},
    "a dumb terminal": {"TERM": "dumb"},
    "20 columns": {"COLUMNS": "20"},
    "3 columns": {"COLUMNS": "3"},
    "0 columns": {"COLUMNS": "0"},
    "columns that are no number": {"COLUMNS": "wide"},
    "the language C": {"LANG": "C", "LC_ALL": "C"},
    "an ASCII terminal": {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    "a Latin-1 terminal": {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
    "no environment but a path": dict.fromkeys(os.environ, None) | {"PATH": os.environ["PATH"]},
}
COMMANDS = {
    "help": ["--help"],
    "help of a command": ["pretrain", "--help"],
    "a table": ["family"],
    "JSON": ["family", "albert", "--json"],
    "a model": ["fill-mask", "Café: the [MASK] → “sings” [bold]not markup[/bold].", "--engine", "numpy"],
    "the course": ["learn"],
    "an error": ["runs", "nowhere/[red]at[/red]/all→"],
    "a wrong option": ["pretrain", "--stepz", "3"],
}


def start(arguments, environment, **options):
    given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={name: value for name, value in given.items() if value is not None},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.parametrize("environment", ODD.values(), ids=ODD)
def test_odd_environments(environment, tmp_path):
    running = {name: start(arguments, environment, cwd=tmp_path) for name, arguments in COMMANDS.items()}
    for name, process in running.items():
        out, err = process.communicate(timeout=120)
        assert b"Traceback" not in err and b"should have explained" not in err, (name, err.decode(errors="replace"))
        assert process.returncode == (2 if name in ("an error", "a wrong option") else 0), (name, err)
        if name == "JSON":
            assert json.loads(out)["name"] == "albert"
        if name == "a model":
            assert b"[bold]not markup[/bold]" in out.replace(b"\n", b"")
        if name == "an error":
            assert b"[red]at[/red]" in err


@pytest.mark.parametrize("arguments", [["family"], ["family", "--json"], ["pretrain", "--help"], ["models", "--json"]])
def test_a_pipe_that_is_closed_early(arguments):
    process = start(arguments, {})
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=120) in (0, 1, 120) and b"Traceback" not in err and b"Exception" not in err, err


def complete(words, incomplete, shell="zsh"):
    """What the shell would offer: the variables that its completion script sets."""
    line = " ".join(["glassbert", *words, incomplete])
    environment = {
        "_GLASSBERT_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) + 1),
    }
    out, err = start([], environment).communicate(timeout=60)
    assert not err, err
    return out.decode()


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        ([], "fine", ["finetune"]),
        ([], "", ["pretrain", "embed", "runs"]),
        (["corpus"], "", ["build", "report"]),
        (["pretrain"], "--learning", ["--learning-rate"]),
        (["finetune"], "--l", ["--lr", "--low-rank", "--layer-decay"]),
        (["pretrain", "--optimizer"], "", ["adamw", "muon", "lion"]),
        (["finetune", "--metric"], "acc", ["accuracy"]),
        (["pretrain", "--preset"], "mod", ["modernbert-base"]),
        (["corpus", "build", "--layout"], "p", ["paragraphs"]),
    ],
)
def test_completion(words, incomplete, offered):
    shown = complete(words, incomplete)
    assert all(word in shown for word in offered), shown


def test_the_completion_script_is_shown():
    out, err = start(["--show-completion", "bash"], {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}).communicate()
    assert b"_GLASSBERT_COMPLETE=complete_bash" in out, (out, err)
