"""New pieces for a WordPiece vocabulary: those of another text that save most tokens.

    new words of the text:  ker ##nel ×90, ker ##nels ×30     the pair (ker, ##nel) is merged: kernel ×90, ...
    saved by a piece = uses · (old pieces it replaces - 1)

The words of the text are split by the old vocabulary, and the merging of `vocabulary_training` goes on from there.
Merges on the way to a longer piece may end up unused, so twice as many candidates are made, every word is split again
with all of them, and the best by what they save are kept. Characters that the vocabulary does not have come first: a
word with one of them is unknown as a whole. Old ids never change, so old rows of a model stay valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from glassbert.errors import TextError
from glassbert.text.vocabulary_training import PairMerger
from glassbert.text.wordpiece import CONTINUATION_PREFIX, WordPiece
from glassbert.text.wordpiece_files import Description

CANDIDATES = 2  # times the wanted pieces
MIN_FREQUENCY = 5  # a rarer piece has too few examples to learn its row


@dataclass(frozen=True)
class NewPiece:
    """A new entry, the ids of the old pieces that it replaces, its uses in the text, and the tokens it saves."""

    token: str
    replaces: tuple[int, ...]
    uses: int
    saved: int


def choose_pieces(
    counts: Counter[str], description: Description, number: int, min_frequency: int = MIN_FREQUENCY
) -> list[NewPiece]:
    """At most `number` new pieces for the words of `counts`, the most useful first.

    Pieces with fewer than `min_frequency` uses are left out. Characters need only MIN_FREQUENCY: without them a word is
    unknown.
    """
    if number < 0:
        raise TextError(f"new pieces must be a whole number of at least 0, got {number}")
    old = dict(description.vocabulary)
    unknown = (old["[UNK]"],)
    missing = _missing_characters(counts, old, min(min_frequency, MIN_FREQUENCY))[:number]
    characters = [NewPiece(token, unknown, uses, uses) for token, uses in missing]
    tokens = [piece.token for piece in characters]
    number -= len(characters)
    candidates: list[str] = []
    for token in PieceMerger(counts, [*description.tokens, *tokens]).merges(min_frequency) if number else ():
        candidates.append(token)
        if len(candidates) >= CANDIDATES * number:
            break
    splitter = WordPiece(old, longest_word=description.longest_word)
    best: list[NewPiece] = []
    for _ in range(2):  # the second time without the candidates that lost
        used = _used(counts, old, tokens, candidates, splitter)
        frequent = [piece for piece in used if piece.uses >= min_frequency]  # longer pieces may take a piece's uses
        best = sorted(frequent, key=lambda piece: (-piece.saved, piece.token))[:number]
        candidates = [piece.token for piece in best]
    return [*characters, *best]


def _used(
    counts: Counter[str], old: Mapping[str, int], characters: list[str], candidates: list[str], splitter: WordPiece
) -> list[NewPiece]:
    """The candidates that the words use when they are split with all of them."""
    first = len(old) + len(characters)
    vocabulary = {**old, **{token: len(old) + number for number, token in enumerate([*characters, *candidates])}}
    wordpiece = WordPiece(vocabulary, longest_word=splitter.longest_word)
    uses: Counter[str] = Counter()
    for word, count in counts.items():
        for piece in wordpiece.split(word):
            if piece.id >= first:
                uses[piece.token] += count
    found = []
    for token, count in uses.items():
        replaces = replaced_pieces(token, splitter)
        found.append(NewPiece(token, replaces, count, count * max(1, len(replaces) - 1)))
    return found


def replaced_pieces(token: str, old: WordPiece) -> tuple[int, ...]:
    """The old ids of the text of a piece, split where it stands; the unknown token if it cannot be split."""
    inside = token.startswith(CONTINUATION_PREFIX)
    # a character before it makes the splitter see the inside of a word
    word = ("\0" if inside else "") + token.removeprefix(CONTINUATION_PREFIX)
    start, ids = int(inside), []
    while start < len(word):
        found = next(((end, name) for end, name in old.candidates(word, start) if name in old.vocabulary), None)
        if found is None:
            return (old.vocabulary[old.unknown],)
        start = found[0]
        ids.append(old.vocabulary[found[1]])
    return tuple(ids)


def _missing_characters(
    counts: Counter[str], vocabulary: Mapping[str, int], min_frequency: int
) -> list[tuple[str, int]]:
    """Characters that words need and the vocabulary does not have, with their uses, the most frequent first."""
    missing: Counter[str] = Counter()
    for word, count in counts.items():
        for position, character in enumerate(word):
            token = (CONTINUATION_PREFIX if position else "") + character
            if token not in vocabulary:
                missing[token] += count
    frequent = [(token, uses) for token, uses in missing.items() if uses >= min_frequency]
    return sorted(frequent, key=lambda one: (-one[1], one[0]))


class PieceMerger(PairMerger):
    """Merges that go on from the pieces of a vocabulary instead of from characters."""

    @cached_property
    def wordpiece(self) -> WordPiece:
        return WordPiece(dict(self.ids))

    def _character_ids(self, word: str) -> list[int]:
        pieces = self.wordpiece.known_pieces(word)
        return [piece.id for piece in pieces] if pieces and pieces[-1].end == len(word) else []


def extended(description: Description, pieces: list[NewPiece]) -> Description:
    """The tokenizer with the new pieces after all old ones."""
    tokens = (*description.tokens, *(piece.token for piece in pieces))
    return Description(tokens, description.normaliser, description.longest_word)
