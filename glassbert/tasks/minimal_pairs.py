"""Minimal pairs: two sentences that differ in one point, one right and one wrong. A line each, the wrong one first."""

from __future__ import annotations

from pathlib import Path

from glassbert.errors import TextError
from glassbert.tasks.plain_text import read_lines
from glassbert.tasks.table import Table


def read_minimal_pairs(path: str | Path) -> Table:
    """Columns "bad" and "good". Pairs as JSON lines (sentence_good, sentence_bad) are read by `read_table`."""
    lines = read_lines(path)
    if len(lines) % 2:
        raise TextError(f"{path} has {len(lines):,} lines: the last sentence has no partner")
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if empty:
        raise TextError(f"{path}, line {empty:,} is empty; pairs stand on lines 1 and 2, 3 and 4, and so on")
    starts = range(1, len(lines) + 1, 2)
    return Table({"bad": lines[::2], "good": lines[1::2]}, str(path), starts)
