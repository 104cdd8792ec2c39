"""Checking a learner's file in a process of its own.

    python -m glassbert.learn.guard FILE WORK [EXERCISE]       (run by `check_file`, not by hand)

What is guarded: the process ends at a time limit; it works in a temporary folder and has a temporary home; opening a
file for writing outside that folder, deleting, renaming, starting programs and opening connections are refused; on
Linux and macOS processor time, memory and the size of files are limited.

What is not guarded: this is a guard against accidents. Code that means harm can get around it, and it can read your
files. Check only files that you trust.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from glassbert.errors import InputError
from glassbert.learn.verdict import Verdict

SECONDS = 20.0
MEMORY = 4 * 2**30  # bytes of address space
FILE_SIZE = 16 * 2**20
LONGEST_OUTPUT = 10_000  # characters of what the file prints
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED = {  # audit events, and what they are
    "os.system": "starting a program",
    "os.exec": "starting a program",
    "os.posix_spawn": "starting a program",
    "os.spawn": "starting a program",
    "os.fork": "starting a process",
    "os.forkpty": "starting a process",
    "subprocess.Popen": "starting a program",
    "socket.connect": "opening a connection",
    "socket.bind": "opening a connection",
    "os.kill": "ending a process",
}
CHANGING = {  # audit events whose first arguments are paths that change
    "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.truncate": 1,
    "os.chmod": 1, "os.chown": 1, "os.utime": 1, "shutil.rmtree": 1, "shutil.move": 2,
}  # fmt: skip
RESULT = "verdicts.json"


# ---- the parent ----------------------------------------------------------------------------------------------------


class FileResult:
    """The verdicts on the functions of a file, and what the file printed."""

    def __init__(self, verdicts: list[Verdict], printed: str):
        self.verdicts, self.printed = verdicts, printed


def check_file(path: str | Path, exercise: str | None = None, seconds: float = SECONDS) -> FileResult:
    """Run a file in its own process and judge the functions in it that have the name of an exercise."""
    path = Path(path).resolve()
    if not path.is_file():
        raise InputError(f"there is no file {path}; give the Python file with your answers")
    if exercise is not None:
        from glassbert.learn.exercise import get_exercise

        get_exercise(exercise)
    with tempfile.TemporaryDirectory(prefix="glassbert-answer-", ignore_cleanup_errors=True) as work:
        printed = _run_guarded(path, Path(work), exercise, seconds)
        result = Path(work) / RESULT
        if not result.is_file():
            raise InputError(f"{path.name} ended before its functions could be checked. {_last_line(printed)}".strip())
        content = json.loads(result.read_text(encoding="utf-8"))
    if "problem" in content:
        raise InputError(content["problem"])
    return FileResult([Verdict.from_dict(one) for one in content["verdicts"]], printed)


def _run_guarded(path: Path, work: Path, exercise: str | None, seconds: float) -> str:
    """Run the child; returns what it printed."""
    command = [sys.executable, "-m", "glassbert.learn.guard", str(path), str(work), *([exercise] if exercise else [])]
    package = str(Path(__file__).resolve().parents[2])
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    environment = {
        **kept,
        "HOME": str(work),
        "TMPDIR": str(work),
        "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH", "")])]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLASSBERT_COMPILED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "GLASSBERT_ANSWER_SECONDS": str(seconds),
    }
    output = work / ".output"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            start_new_session=os.name == "posix",
        )  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise InputError(
                f"{path.name} did not end within {seconds:g} s. Is there a loop that does not end? "
                "--seconds gives it more time"
            ) from None
        finally:
            process.kill()
            process.wait()
    with output.open("rb") as stream:
        return stream.read(LONGEST_OUTPUT).decode("utf-8", "replace")


def _last_line(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip()]
    return f"Its last words: {lines[-1]}" if lines else "It printed nothing; perhaps it used too much memory."


# ---- the child -----------------------------------------------------------------------------------------------------


def limit_resources(seconds: float) -> None:
    """Limits of the operating system, where it has them."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {"RLIMIT_CPU": int(seconds) + 5, "RLIMIT_AS": MEMORY, "RLIMIT_FSIZE": FILE_SIZE, "RLIMIT_CORE": 0}
    for name, value in limits.items():
        try:
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
        except (AttributeError, ValueError, OSError):  # macOS has no limit of address space
            continue


def refuse_outside(work: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that refuses what an exercise has no need of."""
    inside = os.path.realpath(work) + os.sep

    def is_outside(path: Any) -> bool:
        if isinstance(path, int) or path is None:  # a file that is already open
            return False
        return not os.path.realpath(os.fsdecode(path)).startswith(inside) and os.fsdecode(path) != os.devnull

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in REFUSED:
            raise PermissionError(f"{REFUSED[event]} is not allowed while an answer is checked")
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & WRITING) if isinstance(flags, int) else any(c in str(mode) for c in "wax+")
            if writes and is_outside(path):
                raise PermissionError(f"writing {os.fsdecode(path)} is not allowed while an answer is checked")
        elif event in CHANGING:
            for path in arguments[: CHANGING[event]]:
                if is_outside(path):
                    raise PermissionError(f"changing {os.fsdecode(path)} is not allowed while an answer is checked")

    return hook


def answers_in(space: Mapping[str, Any], only: str | None) -> dict[str, Any]:
    """The functions of a file that are answers; with `only`, also a file's single function under another name."""
    from glassbert.learn.exercise import exercises

    known = exercises()
    if only is None:
        return {name: value for name, value in space.items() if name in known and answers(value)}
    if only in space:
        return {only: space[only]}
    own = [value for value in space.values() if callable(value) and getattr(value, "__module__", "") == "__answer__"]
    return {only: own[0]} if len(own) == 1 else {}


def answers(value: Any) -> bool:
    return callable(value) or (isinstance(value, int) and not isinstance(value, bool))


def judge_file(path: Path, only: str | None) -> dict[str, Any]:
    """Execute the file and judge its answers."""
    from glassbert.learn.exercise import exercises, get_exercise
    from glassbert.learn.referee import describe_error, judge

    exercises()  # imported before the file runs, so that the guard does not mistake it for the file's own work
    seconds = float(os.environ.get("GLASSBERT_ANSWER_SECONDS", SECONDS))
    limit_resources(seconds)
    sys.addaudithook(refuse_outside(Path.cwd()))
    try:
        space = runpy.run_path(str(path), run_name="__answer__")
        if type(space.get("app")).__module__.startswith("marimo."):  # a lesson: its answers are in its cells
            space = space["app"].run()[1]
    except SyntaxError as error:
        return {"problem": f"{path.name}, line {error.lineno}: {error.msg}"}
    except (Exception, SystemExit) as error:
        return {"problem": f"{path.name} stopped with {describe_error(error)}"}
    found = answers_in(space, only)
    if not found:
        wanted = f"a function {only}" if only else "a function with the name of an exercise"
        return {"problem": f"{path.name} has no {wanted[2:]}; the exercises: {', '.join(exercises())}"}
    return {"verdicts": [judge(get_exercise(name), answer).as_dict() for name, answer in found.items()]}


def main(arguments: list[str]) -> None:
    path, work, *rest = arguments
    content = judge_file(Path(path), rest[0] if rest else None)
    (Path(work) / RESULT).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
