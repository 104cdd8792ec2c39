"""The character classes that the normaliser uses.

control       removed: Unicode's Cc, Cf and Co, and U+FFFD. Tab, line feed and carriage return are white space instead.
white space   separates words.
punctuation   a word of its own: Unicode's P, and every printable ASCII character that is neither letter nor digit.
CJK           ideographs have no spaces between words, so each one is a word.
mark          an accent on the preceding letter (Mn); removed if accents are stripped.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from glassbert.text import character_ranges as ranges


def code_points(text: str) -> frozenset[int]:
    """'41-43 61' as {0x41, 0x42, 0x43, 0x61}."""
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(found)


def character_class(text: str) -> str:
    """'41-43 61' as the inside of a regular expression's [...]."""
    pairs = (part.partition("-") for part in text.split())
    return "".join(f"\\U{int(first, 16):08x}-\\U{int(last or first, 16):08x}" for first, _, last in pairs)


CONTROLS = code_points(ranges.CONTROLS)
WHITESPACE = code_points(ranges.WHITESPACE)

MARKS = code_points(ranges.MARKS)
SPACING_MARKS = code_points(ranges.SPACING_MARKS)
CJK = code_points(ranges.CJK)
NEVER_DECOMPOSED = code_points(ranges.NEVER_DECOMPOSED)
SMALL_LETTERS = {
    chr(first + i): chr(small + i) for first, last, small in ranges.NEW_CAPITALS for i in range(last - first + 1)
}


def is_control(character: str) -> bool:
    return ord(character) in CONTROLS


def is_whitespace(character: str) -> bool:
    return ord(character) in WHITESPACE


def is_cjk(character: str) -> bool:
    return ord(character) in CJK


def is_mark(character: str) -> bool:
    return ord(character) in MARKS


@lru_cache(4096)
def decompose(character: str) -> str:
    """'é' as 'e' and an acute accent: Unicode's canonical decomposition (NFD) of one character."""
    return character if ord(character) in NEVER_DECOMPOSED else unicodedata.normalize("NFD", character)


def combining_class(character: str) -> int:
    """The canonical combining class: 0 for base characters; the marks on one letter are sorted by it."""
    code = ord(character)
    return unicodedata.combining(character) if code in MARKS or code in SPACING_MARKS else 0


def lower(character: str) -> str:
    """The lower case of one character, independent of context: a capital sigma never becomes a final sigma."""
    return SMALL_LETTERS.get(character) or character.lower()
