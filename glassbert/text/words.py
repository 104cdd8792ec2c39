"""Words: what stands between white space, and every punctuation mark for itself."""

from __future__ import annotations

import re

from glassbert.text import character_ranges as ranges
from glassbert.text.characters import character_class

_space, _mark = character_class(ranges.WHITESPACE), character_class(ranges.PUNCTUATION)
WORD = re.compile(f"[^{_space}{_mark}]+|[{_mark}]")


def split_words(text: str) -> list[tuple[int, int]]:
    """Where the words of a normalised text begin and end: "don't stop" has don, ', t and stop."""
    return [match.span() for match in WORD.finditer(text)]
