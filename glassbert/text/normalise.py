"""BERT's text normalisation, with the origin of every character.

    "Ｃ\\x00afé 中" -> clean -> separate CJK -> strip accents -> lower case -> "ｃafe  中 "

The steps remove, insert and replace characters. So each character carries the index of the original character that it
came from, and the offsets of tokens refer to the original text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from glassbert.text.characters import combining_class, decompose, is_cjk, is_control, is_mark, is_whitespace, lower

CharacterWithOrigin = tuple[str, int]  # a character and the index of the original character

# Printable ASCII changes only its case, and marks do not move across it. It is handled separately, for speed.
PLAIN_OR_NOT = re.compile("(?P<plain>[ -~]+)|[^ -~]+")


@dataclass(frozen=True)
class Normalised:
    """Normalised text; `origins[i]` is the index in the original text of character i."""

    text: str
    origins: list[int]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The (start, end) in the original text of text[start:end]."""
        return self.origins[start], self.origins[end - 1] + 1


@dataclass(frozen=True)
class Normaliser:
    """BERT's normalisation with its four options. `strip_accents` None means: the same as `lowercase`."""

    clean_text: bool = True
    handle_chinese_chars: bool = True
    strip_accents: bool | None = None
    lowercase: bool = True

    @property
    def strips_accents(self) -> bool:
        return self.lowercase if self.strip_accents is None else self.strip_accents

    def text(self, text: str) -> str:
        """The normalised text without origins; many times faster than calling the normaliser."""
        if text.isascii() and text.isprintable():
            return text.lower() if self.lowercase else text
        try:
            return text.translate(_table(self))
        except _NeedsContextError:
            return self(text).text

    def __call__(self, text: str) -> Normalised:
        normalised: list[str] = []
        origins: list[int] = []
        for match in PLAIN_OR_NOT.finditer(text):
            indices = range(*match.span())
            if match["plain"]:
                normalised.append(match["plain"].lower() if self.lowercase else match["plain"])
                origins.extend(indices)
                continue
            for character, origin in self.steps(zip(match[0], indices, strict=True)):
                normalised.append(character)
                origins.append(origin)
        return Normalised("".join(normalised), origins)

    def steps(self, characters: Iterable[CharacterWithOrigin]) -> Iterable[CharacterWithOrigin]:
        """The enabled steps, in BERT's order."""
        if self.clean_text:
            characters = clean(characters)
        if self.handle_chinese_chars:
            characters = separate_cjk(characters)
        if self.strips_accents:
            characters = strip_accents(characters)
        if self.lowercase:
            characters = lower_case(characters)
        return characters


class _NeedsContextError(Exception):
    """The normal form of a character depends on its neighbours."""


class _Table(dict[int, str]):
    """Cache for str.translate: code point -> normalised text.

    Marks that are kept must be sorted with their neighbours; for these the table raises _NeedsContextError.
    """

    def __init__(self, normaliser: Normaliser):
        super().__init__()
        self.normaliser = normaliser

    def __missing__(self, code: int) -> str:
        text = self.normaliser(chr(code)).text
        if self.normaliser.strips_accents and any(map(combining_class, text)):
            raise _NeedsContextError
        self[code] = text
        return text


@lru_cache(16)
def _table(normaliser: Normaliser) -> _Table:
    return _Table(normaliser)


def clean(characters: Iterable[CharacterWithOrigin]) -> Iterator[CharacterWithOrigin]:
    """Remove control characters and replace white space by a space."""
    for character, origin in characters:
        if not is_control(character):
            yield (" " if is_whitespace(character) else character), origin


def separate_cjk(characters: Iterable[CharacterWithOrigin]) -> Iterator[CharacterWithOrigin]:
    """Insert a space before and after every ideograph."""
    for character, origin in characters:
        if is_cjk(character):
            yield from ((" ", origin), (character, origin), (" ", origin))
        else:
            yield character, origin


def strip_accents(characters: Iterable[CharacterWithOrigin]) -> Iterator[CharacterWithOrigin]:
    """Decompose letters and remove their marks."""
    return ((character, origin) for character, origin in decomposed(characters) if not is_mark(character))


def decomposed(characters: Iterable[CharacterWithOrigin]) -> Iterator[CharacterWithOrigin]:
    """Unicode's NFD: decompose letters, and sort the marks on one letter by combining class.

    The trap: sorting moves characters but not origins, as in `tokenizers`. The first part of a character takes the
    next origin in the original order; further parts repeat the last origin taken.
    """
    marks: list[tuple[str, bool]] = []
    origins: list[int] = []

    def sorted_marks() -> Iterator[CharacterWithOrigin]:
        marks.sort(key=lambda mark: combining_class(mark[0]))
        remaining = iter(origins)
        origin = taken
        for character, is_first in marks:
            if is_first:
                origin = next(remaining)
            yield character, origin
        marks.clear()
        origins.clear()

    taken = 0
    for character, origin in characters:
        for i, part in enumerate(decompose(character)):
            if combining_class(part):
                marks.append((part, i == 0))
                if i == 0:
                    origins.append(origin)
                continue
            if marks:
                last = origins[-1] if origins else taken
                yield from sorted_marks()
                taken = last
            yield part, origin
            taken = origin
    yield from sorted_marks()


def lower_case(characters: Iterable[CharacterWithOrigin]) -> Iterator[CharacterWithOrigin]:
    """Lower-case every character; one character may become several."""
    for character, origin in characters:
        for lowered in lower(character):
            yield lowered, origin
