"""Normalisation: the same word in one spelling, and for every character of it the place it came from.

    "Ｃ\\x00afé 中" -> clean -> CJK apart -> accents off -> lower case -> "ｃafe  中 "

BERT's rules, in BERT's order. Characters are removed, inserted and replaced on the way, so each one carries the index
of the character of the original text that it stands for; a token can then always say which stretch of it it covers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from glassbert.text.characters import combining_class, decompose, is_cjk, is_control, is_mark, is_whitespace, lower

Placed = tuple[str, int]  # a character and the index of the one it came from

# In plain ASCII nothing but the case can change, and no mark reaches back over it: it takes a short cut.
PLAIN_OR_NOT = re.compile("(?P<plain>[ -~]+)|[^ -~]+")


@dataclass(frozen=True)
class Normalised:
    """Normalised text; `origins[i]` is the index in the original text of what became character i."""

    text: str
    origins: list[int]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original text from which text[start:end] came."""
        return self.origins[start], self.origins[end - 1] + 1


@dataclass(frozen=True)
class Normaliser:
    """The four switches of BERT's normalisation; `strip_accents` None means: if and only if in lower case."""

    clean_text: bool = True
    handle_chinese_chars: bool = True
    strip_accents: bool | None = None
    lowercase: bool = True

    @property
    def strips_accents(self) -> bool:
        return self.lowercase if self.strip_accents is None else self.strip_accents

    def text(self, text: str) -> str:
        """Only the normalised text, where nobody asks what came from where; many times quicker."""
        if text.isascii() and text.isprintable():
            return text.lower() if self.lowercase else text
        try:
            return text.translate(_table(self))
        except _NeedsNeighboursError:
            return self(text).text

    def __call__(self, text: str) -> Normalised:
        normalised: list[str] = []
        origins: list[int] = []
        for stretch in PLAIN_OR_NOT.finditer(text):
            places = range(*stretch.span())
            if stretch["plain"]:
                normalised.append(stretch["plain"].lower() if self.lowercase else stretch["plain"])
                origins.extend(places)
                continue
            for character, origin in self.steps(zip(stretch[0], places, strict=True)):
                normalised.append(character)
                origins.append(origin)
        return Normalised("".join(normalised), origins)

    def steps(self, placed: Iterable[Placed]) -> Iterable[Placed]:
        """All that is switched on, in BERT's order."""
        if self.clean_text:
            placed = clean(placed)
        if self.handle_chinese_chars:
            placed = set_cjk_apart(placed)
        if self.strips_accents:
            placed = strip_accents(placed)
        if self.lowercase:
            placed = in_lower_case(placed)
        return placed


class _NeedsNeighboursError(Exception):
    """A character that cannot be normalised by itself."""


class _Table(dict[int, str]):
    """What becomes of a character, worked out when it is first met.

    Only marks that survive and have to be sorted depend on their neighbours; they are left to the long way.
    """

    def __init__(self, normaliser: Normaliser):
        super().__init__()
        self.normaliser = normaliser

    def __missing__(self, code: int) -> str:
        text = self.normaliser(chr(code)).text
        if self.normaliser.strips_accents and any(map(combining_class, text)):
            raise _NeedsNeighboursError
        self[code] = text
        return text


@lru_cache(16)
def _table(normaliser: Normaliser) -> _Table:
    return _Table(normaliser)


def clean(placed: Iterable[Placed]) -> Iterator[Placed]:
    """Without control characters; every kind of white space as a plain space."""
    for character, origin in placed:
        if not is_control(character):
            yield (" " if is_whitespace(character) else character), origin


def set_cjk_apart(placed: Iterable[Placed]) -> Iterator[Placed]:
    """A space on either side of every ideograph."""
    for character, origin in placed:
        if is_cjk(character):
            yield from ((" ", origin), (character, origin), (" ", origin))
        else:
            yield character, origin


def strip_accents(placed: Iterable[Placed]) -> Iterator[Placed]:
    """Letters taken apart into letter and marks, the marks dropped."""
    return ((character, origin) for character, origin in decomposed(placed) if not is_mark(character))


def decomposed(placed: Iterable[Placed]) -> Iterator[Placed]:
    """Unicode's NFD: letters taken apart, and the marks on one letter sorted by their combining class.

    The trap is in the sorting: characters change places and origins do not. The first part of a letter takes the next
    origin in line, whichever letter it is; every further part shares the origin taken last.
    """
    marks: list[tuple[str, bool]] = []
    origins: list[int] = []

    def in_order() -> Iterator[Placed]:
        marks.sort(key=lambda mark: combining_class(mark[0]))
        line = iter(origins)
        origin = taken
        for character, is_first in marks:
            if is_first:
                origin = next(line)
            yield character, origin
        marks.clear()
        origins.clear()

    taken = 0
    for character, origin in placed:
        for i, part in enumerate(decompose(character)):
            if combining_class(part):
                marks.append((part, i == 0))
                if i == 0:
                    origins.append(origin)
                continue
            if marks:
                last = origins[-1] if origins else taken
                yield from in_order()
                taken = last
            yield part, origin
            taken = origin
    yield from in_order()


def in_lower_case(placed: Iterable[Placed]) -> Iterator[Placed]:
    for character, origin in placed:
        for small in lower(character):
            yield small, origin
