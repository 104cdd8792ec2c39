"""Shared by all benchmarks: contenders in processes, memory, tables and JSON; rounds and medians of `harness`."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.harness import (
    Rounds,
    Spread,
    add_json_option,
    count,
    interleave,
    rounded,
    seconds_of,
    show_progress,
    timed,
)
from glassbert.engines import machine
from glassbert.errors import GlassBertError
from glassbert.files import write_json

__all__ = [
    "ALLOCATORS",
    "MIB",
    "ContenderError",
    "Contenders",
    "Local",
    "Rounds",
    "Spread",
    "Table",
    "Worker",
    "add_json_option",
    "count",
    "current_memory",
    "describe_machine",
    "interleave",
    "mib",
    "peak_memory",
    "progress",
    "require",
    "reset_peak_memory",
    "rounded",
    "run_program",
    "seconds_of",
    "show_json",
    "timed",
]

MIB = 2**20

# Settings of glibc for peers. "kept": freed memory is kept, as our NumPy engine requests, not returned to the system.
ALLOCATORS: dict[str, dict[str, str]] = {
    "default": {},
    "kept": {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)},
}


# ---- contenders ----------------------------------------------------------------------------------------------------


class ContenderError(RuntimeError):
    """A contender failed, its process ended, or it timed out. The message is one line; `details` is the traceback."""

    def __init__(self, message: str, details: str = ""):
        super().__init__(message)
        self.details = details


class Local:
    """A contender in this process, with the interface of `Worker`."""

    def __init__(self, contender: str, **options: Any):
        self.contender = contender
        self._instance, self._baseline = _build(contender, options)

    def ready(self, timeout: float | None = None) -> None:
        """Does nothing: the contender is built by the constructor."""

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        if method == "memory":
            return peak_memory() - self._baseline
        try:
            return getattr(self._instance, method)(*arguments)
        except Exception as error:
            raise ContenderError(*_described(error)) from error

    def close(self) -> None:
        self._instance = None
        gc.collect()


class Worker:
    """A contender in its own process: `Worker("benchmarks.train_step:Ours", preset="mini")`.

    The process imports the class, calls its `imports()`, records its memory, creates an instance with the options, and
    then runs methods by `call`. `call("memory")` returns the peak memory above that after the imports.
    """

    def __init__(self, contender: str, environment: Mapping[str, str] | None = None, **options: Any):
        self.contender = contender
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        with _environment(environment or {}):
            self._process = context.Process(target=_serve, args=(theirs, contender, options))
            self._process.start()
        theirs.close()
        self._is_ready = False

    def ready(self, timeout: float | None = None) -> None:
        """Wait until the instance is created."""
        if not self._is_ready:
            self._receive(timeout)
            self._is_ready = True

    def call(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        self.ready(timeout)
        try:
            self._connection.send((method, arguments))
        except OSError as error:
            raise ContenderError(f"the process of {self.contender} has ended") from error
        return self._receive(timeout)

    def _receive(self, timeout: float | None) -> Any:
        try:
            if timeout is not None and not self._connection.poll(timeout):
                self.kill()
                raise ContenderError(f"no result within {timeout:.0f} s")
            status, value = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            raise ContenderError(f"the process ended with exit code {self._process.exitcode}") from error
        if status == "error":
            raise ContenderError(*value)
        return value

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def close(self) -> None:
        """Close the connection, which ends the process; kill it after 10 s."""
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class Contenders:
    """Context manager: contenders by name, closed at the end."""

    def __init__(self) -> None:
        self.members: dict[str, Worker | Local] = {}

    def add(self, name: str, member: Worker | Local) -> None:
        self.members[name] = member

    def __getitem__(self, name: str) -> Worker | Local:
        return self.members[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            member.close()


def _build(contender: str, options: Mapping[str, Any]) -> tuple[Any, int]:
    module, name = contender.split(":")
    factory = getattr(importlib.import_module(module), name)
    if hasattr(factory, "imports"):
        factory.imports()
    baseline = current_memory()
    return factory(**options), baseline


def _serve(connection: Any, contender: str, options: Mapping[str, Any]) -> None:
    os.dup2(2, 1)  # output of libraries must not follow the JSON line
    try:
        instance, baseline = _build(contender, options)
        connection.send(("ok", None))
    except Exception as error:
        connection.send(("error", _described(error)))
        return
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            value = peak_memory() - baseline if method == "memory" else getattr(instance, method)(*arguments)
            connection.send(("ok", value))
        except Exception as error:
            connection.send(("error", _described(error)))


def _described(error: Exception) -> tuple[str, str]:
    """One line, and the traceback. An error that the user can mend is a sentence and needs no traceback."""
    if isinstance(error, GlassBertError):
        return str(error), ""
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0] if words else ''}"[:200], traceback.format_exc()


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# ---- programs ------------------------------------------------------------------------------------------------------


def require(*modules: str) -> None:
    """End the program with a sentence if peers are not installed, before anything is measured."""
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise SystemExit(f"this benchmark needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def run_program(main: Callable[[], int | None]) -> None:
    """Run a program. What its user can mend ends it with a sentence, and no process of a contender stays."""
    code: int | str | None
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader, such as `head`, has closed its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or flushing it at the end fails again
        code = 1
    except FileNotFoundError as error:
        code = f"there is no {error.filename}; --help says which options name files and folders"
    except (ContenderError, GlassBertError) as error:
        code = f"{getattr(error, 'details', '')}{error}"
    finally:
        progress("")
        for process in multiprocessing.active_children():
            process.terminate()
    raise SystemExit(code)


# ---- memory --------------------------------------------------------------------------------------------------------


def current_memory() -> int:
    """The resident memory of this process in bytes."""
    return _status("VmRSS") or peak_memory()


def peak_memory() -> int:
    """The peak resident memory of this process in bytes.

    Not `ru_maxrss` on Linux: a new process inherits it from its parent.
    """
    from_status = _status("VmHWM")
    if from_status:
        return from_status
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak_memory() -> int:
    """Return free memory to the system and reset `peak_memory`, where possible; returns the current memory.

    Otherwise memory freed earlier would be reused and hide the first allocations of the measurement.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return current_memory()


