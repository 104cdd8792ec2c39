"""Characters by kind: what the normaliser removes, separates, strips or lowers.

control       removed: Unicode's Cc, Cf and Co, and U+FFFD. Tab, line feed and carriage return are white space instead.
white space   separates words.
punctuation   a word of its own: Unicode's P, and every printable ASCII sign that is neither letter nor digit.
CJK           ideographs are written without spaces between words, so each one counts as a word.
mark          an accent that sits on the letter before it (Mn); stripped where accents are.
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
PUNCTUATION = code_points(ranges.PUNCTUATION)
MARKS = code_points(ranges.MARKS)
SPACING_MARKS = code_points(ranges.SPACING_MARKS)
CJK = code_points(ranges.CJK)
NEVER_DECOMPOSED = code_points(ranges.NEVER_DECOMPOSED)
SMALL_LETTERS = {
    chr(first + i): chr(small + i) for first, last, small in ranges.YOUNG_CAPITALS for i in range(last - first + 1)
}


def is_control(character: str) -> bool:
    return ord(character) in CONTROLS


def is_whitespace(character: str) -> bool:
    return ord(character) in WHITESPACE


def is_cjk(character: str) -> bool:
    return ord(character) in CJK


def is_mark(character: str) -> bool:
    return ord(character) in MARKS


def is_punctuation(character: str) -> bool:
    return ord(character) in PUNCTUATION


@lru_cache(4096)
def decompose(character: str) -> str:
    """'é' as 'e' and an acute accent: Unicode's canonical decomposition (NFD) of one character."""
    return character if ord(character) in NEVER_DECOMPOSED else unicodedata.normalize("NFD", character)


def combining_class(character: str) -> int:
    """0 for what begins something new; marks on one letter are sorted by this number."""
    code = ord(character)
    return unicodedata.combining(character) if code in MARKS or code in SPACING_MARKS else 0


def lower(character: str) -> str:
    """The small letter, whatever its neighbours: a capital sigma never becomes the one that ends a word."""
    return SMALL_LETTERS.get(character) or character.lower()
