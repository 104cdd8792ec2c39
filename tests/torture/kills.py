"""Processes that are killed at random moments, that run out of disk, or that share a folder.

A command that was killed, given again as often as it takes, ends with the bytes of an uninterrupted one. A worker of
the bench has imported everything and forks: the child runs the command and nothing else, so that a kill meets the
command and not the start of Python.
"""

from __future__ import annotations

import atexit
import functools
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassbert.cli import main as glassbert
from tests.torture.jobs import JOBS, content_of, missing, prepare, shortened
from tests.torture.table import Line, describe

LONGEST = 120.0  # seconds for a small command
STATUSES = (0, 1, 2, 130, 143)  # 1: sanity checks of an untrained model fail


class Child:
    """A forked process that runs `work`. What it prints comes through a pipe, which no limit on files touches."""

    def __init__(self, work: Callable[[], Any]):
        self.status: int | None = None
        self._printed = b""
        self._pipe, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                os.setsid()
                os.dup2(end, 1)
                os.dup2(end, 2)
                work()
                status = 0
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
            except BaseException as error:
                os.write(2, f"Traceback: {describe(error)}".encode())
            finally:
                os._exit(status)
        os.close(end)
        os.set_blocking(self._pipe, False)

    def wait(self, seconds: float = LONGEST) -> int | None:
        """The exit status, negative for a signal; None if it is still running."""
        ends = time.monotonic() + seconds
        while self.status is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self._read()
            if found:
                self.status = os.waitstatus_to_exitcode(status)
                os.close(self._pipe)
            elif time.monotonic() > ends:
                return None
            else:
                time.sleep(0.002)
        return self.status

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(self._pipe, 1 << 16):
                self._printed = (self._printed + piece)[-2_000:]

    def kill(self) -> bool:
        """Send SIGKILL; whether that ended it."""
        if self.wait(0) is not None:
            return False
        os.kill(self.pid, signal.SIGKILL)
        return self.wait() == -signal.SIGKILL

    @property
    def printed(self) -> str:
        return self._printed.decode(errors="replace").strip()[-300:]


