"""The table of what was tried and what failed."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field


@dataclass
class Line:
    """One line: a kind of attack on a kind of file or command."""

    attack: str
    subject: str
    tried: int = 0
    failed: int = 0
    note: str = ""
    examples: list[str] = field(default_factory=list)

    def fail(self, what: str) -> None:
        self.failed += 1
        if len(self.examples) < 3:
            self.examples.append(what)


def describe(error: BaseException) -> str:
    """An exception with the last place in our code, in one line."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "glassbert" in frame.filename]
    where = f" in {frames[-1].filename.rpartition('glassbert/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {str(error)[:120]!r}{where}"


def as_markdown(lines: list[Line]) -> str:
    rows = [f"| {x.attack} | {x.subject} | {x.tried:,} | {x.failed:,} | {x.note} |" for x in lines]
    tried, failed = sum(x.tried for x in lines), sum(x.failed for x in lines)
    head = ["| attack | on | tried | failed | |", "|---|---|---:|---:|---|"]
    return "\n".join([*head, *rows, f"| **all** | | **{tried:,}** | **{failed:,}** | |"])
