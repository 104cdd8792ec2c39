"""Why a word fell apart as it did: which pieces were tried in vain, which one matched, and where nothing did."""

from __future__ import annotations

from dataclasses import dataclass

from glassbert.text.bulk import SPECIAL
from glassbert.text.tokenizer import SPECIAL_TOKENS, check_text
from glassbert.text.wordpiece import Piece
from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer
from glassbert.text.words import split_words


@dataclass(frozen=True)
class Step:
    """At one place of a word: the candidates that the vocabulary lacks, longest first, and the one that it has."""

    start: int
    tried: list[str]
    found: Piece | None


@dataclass(frozen=True)
class Story:
    """One word of a text: as it is written, as it is normalised, its pieces, and how they were found."""

    written: str
    word: str
    pieces: list[Piece]
    steps: list[Step]

    @property
    def is_unknown(self) -> bool:
        return not self.steps or self.steps[-1].found is None

    @property
    def reason(self) -> str:
        if self.word in SPECIAL_TOKENS:
            return "a special token, taken as it is written"
        if not self.steps:
            return f"{len(self.word)} characters: a word so long is not tried"
        if self.is_unknown:
            stuck = self.steps[-1]
            return f"nothing fits at {self.word[stuck.start]!r}: {_listed(stuck.tried)} not in the vocabulary"
        if len(self.steps) == 1:
            return "in the vocabulary as a whole"
        return "; ".join(
            f"{step.found.token} after {_listed(step.tried)}" if step.tried else step.found.token
            for step in self.steps
            if step.found
        )


def explain(tokenizer: WordPieceTokenizer, text: str) -> list[Story]:
    """What happens to every word of a text, in order."""
    check_text(text)
    stories = []
    for stretch in SPECIAL.split(text):
        if stretch in SPECIAL_TOKENS:
            piece = Piece(stretch, tokenizer.vocabulary[stretch], 0, len(stretch))
            stories.append(Story(stretch, stretch, [piece], [Step(0, [], piece)]))
            continue
        normalised = tokenizer.normaliser(stretch)
        for start, end in split_words(normalised.text):
            first, last = normalised.span(start, end)
            word = normalised.text[start:end]
            stories.append(Story(stretch[first:last], word, tokenizer.wordpiece.split(word), _steps(tokenizer, word)))
    return stories


def _steps(tokenizer: WordPieceTokenizer, word: str) -> list[Step]:
    wordpiece = tokenizer.wordpiece
    if len(word) > wordpiece.longest_word:
        return []
    known = wordpiece.known_pieces(word)
    starts = [0, *(piece.end for piece in known)]
    steps = []
    for start, found in zip(starts, [*known, None], strict=True):
        if start < len(word):
            end = found.end if found else start
            steps.append(Step(start, [token for at, token in wordpiece.candidates(word, start) if at > end], found))
    return steps


def _listed(tokens: list[str], most: int = 3) -> str:
    """The first few, and how many more."""
    more = len(tokens) - most
    return ", ".join(tokens[:most]) + (f" and {more} more" if more > 0 else "")
