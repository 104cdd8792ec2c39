"""Compare the speed of two commits: is B slower than A?

    python -m benchmarks.compare A B [--what step] [--rounds 24] [--fail-over 3%] [--json [FILE]]
    python -m benchmarks.compare main .                  # `.`: the files of the working tree as they are
    python -m benchmarks.compare HEAD --self-test        # is the ruler straight?

Both commits are unpacked into a temporary folder. Each has one process that stays; the processes take turns in the
order A B B A, and disturbed rounds are repeated (`benchmarks.harness`). The ratio is the time of B over that of A. A
difference is called one if the 99 % interval of the ratio does not touch the band of 1 % around 1: two copies of the
same code may differ by that much, because their memory lies elsewhere. `--clock cpu` compares CPU seconds instead, for
a machine that others use at the same time.

The exit code is 1 if B is slower by more than `--fail-over`, 2 if a commit cannot be run, and 0 otherwise.

`--self-test` compares a commit with itself 20 times, and five times with a copy slowed down by 4 % by a busy loop. It
passes if at least 19 of the 20 show no difference and every slowed copy is found; it takes under ten minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import compare_worker
from benchmarks.common import (
    Rounds,
    Spread,
    Table,
    add_json_option,
    count,
    describe_machine,
    interleave,
    progress,
    rounded,
    run_program,
    show_json,
)

ROOT = Path(__file__).resolve().parents[1]
WORKING_TREE = "."
PACKAGE = "glassbert"
CERTAIN = 0.99  # level of the interval that decides
SAME = 0.01  # a smaller difference is none
VISIBLE = 0.03  # a wider interval cannot see a regression of this size
ROUNDS, SELF_TEST_ROUNDS = 24, 12
TRIES, NEEDED, SLOWED, SLOWDOWN = 20, 19, 5, 0.04


class CompareError(RuntimeError):
    """A commit cannot be unpacked or run; the message says which and why."""


# ---- the two sides -------------------------------------------------------------------------------------------------


def unpack(commit: str, folder: Path, repository: Path = ROOT) -> str:
    """Put the package of a commit into `folder`; returns the commit's short name. `.` is the working tree."""
    folder.mkdir(parents=True)
    if commit == WORKING_TREE:
        (folder / PACKAGE).symlink_to(repository / PACKAGE, target_is_directory=True)
        return "working tree"
    named = _git(repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if named is None:
        raise CompareError(f"there is no commit {commit!r}; name a commit, a branch, a tag, or . for the working tree")
    archive = _git(repository, "archive", "--format=tar", commit, PACKAGE)
    if archive is None:
        raise CompareError(f"{commit} has no folder {PACKAGE}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return named.decode().strip()[:10]


def _git(repository: Path, *arguments: str) -> bytes | None:
    try:
        made = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True)
    except FileNotFoundError:
        raise CompareError("git is not installed; it is needed to unpack a commit") from None
    return made.stdout if made.returncode == 0 else None


class Side:
    """The process of one commit."""

    def __init__(self, name: str, folder: Path, what: str, slower: float = 0.0, clock: str = "wall"):
        self.name = name
        command = [sys.executable, "-P", compare_worker.__file__, "--what", what, "--slower", str(slower)]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._folder, self._clock = folder, clock

    def check(self) -> None:
        """Wait until it is ready, and make sure that it runs the package of its own folder."""
        ran = Path(self._ask("facts")["file"])
        if self._folder not in ran.parents:
            raise CompareError(f"{self.name} runs {ran}, not the package of {self._folder}")

    def turn(self) -> float:
        return self._ask("turn")[self._clock]

    def _ask(self, request: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({request: True}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise CompareError(f"the process of {self.name} ended with exit code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def sides(
    a: Path, b: Path, what: str, names: tuple[str, str], slower: float = 0.0, clock: str = "wall"
) -> Iterator[tuple[Side, Side]]:
    with contextlib.ExitStack() as stack:
        both = []
        for name, folder, share in zip(names, (a, b), (0.0, slower), strict=True):
            one = Side(name, folder, what, share, clock)
            stack.callback(one.close)
            one.check()  # before the next one starts: beside it the warm-up, and so a planted slowdown, would be longer
            both.append(one)
        yield both[0], both[1]


# ---- the verdict ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The time of B over that of A. `certain` decides, `ratio` has the usual interval for the report."""

    ratio: Spread
    certain: Spread
    rounds: Rounds

    @classmethod
    def of(cls, times: Rounds) -> Verdict:
        return cls(
            Spread.of_ratio(times["B"], times["A"]), Spread.of_ratio(times["B"], times["A"], level=CERTAIN), times
        )

    @property
    def difference(self) -> int:
        """1: B is slower, -1: B is faster, 0: no difference is seen."""
        return (self.certain.low > 1 + SAME) - (self.certain.high < 1 - SAME)

    def fails(self, limit: float) -> bool:
        """Whether B is slower, and by more than the limit."""
        return self.difference > 0 and self.ratio.median > 1 + limit

    def text(self) -> str:
        percent = abs(self.ratio.median - 1)
        if self.difference:
            return f"B is {'slower' if self.difference > 0 else 'faster'} by {percent:.1%}"
        width = max(self.certain.high - 1, 1 - self.certain.low)
        return "no difference" if width < VISIBLE else f"no difference seen; only one above {width:.0%} would be"

    def as_json(self) -> dict[str, Any]:
        return {
            "ratio": rounded(self.ratio.median),
            "interval": self.ratio.range,
            "interval_99": self.certain.range,
            "difference": self.difference,
            "verdict": self.text(),
            "seconds": {name: rounded(Spread.of(values).median) for name, values in self.rounds.items()},
            **self.rounds.facts(),
        }


def compare(
    a: Path, b: Path, what: str, rounds: int, names: tuple[str, str], slower: float = 0.0, clock: str = "wall"
) -> Verdict:
    with sides(a, b, what, names, slower, clock) as (first, second):
        return Verdict.of(interleave({"A": first.turn, "B": second.turn}, rounds, settle=0.01, mirrored=True))


# ---- the program ---------------------------------------------------------------------------------------------------


def self_test(a: Path, b: Path, what: str, rounds: int, name: str, clock: str) -> dict[str, Any]:
    """Compare a commit with itself, then with a slowed copy of itself."""
    began = time.monotonic()
    found: dict[str, list[Verdict]] = {"itself": [], "slowed": []}
    for kind, tries, slower in (("itself", TRIES, 0.0), ("slowed", SLOWED, SLOWDOWN)):
        for i in range(tries):
            one = compare(a, b, what, rounds, (name, name), slower, clock)
            found[kind].append(one)
            progress("")
            title = f"{kind} {i + 1} of {tries}"
            print(f"{title:<16} {one.ratio.text(3)}  {one.text()}  ({one.rounds.repeated} rounds repeated)", flush=True)
    same = sum(one.difference == 0 for one in found["itself"])
    seen = sum(one.difference > 0 for one in found["slowed"])
    return {
        "passed": same >= NEEDED and seen == SLOWED,
        "no_difference": same,
        "tries": TRIES,
        "slowdown": SLOWDOWN,
        "slowdowns_seen": seen,
        "slowdowns": SLOWED,
        "seconds": round(time.monotonic() - began),
        **{kind: [one.as_json() for one in verdicts] for kind, verdicts in found.items()},
    }


def percent(text: str) -> float:
    """ "3%" or "0.03" as a share."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"write a share such as 3% or 0.03, not {text!r}")
    return value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A", help="a commit, a branch or a tag; . is the working tree")
    parser.add_argument("b", metavar="B", nargs="?", help="the other one (default: the working tree)")
    parser.add_argument("--what", choices=list(compare_worker.WORKLOADS), default="step", help="(default: step)")
    parser.add_argument("--rounds", type=count, help=f"rounds (default {ROUNDS}; {SELF_TEST_ROUNDS} in the self-test)")
    parser.add_argument("--clock", choices=list(compare_worker.CLOCKS), default="wall", help="(default: wall)")
    parser.add_argument("--fail-over", type=percent, default=0.03, metavar="SHARE", help="(default: 3%%)")
    parser.add_argument("--plant", type=percent, default=0.0, metavar="SHARE", help="slow B down by a busy loop")
    parser.add_argument("--self-test", action="store_true", help="compare A with itself and with a slowed copy")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 3:
        parser.error("--rounds must be at least 3")
    rounds = options.rounds or (SELF_TEST_ROUNDS if options.self_test else ROUNDS)
    machine, described = describe_machine()
    with tempfile.TemporaryDirectory(prefix="glassbert-compare-") as temporary:
        a, b = Path(temporary, "a").resolve(), Path(temporary, "b").resolve()
        try:
            names = unpack(options.a, a), unpack(options.a if options.self_test else options.b or WORKING_TREE, b)
            if options.self_test:
                report = self_test(a, b, options.what, rounds, names[0], options.clock)
            else:
                verdict = compare(a, b, options.what, rounds, names, options.plant, options.clock)
        except CompareError as error:
            print(f"compare: {error}", file=sys.stderr)
            return 2
    title = compare_worker.WORKLOADS[options.what][2]
    if options.self_test:
        print(
            f"{title}: no difference in {report['no_difference']} of {TRIES} comparisons with itself; a slowdown of "
            f"{SLOWDOWN:.0%} seen in {report['slowdowns_seen']} of {SLOWED}; {report['seconds']} s: "
            f"{'passed' if report['passed'] else 'FAILED'}"
        )
        failed = not report["passed"]
    else:
        table_of(verdict, names, title, machine).show()
        print(verdict.text())
        failed = verdict.fails(options.fail_over)
        report = {"a": names[0], "b": names[1], **verdict.as_json(), "fail_over": options.fail_over, "failed": failed}
    if options.json:
        show_json(
            {"benchmark": "compare", "what": options.what, "clock": options.clock, **report, "machine": described},
            options.json,
        )
    return int(failed)


def table_of(verdict: Verdict, names: tuple[str, str], title: str, machine: str) -> Table:
    table = Table(title, ["", "commit", "ms", "ratio to A"], left=2)
    for side, name in zip("AB", names, strict=True):
        ratio = verdict.ratio.text(3) if side == "B" else ""
        table.rows.append([side, name, f"{1e3 * Spread.of(verdict.rounds[side]).median:,.1f}", ratio])
    table.notes = [verdict.rounds.note(), machine]
    return table


if __name__ == "__main__":
    run_program(main)
