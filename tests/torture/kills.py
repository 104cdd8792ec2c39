"""Processes that are killed at random moments, that run out of disk, or that share a folder.

A job that was killed, started again as often as it takes, ends with the bytes of an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.torture.table import Line

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
JOBS = {
    "pretraining": lambda folder: sorted((folder / "run" / "model").glob("*.safetensors")),
    "fine-tuning": lambda folder: sorted((folder / "run" / "model").glob("*.safetensors")),
    "corpus build": lambda folder: sorted(folder.glob("out/*.npy")),
    "saving a model": lambda folder: sorted(folder.glob("model/*.safetensors")),
}  # each with the files that must be the same
Files = Callable[[Path], list[Path]]


def start(job: str, folder: Path, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.torture.jobs", job, str(folder)]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            **options)  # type: ignore[call-overload]  # fmt: skip


def content_of(files: list[Path]) -> str:
    found = hashlib.blake2b()
    for path in files:
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest() if files else ""


def kill_jobs(folder: Path, seconds: float, seed: int) -> list[Line]:
    """Kill every job again and again; `seconds` are shared between the jobs."""
    return [_kill(job, folder / job.replace(" ", "-"), seconds / len(JOBS), seed) for job in JOBS]


def _kill(job: str, folder: Path, seconds: float, seed: int) -> Line:
    line, rng = Line("kill -9", job), random.Random(f"{job} {seed}")
    ends = time.monotonic() + seconds
    whole = folder / "whole"
    begun = time.monotonic()
    if start(job, whole).wait() != 0:
        line.fail("the uninterrupted job failed")
        return line
    duration = time.monotonic() - begun
    expected = content_of(JOBS[job](whole))
    finished = 0
    while time.monotonic() < ends:
        cut = folder / "cut"
        shutil.rmtree(cut, ignore_errors=True)
        for _ in range(4):
            process = start(job, cut)
            time.sleep(rng.uniform(0.3, 1.0) * duration)
            process.send_signal(signal.SIGKILL)
            process.wait()
            line.tried += 1
        process = start(job, cut)
        _, errors = process.communicate()
        finished += 1
        if process.returncode != 0:
            line.fail(f"it could not go on: {errors.decode(errors='replace').strip()[-200:]}")
        elif content_of(JOBS[job](cut)) != expected:
            line.fail("the result differs from that of the uninterrupted job")
        elif left := [path.name for path in cut.rglob("*") if path.name.endswith(".part")]:
            line.fail(f"files were left over: {left[:3]}")
    line.note = f"{finished} jobs finished, all with the same bytes" if not line.failed else ""
    return line


def fill_disk(folder: Path, seed: int, count: int) -> list[Line]:
    """Jobs whose files may not grow beyond a limit: an error in one sentence, and afterwards they go on."""
    lines = []
    for job in JOBS:
        line, rng = Line("disk full", job), random.Random(f"disk {job} {seed}")
        start(job, folder / f"{job.replace(' ', '-')}-whole").wait()  # it also writes what all of them read
        for number in range(count):
            place = folder / f"{job.replace(' ', '-')}-{number}"
            limit = rng.choice([0, 100, 1_000, 4_000, 10_000, 30_000])
            process = start(job, place, preexec_fn=lambda limit=limit: _limit_files(limit))
            _, errors = process.communicate()
            text = errors.decode(errors="replace")
            line.tried += 1
            if process.returncode < 0 or "Traceback" in text:
                line.fail(f"limit {limit}: {text.strip()[-200:]}")
                continue
            again = start(job, place)
            _, errors = again.communicate()
            if again.returncode != 0:
                line.fail(f"limit {limit}: it could not go on: {errors.decode(errors='replace').strip()[-200:]}")
        lines.append(line)
    return lines


def _limit_files(size: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def share_folder(folder: Path, count: int) -> list[Line]:
    """Two processes with one folder: one is refused or both end with the same result; and a folder that is replaced."""
    lines = []
    for job in ("pretraining", "fine-tuning", "corpus build"):
        line = Line("two processes", job)
        whole = folder / f"{job.replace(' ', '-')}-whole"
        start(job, whole).wait()
        for number in range(count):
            place = folder / f"{job.replace(' ', '-')}-{number}"
            both = [start(job, place), start(job, place)]
            results = [(process.communicate()[1].decode(errors="replace"), process.returncode) for process in both]
            line.tried += 1
            if any(code not in (0, 2) or "Traceback" in text for text, code in results):
                line.fail(str([text.strip()[-160:] for text, _ in results]))
            elif start(job, place).wait() != 0 or content_of(JOBS[job](place)) != content_of(JOBS[job](whole)):
                line.fail("the result differs")
        lines.append(line)
    return lines
