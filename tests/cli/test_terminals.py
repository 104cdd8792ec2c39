"""Every kind of terminal and pipe: no traceback, and output that can be read."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from glassbert.cli import main; main()"]
# Several commands in one process: importing takes longer than any of them.
ALL_OF_THEM = [
    sys.executable,
    "-c",
    """
import json, sys
from glassbert.cli import main
for name, arguments in json.loads(sys.argv[1]).items():
    try:
        main(arguments)
    except SystemExit as ended:
        code = ended.code or 0
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        stream.buffer.write(f"<<{name}:{code}>>".encode())
        stream.flush()
""",
]
ODD = {
    "no home, 0 columns": {"HOME": None, "COLUMNS": "0"},
    "a dumb terminal of 20 columns": {"TERM": "dumb", "COLUMNS": "20"},
    "the language C, 3 columns": {"LANG": "C", "LC_ALL": "C", "COLUMNS": "3"},
    "an ASCII terminal, a home that is missing": {
        "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "HOME": "/nowhere/at/all", "COLUMNS": "wide",
    },
    "no environment but a path": dict.fromkeys(os.environ, None) | {"PATH": os.environ["PATH"]},
}  # fmt: skip
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


def start(command, environment, **options):
    given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        command,
        env={name: value for name, value in given.items() if value is not None},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.parametrize("environment", ODD.values(), ids=ODD)
def test_odd_environments(environment, tmp_path):
    process = start([*ALL_OF_THEM, json.dumps(COMMANDS)], environment, cwd=tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and b"Traceback" not in err and b"is a defect" not in err, err.decode()
    for name in COMMANDS:
        code = 2 if name in ("an error", "a wrong option") else 0
        printed, _, out = out.partition(f"<<{name}:{code}>>".encode())
        complained, mark, err = err.partition(f"<<{name}:{code}>>".encode())
        assert mark, (name, complained)
        if name == "JSON":
            assert json.loads(printed)["name"] == "albert"
        if name == "a model":
            assert b"[bold]not markup[/bold]" in printed.replace(b"\n", b"")
        if name == "an error":
            assert b"[red]at[/red]" in complained


@pytest.mark.parametrize("arguments", [["family"], ["family", "--json"], ["pretrain", "--help"]])
def test_a_pipe_that_is_closed_early(arguments):
    process = start([*COMMAND, *arguments], {})
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=300) in (0, 1, 120) and b"Traceback" not in err and b"Exception" not in err, err


OFFERED = {
    "glassbert fine": ["finetune"],
    "glassbert ": ["pretrain", "embed", "runs"],
    "glassbert corpus ": ["build", "report"],
    "glassbert pretrain --learning": ["--learning-rate"],
    "glassbert finetune --l": ["--lr", "--low-rank", "--layer-decay"],
    "glassbert pretrain --optimizer ": ["adamw", "muon", "lion"],
    "glassbert finetune --metric acc": ["accuracy"],
    "glassbert pretrain --preset mod": ["modernbert-base"],
    "glassbert corpus build --layout p": ["paragraphs"],
}
COMPLETE_ALL = [
    sys.executable,
    "-c",
    """
import json, os, sys
from glassbert.cli import main
os.environ["_GLASSBERT_COMPLETE"] = "complete_zsh"
for line in json.loads(sys.argv[1]):
    os.environ["_TYPER_COMPLETE_ARGS"] = line
    try:
        main([])
    except SystemExit:
        print("<<end>>")
""",
]


def test_the_shell_completes_commands_options_and_choices():
    out, err = start([*COMPLETE_ALL, json.dumps([*OFFERED])], {}).communicate(timeout=300)
    answers = out.decode().split("<<end>>")
    assert not err and len(answers) == len(OFFERED) + 1, (out, err)
    for (line, words), shown in zip(OFFERED.items(), answers[:-1], strict=True):
        assert all(word in shown for word in words), (line, shown)


def test_the_completion_script_is_shown():
    out, err = start(
        [*COMMAND, "--show-completion", "bash"], {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ).communicate()
    assert b"_GLASSBERT_COMPLETE=complete_bash" in out, (out, err)
