"""Changed files of every kind: each ends in a result or in a `GlassBertError`, within ten seconds and two gigabytes."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassbert.errors import GlassBertError
from tests.torture.parquet import mutated_parquet
from tests.torture.subjects import Subject
from tests.torture.table import Line, describe

SECONDS = 10
GIGABYTES = 2.0
SEEDS = Path(__file__).parent / "seeds"  # content that failed once, kept
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "",
    " ", "x", "nan", "\x00", "\x1b[2J", "\ud800", "é" * 5_000, "../../etc/passwd", "/dev/zero", [], {}, [[]], [None],
    [1, "a", None], {"": None}, {"a": {"b": {}}}, ["x"] * 300, {str(i): i for i in range(300)},
]  # fmt: skip
DEEP, DEEP_OBJECT = b"[" * 50_000, b'{"a":' * 20_000
BYTES = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"null",
    b"[]",
    b"{}",
    b"{",
    b'"',
    DEEP,
    b'{"a":' * 20_000,
    b"1" * 9_000,
]


class TooSlow(BaseException):
    """A case took longer than the limit."""


def fuzz_files(subjects: list[Subject], count: int, seed: int, number: int = 0) -> list[Line]:
    """Change a file of each subject `count` times, and use it."""
    return [_fuzz(subject, count, random.Random(f"{subject.name} {seed} {number}")) for subject in subjects]


def _fuzz(subject: Subject, count: int, rng: random.Random) -> Line:
    line = Line("fuzzing", subject.name)
    if subject.needs and importlib.util.find_spec(subject.needs) is None:
        line.said = f"left out: it needs {subject.needs}"
        return line
    originals = {
        name: (subject.folder / name).read_bytes() for name in subject.files if (subject.folder / name).exists()
    }
    before = peak_memory()
    for _ in range(count):
        name = rng.choice(list(originals))
        content = mutated(originals[name], rng, name)
        line.tried += 1
        (subject.folder / name).write_bytes(content)
        begun = time.monotonic()
        try:
            with limited(SECONDS), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                subject.use(subject.folder)
        except GlassBertError as error:
            line.counts["refused"] += 1
            if len(str(error)) > 4_500 or "\x1b" in str(error):
                line.fail(f"{name}: the message has {len(str(error)):,} characters")
        except TooSlow:
            line.fail(f"{name}: more than {SECONDS} s; {kept(name, content)}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            line.fail(f"{name}: {describe(error)}; {kept(name, content)}")
        finally:
            (subject.folder / name).write_bytes(originals[name])
            line.measure("longest in s", time.monotonic() - begun)
    peak = peak_memory()
    if peak - before > GIGABYTES:
        line.fail(f"the peak of memory rose from {before:.1f} to {peak:.1f} GB")
    line.measure("peak in GB", peak)
    return line


def kept(name: str, content: bytes) -> str:
    """Keep the content that failed in the folder for temporary files, and say where."""
    folder = Path(tempfile.gettempdir()) / "glassbert-torture-failures"
    folder.mkdir(exist_ok=True)
    path = folder / f"{hashlib.blake2b(content, digest_size=4).hexdigest()}-{Path(name).name}"
    path.write_bytes(content)
    return f"kept as {path}"


def peak_memory() -> float:
    """GB of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def mutated(content: bytes, rng: random.Random, name: str) -> bytes:
    """The content of a file, changed: as JSON where it is JSON, else as bytes."""
    kept = sorted(SEEDS.glob("*"))
    if kept and rng.random() < 0.03:
        return rng.choice(kept).read_bytes()
    if name.endswith(".json") and rng.random() < 0.75:
        return _mutated_json(content, rng)
    if name.endswith(".jsonl") and rng.random() < 0.75:
        lines = content.splitlines()
        place = rng.randrange(len(lines))
        lines[place] = _mutated_json(lines[place], rng).replace(b"\n", b" ")
        return b"\n".join(lines) + b"\n"
    if name.endswith(".safetensors") and rng.random() < 0.6:
        size = int.from_bytes(content[:8], "little")
        header = _mutated_json(content[8 : 8 + size], rng)
        return len(header).to_bytes(8, "little") + header + content[8 + size :]
    if name.endswith(".parquet") and rng.random() < 0.8:
        return mutated_parquet(rng)
    return _mutated_bytes(content, rng)


def _mutated_json(content: bytes, rng: random.Random) -> bytes:
    tree: Any = json.loads(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        places = list(_places(tree))
        if not places:
            break
        parent, key = rng.choice(places)
        act = rng.random()
        if act < 0.7:
            parent[key] = copy.deepcopy(rng.choice(HOSTILE))
        elif act < 0.85:
            del parent[key]
        elif isinstance(parent, dict):
            parent[rng.choice(["", "x", "\ud800", *map(str, list(parent)[:5])])] = copy.deepcopy(rng.choice(HOSTILE))
        else:
            parent.append(copy.deepcopy(rng.choice(HOSTILE)))
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a tree; of long containers the first and last few."""
    keys: list[Any] = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    for key in keys if len(keys) < 60 else [*keys[:20], *keys[-20:]]:
        yield tree, key
        yield from _places(tree[key])


def _mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    size = max(1, len(content))
    start, length = rng.randrange(size), rng.choice([1, 1, 4, 16, 200])
    acts: list[Callable[[], bytes]] = [
        lambda: content[:start],
        lambda: content[:start] + rng.randbytes(length) + content[start + length :],
        lambda: content[:start] + rng.randbytes(length) + content[start:],
        lambda: content[:start] + content[start + length :],
        lambda: content[:start] + bytes(length) + content[start + length :],
        lambda: content + content[start:],
        lambda: rng.choice(BYTES),
        lambda: content[:start] + rng.choice(BYTES) + content[start:],
    ]
    return rng.choice(acts)()


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise `TooSlow` inside the block after this time."""

    def late(number: int, frame: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