@functools.cache
def base() -> Path:
    """What all jobs of this process read."""
    folder = Path(tempfile.mkdtemp(prefix="glassbert-torture-"))
    atexit.register(functools.partial(_remove, folder, os.getpid()))
    prepare(folder / "base")
    return folder / "base"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def start(job: str, folder: Path, before: Callable[[], Any] = lambda: None) -> Child | None:
    """Give the next command of a job; None if it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    command = JOBS[job].command(base(), folder)
    if command is None:
        return None

    def work() -> None:
        os.chdir(folder)
        before()
        with shortened():
            glassbert(command)

    return Child(work)


def finish(job: str, folder: Path) -> str:
    """Let the job end; what is wrong, or nothing."""
    child = start(job, folder)
    if child is None:
        return ""
    status = child.wait()
    if status is None:
        child.kill()
        return f"it did not end within {LONGEST:.0f} s"
    return "" if status in (0, 1) else f"it ended with {status}: {child.printed}"


@functools.cache
def expected(job: str) -> tuple[dict[str, str], float]:
    """What the uninterrupted job writes, and its seconds; it is done twice, and the second time counts."""
    seconds = 0.0
    for number in range(2):
        folder = base().parent / f"whole-{job.replace(' ', '-')}-{number}"
        begun = time.monotonic()
        if problem := finish(job, folder):
            raise AssertionError(f"the uninterrupted job failed: {problem}")
        seconds = time.monotonic() - begun
        found = content_of(job, folder)
        assert found, f"{job} wrote none of {JOBS[job].same}"
    return found, seconds


def read_everything(folder: Path) -> None:
    """Open every run, model and corpus below a folder as a reader beside the writer would; raise if one is damaged."""
    from glassbert.checkpoints import load
    from glassbert.training.checkpointing import last_intact
    from glassbert.training.history import find_runs
    from glassbert.training.run_folder import RunFolder
    from glassbert.training.verification import verify_files

    problems: list[str] = []
    runs = list(find_runs(folder, problems))
    for settings in folder.rglob("settings.json"):
        run = RunFolder(settings.parent)
        if run.steps():
            _, found = last_intact(run)
            problems += found
    for place in {path.parent for path in folder.rglob("config.json")}:
        if any(part.startswith(".") for part in place.relative_to(folder).parts):
            continue  # not moved into its place
        if (place / "model.safetensors").exists():
            load(place, engine="numpy", threads=1)
        problems += [one.problem for one in verify_files(place) if one.problem]
    if problems:
        raise AssertionError(f"{len(runs)} runs; {problems[0]}")


def kill_jobs(job: str, kills: int, seed: object) -> list[Line]:
    """Kill one job again and again until `kills` have met a running process."""
    line, rng = Line("kill -9", job), random.Random(f"{job} {seed}")
    if package := missing(job):
        line.said = f"left out: it needs {package}"
        return [line]
    same, duration = expected(job)
    while line.tried < kills and line.failed < 5:
        folder = Path(tempfile.mkdtemp(dir=base().parent))
        for _ in range(rng.randint(1, 4)):
            child = start(job, folder / "cut")
            if child is None:
                break
            child.wait(rng.uniform(0.0, 1.05) * duration)
            if not child.kill():
                break  # it had ended
            line.tried += 1
            reader = Child(functools.partial(read_everything, folder / "cut"))
            if reader.wait() != 0:
                line.fail(f"something cannot be read: {reader.printed}")
        if problem := finish(job, folder / "cut"):
            line.fail(f"it could not go on: {problem}")
        elif (found := content_of(job, folder / "cut")) != same:
            line.fail(f"differences: {[name for name in same | found if same.get(name) != found.get(name)][:5]}")
        elif left := [path.name for path in folder.rglob("*.part") if path.is_dir() or path.stat().st_size]:
            line.fail(f"files were left over: {left[:3]}")
        else:
            line.counts["jobs ended with the same bytes"] += 1
        shutil.rmtree(folder, ignore_errors=True)
    return [line]


def fill_disk(job: str, count: int, seed: object) -> list[Line]:
    """Jobs whose files may not grow beyond a limit: an error in one sentence, and afterwards they go on."""
    line, rng = Line("disk full", job), random.Random(f"disk {job} {seed}")
    if package := missing(job):
        line.said = f"left out: it needs {package}"
        return [line]
    same, _ = expected(job)
    for _ in range(count):
        folder = Path(tempfile.mkdtemp(dir=base().parent))
        limit = rng.choice([0, 100, 1_000, 4_000, 10_000, 30_000])
        child = start(job, folder / "full", functools.partial(_limit_files, limit))
        assert child is not None
        status = child.wait()
        line.tried += 1
        if status not in STATUSES or "Traceback" in child.printed:
            line.fail(f"limit {limit}: {status}, {child.printed}")
        elif problem := finish(job, folder / "full"):
            line.fail(f"limit {limit}: it could not go on: {problem}")
        elif content_of(job, folder / "full") != same:
            line.fail(f"limit {limit}: the result differs")
        shutil.rmtree(folder, ignore_errors=True)
    return [line]


def _limit_files(size: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def share_folder(job: str, count: int, seed: object) -> list[Line]:
    """Two processes with one folder: one is refused, or both end with the same result."""
    line, rng = Line("two processes", job), random.Random(f"two {job} {seed}")
    if package := missing(job):
        line.said = f"left out: it needs {package}"
        return [line]
    same, duration = expected(job)
    for _ in range(count):
        folder = Path(tempfile.mkdtemp(dir=base().parent))
        both = [start(job, folder / "both")]
        time.sleep(rng.uniform(0.0, 0.5) * duration)
        other = start(job, folder / "both")
        statuses = [(child.wait(), child.printed) for child in (*both, other) if child is not None]
        line.tried += 1
        if any(status not in STATUSES or "Traceback" in text for status, text in statuses):
            line.fail(str(statuses))
        elif problem := finish(job, folder / "both"):
            line.fail(f"it could not go on: {problem}")
        elif content_of(job, folder / "both") != same:
            line.fail("the result differs")
        shutil.rmtree(folder, ignore_errors=True)
    return [line]
