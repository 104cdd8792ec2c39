"""The code blocks and command lines of the README and of the documentation, and the tables of docs/tested.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TESTED = "docs/tested.md"
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2 *$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`(glassbert [^`\n]+)`(?!`)")
LANGUAGES = ("python", "bash", "text", "toml", "json")


class Block(NamedTuple):
    page: str
    line: int  # of the first line of code
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    page: str
    line: int
    words: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def glassbert(self) -> list[str] | None:
        """The arguments of `glassbert`, also behind a launcher such as mpirun; None for other programs."""
        for i, word in enumerate(self.words):
            if word in ("glassbert", "$(which glassbert)"):
                return list(self.words[i + 1 :])
        return None


def pages() -> list[str]:
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    found += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "minibert" not in path.parts]
    return [path.relative_to(ROOT).as_posix() for path in found]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    text = read(page)
    return [Block(page, text.count("\n", 0, match.start(4)) + 1, match[3], match[4]) for match in FENCE.finditer(text)]


def commands(block: Block) -> list[Command]:
    """The command lines of a bash block; lines that end in a backslash go on."""
    found = []
    line, pending = block.line, ""
    for number, text in enumerate(block.text.split("\n"), block.line):
        line = line if pending else number
        pending += text.rstrip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        words = split(pending)
        if words:
            found.append(Command(block.page, line, words))
        pending = ""
    return found


def split(line: str) -> tuple[str, ...]:
    """The words of a command line, without its comment; `$(...)` is one word."""
    lexer = shlex.shlex(line.replace("$(which glassbert)", "'$(which glassbert)'"), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    return tuple(lexer)


def spans(page: str) -> list[Command]:
    """Command lines in the running text: `glassbert resume RUN`."""
    text = read(page)
    for block in FENCE.finditer(text):  # blanked, so that lines keep their numbers
        text = text.replace(block[0], "\n" * block[0].count("\n"))
    return [
        Command(page, text.count("\n", 0, match.start()) + 1, split(match[1].removesuffix("...").rstrip()))
        for match in SPAN.finditer(text)
    ]


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of docs/tested.md; code in backquotes without them."""
    part = read(TESTED).split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split(" | ") for line in part.split("\n") if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in rows[2:]]
