"""What a vocabulary is made of: whole words and continuations, characters, reserved and unreachable entries."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from glassbert.text.fast import FastTokenizer
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import ROLES, Tokenizer
from glassbert.text.wordpiece import CONTINUES
from glassbert.text.words import WORD

RESERVED = re.compile(r"\[?<?unused_?\d+>?\]?")


@dataclass(frozen=True)
class Anatomy:
    entries: int
    special: dict[str, tuple[str, int]]  # role -> its token and id
    continuations: int
    characters: dict[str, int]  # script -> how many characters of it have an entry
    lengths: dict[int, int]  # characters -> how many entries are so long
    longest: list[str]
    reserved: int  # [unused0] and the like
    unreachable: list[str]  # no text gives these; WordPiece only
    only_first: list[str]  # characters that may begin a word but not go on in it: they make words unknown

    @property
    def first_pieces(self) -> int:
        return self.entries - self.continuations - len(self.special) - self.reserved


def dissect(tokenizer: Tokenizer, normaliser: Normaliser | None = None, most: int = 10) -> Anatomy:
    """The make-up of a vocabulary; what is unreachable can only be told of WordPiece, given its normaliser."""
    special = {
        role: (name, tokenizer.vocabulary[name]) for role, name in zip(ROLES, tokenizer.special_names, strict=True)
    }
    names = {tokenizer.id_to_token(id) for id in tokenizer.special_ids}
    reserved = {token for token in tokenizer.vocabulary if RESERVED.fullmatch(token)} - names
    ordinary = [token for token in tokenizer.vocabulary if token not in names and token not in reserved]
    spelled = {token: _spelled(tokenizer, token) for token in ordinary}
    singles = {text for text in spelled.values() if len(text) == 1}
    inside = {text for token, text in spelled.items() if token != text and len(text) == 1}
    unreachable, only_first = [], []
    if normaliser is not None:
        unreachable = [token for token, text in spelled.items() if not _can_occur(token, text, normaliser)]
        only_first = sorted(c for c in singles - inside if len(WORD.findall(f"a{c}a")) == 1)
    return Anatomy(
        entries=len(tokenizer.vocabulary),
        special=special,
        continuations=int(tokenizer.continues_word.sum()),
        characters=dict(Counter(map(_script, singles)).most_common()),
        lengths=dict(sorted(Counter(map(len, spelled.values())).items())),
        longest=sorted(ordinary, key=lambda token: (-len(spelled[token]), token))[:most],
        reserved=len(reserved),
        unreachable=sorted(unreachable),
        only_first=only_first,
    )


def _spelled(tokenizer: Tokenizer, token: str) -> str:
    """A token without the marks that say where it stands."""
    if isinstance(tokenizer, FastTokenizer) and tokenizer.space_mark:
        return token.removeprefix(tokenizer.space_mark)
    return token.removeprefix(CONTINUES) or token


def _can_occur(token: str, text: str, normaliser: Normaliser) -> bool:
    """Whether normalisation leaves such a text, and no word boundary runs through it or before it."""
    if normaliser.text(text).strip(" ") != text:
        return False
    return WORD.findall(f"a{text}" if token != text else text) == [f"a{text}" if token != text else text]


def _script(character: str) -> str:
    """Latin, Greek, CJK and so on: the first word of the character's name, for letters."""
    kind = unicodedata.category(character)[0]
    if kind in "LM":
        script = re.split("[ -]", unicodedata.name(character, "unnamed"))[0]
        return script if script == "CJK" else script.capitalize()
    return {"N": "digits", "P": "punctuation"}.get(kind, "signs")