def _status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


# ---- output ---------------------------------------------------------------------------------------------------------


@dataclass
class Table:
    """A table. The first `left` columns are left-aligned, the others right; a row of None draws a line."""

    title: str
    columns: list[str]
    rows: list[list[str] | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: int = 1

    def plain(self) -> str:
        """The table as text."""
        cells = [row for row in self.rows if row is not None]
        widths = [max(len(row[i]) for row in [self.columns, *cells]) for i in range(len(self.columns))]
        rule = "  ".join("-" * width for width in widths)
        lines = [self.title, "", self.line(self.columns, widths), rule]
        lines += [rule if row is None else self.line(row, widths) for row in self.rows]
        return "\n".join([*lines, "", *self.notes])

    def line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        pairs = enumerate(zip(row, widths, strict=True))
        return "  ".join(f"{c:<{w}}" if i < self.left else f"{c:>{w}}" for i, (c, w) in pairs).rstrip()

    def show(self) -> None:
        """Print the table."""
        try:
            from rich.console import Console
            from rich.table import Table as RichTable
        except ImportError:  # not installed
            print(self.plain(), flush=True)
            return
        console = Console()
        if not console.is_terminal:
            console = Console(width=160)
        table = RichTable(title=self.title, title_justify="left", title_style="bold")
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i < self.left else "right")
        for row in self.rows:
            if row is None:
                table.add_section()
            else:
                table.add_row(*row)
        console.print(table)
        for note in self.notes:
            console.print(note, style="dim", markup=False, highlight=False)


def show_json(report: Mapping[str, Any], where: str | bool = "-") -> None:
    """Write the report as JSON into a file; "-" (or True) prints it in one line, which must be the last output."""
    if isinstance(where, str) and where != "-":
        write_json(Path(where), dict(report))
        return
    sys.stderr.flush()
    print(json.dumps(report, allow_nan=False), flush=True)


progress = show_progress


def mib(size: float) -> str:
    return f"{size / MIB:,.0f} MiB"


def describe_machine(*packages: str) -> tuple[str, dict[str, Any]]:
    """This machine and the versions of `packages`: as a line of text, and as a dictionary."""
    facts = machine.inspect_machine()
    versions = {"python": facts.python, "numpy": facts.numpy}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    blas = f"{facts.blas.name} {facts.blas.version}".strip()
    described = {
        "processor": facts.cpu_name,
        "cores": facts.usable_cores,
        "memory_gib": round((facts.usable_memory or 0) / 2**30, 1),
        "blas": blas,
        "versions": versions,
    }
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    line = f"{facts.cpu_name}, {facts.usable_cores} cores, {described['memory_gib']} GiB; {blas}; {listed}"
    return line, described
