"""Inspect a tokenizer: why words are split as they are (`trace_words`), and its vocabulary (`summarise_vocabulary`)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from glassbert.text.bulk_encoding import SPECIAL
from glassbert.text.fast import FastTokenizer
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import ROLES, SPECIAL_TOKENS, Tokenizer, check_text
from glassbert.text.wordpiece import CONTINUATION_PREFIX, WORD, Piece, split_words
from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer

CANDIDATES_SHOWN = 3
LONGEST_SHOWN = 10
RESERVED = re.compile(r"\[?<?unused_?\d+>?\]?")


# ---- words ----


@dataclass(frozen=True)
class MatchStep:
    """One position of a word: the candidates that are not in the vocabulary, longest first, and the match."""

    start: int
    tried: list[str]
    found: Piece | None


@dataclass(frozen=True)
class WordTrace:
    """One word of a text: as written, as normalised, its pieces, and the steps that found them."""

    written: str
    word: str
    pieces: list[Piece]
    steps: list[MatchStep]

    @property
    def is_unknown(self) -> bool:
        return not self.steps or self.steps[-1].found is None

    @property
    def reason(self) -> str:
        """Why the word has these pieces, as a text for the user."""
        if self.word in SPECIAL_TOKENS:
            return "a special token, not split"
        if not self.steps:
            return f"{len(self.word)} characters: too long, not split"
        if self.is_unknown:
            last = self.steps[-1]
            return f"no match at {self.word[last.start]!r}: {_listed(last.tried)} not in the vocabulary"
        if len(self.steps) == 1:
            return "the whole word is in the vocabulary"
        return "; ".join(
            f"{step.found.token} after {_listed(step.tried)}" if step.tried else step.found.token
            for step in self.steps
            if step.found
        )


def trace_words(tokenizer: WordPieceTokenizer, text: str) -> list[WordTrace]:
    """A trace for every word of a text, in order."""
    check_text(text)
    traces = []
    for part in SPECIAL.split(text):
        if part in SPECIAL_TOKENS:
            piece = Piece(part, tokenizer.vocabulary[part], 0, len(part))
            traces.append(WordTrace(part, part, [piece], [MatchStep(0, [], piece)]))
            continue
        normalised = tokenizer.normaliser(part)
        for start, end in split_words(normalised.text):
            first, last = normalised.span(start, end)
            word = normalised.text[start:end]
            traces.append(WordTrace(part[first:last], word, tokenizer.wordpiece.split(word), _steps(tokenizer, word)))
    return traces


def _steps(tokenizer: WordPieceTokenizer, word: str) -> list[MatchStep]:
    wordpiece = tokenizer.wordpiece
    if len(word) > wordpiece.longest_word:
        return []
    known = wordpiece.known_pieces(word)
    starts = [0, *(piece.end for piece in known)]
    steps = []
    for start, found in zip(starts, [*known, None], strict=True):
        if start < len(word):
            matched_end = found.end if found else start
            tried = [token for end, token in wordpiece.candidates(word, start) if end > matched_end]
            steps.append(MatchStep(start, tried, found))
    return steps


def _listed(tokens: list[str]) -> str:
    """The first few tokens, and the number of the others."""
    more = len(tokens) - CANDIDATES_SHOWN
    return ", ".join(tokens[:CANDIDATES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# ---- the vocabulary ----


@dataclass(frozen=True)
class VocabularySummary:
    entries: int
    special: dict[str, tuple[str, int]]  # role -> token and id
    continuations: int
    characters: dict[str, int]  # script -> number of single-character entries
    lengths: dict[int, int]  # number of characters -> number of entries
    longest: list[str]
    reserved: int  # entries such as [unused0]
    unreachable: list[str]  # entries that no text can produce; WordPiece only
    only_first: list[str]  # characters with an entry at the start of a word only: inside a word they make it unknown


def summarise_vocabulary(tokenizer: Tokenizer, normaliser: Normaliser | None = None) -> VocabularySummary:
    """Summarise a vocabulary. `unreachable` and `only_first` are computed only if a WordPiece `normaliser` is given."""
    special = {
        role: (name, tokenizer.vocabulary[name]) for role, name in zip(ROLES, tokenizer.special_names, strict=True)
    }
    names = {tokenizer.id_to_token(id) for id in tokenizer.special_ids}
    reserved = {token for token in tokenizer.vocabulary if RESERVED.fullmatch(token)} - names
    ordinary = [token for token in tokenizer.vocabulary if token not in names and token not in reserved]
    spelled = {token: _without_marker(tokenizer, token) for token in ordinary}
    singles = {text for text in spelled.values() if len(text) == 1}
    inside = {text for token, text in spelled.items() if token != text and len(text) == 1}
    unreachable, only_first = [], []
    if normaliser is not None:
        unreachable = [token for token, text in spelled.items() if not _can_occur(token, text, normaliser)]
        only_first = sorted(c for c in singles - inside if len(WORD.findall(f"a{c}a")) == 1)
    return VocabularySummary(
        entries=len(tokenizer.vocabulary),
        special=special,
        continuations=int(tokenizer.continues_word.sum()),
        characters=dict(Counter(map(_script, singles)).most_common()),
        lengths=dict(sorted(Counter(map(len, spelled.values())).items())),
        longest=sorted(ordinary, key=lambda token: (-len(spelled[token]), token))[:LONGEST_SHOWN],
        reserved=len(reserved),
        unreachable=sorted(unreachable),
        only_first=only_first,
    )


def _without_marker(tokenizer: Tokenizer, token: str) -> str:
    """A token without its `##` or space marker."""
    if isinstance(tokenizer, FastTokenizer) and tokenizer.space_mark:
        return token.removeprefix(tokenizer.space_mark)
    return token.removeprefix(CONTINUATION_PREFIX) or token


def _can_occur(token: str, text: str, normaliser: Normaliser) -> bool:
    """Whether normalisation keeps `text` unchanged and there is no word boundary inside it or, for `##`, before it."""
    if normaliser.text(text).strip(" ") != text:
        return False
    return WORD.findall(f"a{text}" if token != text else text) == [f"a{text}" if token != text else text]


def _script(character: str) -> str:
    """The script of a letter (first word of its Unicode name: Latin, Greek, CJK), or digits, punctuation, signs."""
    kind = unicodedata.category(character)[0]
    if kind in "LM":
        script = re.split("[ -]", unicodedata.name(character, "unnamed"))[0]
        return script if script == "CJK" else script.capitalize()
    return {"N": "digits", "P": "punctuation"}.get(kind, "signs")
