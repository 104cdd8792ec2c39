"""Docstrings of the package as Markdown: aligned lists of names and meanings become tables.

head         "mlm", "binary", ...
num_labels   classes, labels or ranks
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parents[2]))

from docs.site.commands import escape

ENTRY = re.compile(r"^( *)(\S(?:.*?\S)?) {2,}(\S.*)$")
DERIVATION = re.compile(r"docs/derivations/([\w-]+)\.md((?:,? ?\(\d+\.\d+\))+)")
FORMULA = re.compile(r"[=·→<>≥≤∈√Σ]")


def as_markdown(text: str) -> str:
    """Paragraphs that are aligned lists as tables, indented ones as code, the rest as it is."""
    text = re.sub(r":$", ".", text.strip("\n"))  # a list that is added at run time follows
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n[ \t]*\n", text))


def _paragraph(part: str) -> str:
    lines = part.split("\n")
    entries: list[list[str]] = []
    column = -1
    for line in lines:
        match = ENTRY.match(line)
        start = match.start(3) if match else len(line) - len(line.lstrip())
        if match and column in (-1, start) and not FORMULA.search(match[2]):
            column = start
            entries.append([match[2], match[3]])
        elif entries and start == column:
            entries[-1][1] += " " + line.strip()
        else:
            return _text(part)
    if len(entries) < 2:
        return _text(part)
    rows = [f"| `{name.strip('`')}` | {escape(meaning)} |" for name, meaning in entries]
    return "\n".join(["| | |", "|---|---|", *rows])


def _text(part: str) -> str:
    """An indented paragraph or a few calls are code; any other is text, with nothing as markup but backquotes."""
    if _is_code(part):
        return re.sub("^", "    ", part, flags=re.M)
    return part if part.startswith("    ") else DERIVATION.sub(_formulas, escape(part))


def _is_code(part: str) -> bool:
    """Whether all lines are calls in Python, or calls whose result gets a name."""
    try:
        lines = ast.parse(part).body
    except SyntaxError:
        return False
    return bool(lines) and all(
        isinstance(line, ast.Assign | ast.Expr) and isinstance(line.value, ast.Call) for line in lines
    )


def _formulas(match: re.Match[str]) -> str:
    """The numbers of formulas as links, from a page of the reference."""
    return re.sub(r"\((\d+)\.(\d+)\)", rf"[(\1.\2)](../derivations/{match[1]}.md#f-\1-\2)", match[2]).strip()


class PlainDocstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
