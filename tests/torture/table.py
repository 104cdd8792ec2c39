"""The table of what was tried and what failed."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from glassbert.errors import shortened

EXAMPLES = 3  # of a line


@dataclass
class Line:
    """One line: a kind of attack on a kind of file or command."""

    attack: str
    subject: str
    tried: int = 0
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # what happened how often, such as "noticed"
    largest: dict[str, float] = field(default_factory=dict)  # the largest value seen of each kind
    said: str = ""
    examples: list[str] = field(default_factory=list)

    def fail(self, what: str) -> None:
        self.failed += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(what)

    def measure(self, what: str, value: float) -> None:
        self.largest[what] = max(value, self.largest.get(what, value))

    def add(self, other: Line) -> None:
        """Take in the results of another process."""
        self.tried += other.tried
        self.failed += other.failed
        self.counts += other.counts
        for what, value in other.largest.items():
            self.measure(what, value)
        self.said = other.said or self.said
        self.examples = [*self.examples, *other.examples][:EXAMPLES]

    @property
    def note(self) -> str:
        happened = [f"{count:,} {what}" for what, count in sorted(self.counts.items())]
        measured = [f"{what} {value:.3g}" for what, value in self.largest.items()]
        return ", ".join([*happened, *measured, *filter(None, [self.said])])


def merged(lines: Iterable[Line]) -> list[Line]:
    """One line for each attack and subject."""
    found: dict[tuple[str, str], Line] = {}
    for line in lines:
        found.setdefault((line.attack, line.subject), Line(line.attack, line.subject)).add(line)
    return list(found.values())


def describe(error: BaseException) -> str:
    """An exception with the last place in our code, in one line."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "glassbert" in frame.filename]
    where = f" in {frames[-1].filename.rpartition('glassbert/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {shortened(str(error), 300)!r}{where}"


def as_markdown(lines: list[Line]) -> str:
    rows = [f"| {x.attack} | {x.subject} | {x.tried:,} | {x.failed:,} | {x.note} |" for x in lines]
    tried, failed = sum(x.tried for x in lines), sum(x.failed for x in lines)
    head = ["| attack | on | tried | failed | |", "|---|---|---:|---:|---|"]
    return "\n".join([*head, *rows, f"| **all** | | **{tried:,}** | **{failed:,}** | |"])


def examples_of(lines: list[Line]) -> str:
    return "".join(f"\n{line.attack}, {line.subject}: {example}\n" for line in lines for example in line.examples)


def write_table(folder: Path, lines: list[Line]) -> None:
    """`table.md` and `table.json`, moved into place whole."""
    text = as_markdown(lines) + "\n" + examples_of(lines)
    for name, content in (("table.md", text), ("table.json", json.dumps([vars(line) for line in lines], indent=1))):
        beside = folder / f"{name}.new"
        beside.write_text(content, encoding="utf-8")
        beside.replace(folder / name)
