"""Keep the locations with the highest scores during a pass over a corpus, and decode their text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from glassbert.text.corpus.health.repeats import Location
from glassbert.text.corpus.reader import Corpus

SHOWN_TOKENS = 36
SHOWN_CHARACTERS = 180


@dataclass
class TopScores:
    """The `keep` locations with the highest scores so far; of equal scores the first is kept."""

    keep: int = 5
    best: list[tuple[float, Location]] = field(default_factory=list)

    def add(self, split: str, shard: int, numbers: np.ndarray, scores: np.ndarray) -> None:
        """Add sentences by number, each with its score; a score of 0 is ignored."""
        top = np.argsort(-scores, kind="stable")[: self.keep] if len(scores) < 64 else _top(scores, self.keep)
        found = [(float(scores[i]), (split, shard, int(numbers[i]))) for i in top if scores[i] > 0]
        self.best = sorted(self.best + found, key=lambda one: -one[0])[: self.keep]

    def locations(self) -> list[Location]:
        return [location for _, location in self.best]

    def top_score(self) -> float:
        return self.best[0][0] if self.best else 0.0


def _top(scores: np.ndarray, keep: int) -> np.ndarray:
    chosen = np.sort(np.argpartition(-scores, keep)[:keep])
    return chosen[np.argsort(-scores[chosen], kind="stable")]


class Excerpts:
    """Decodes short texts at given locations."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.continues = corpus.tokenizer.continues_word

    def sentence(self, location: Location, around: np.ndarray | None = None) -> str:
        """The beginning of a sentence, or the text around its first token with `around` (bool [vocabulary]) true."""
        split, number, sentence = location
        shard = self.corpus.splits[split].shards[number]
        begin, end = int(shard.sentence_ends[sentence - 1]) if sentence else 0, int(shard.sentence_ends[sentence])
        if around is not None and end - begin > SHOWN_TOKENS:
            hits = np.flatnonzero(around[np.asarray(shard.tokens[begin:end])])
            if len(hits):
                begin += max(0, int(hits[0]) - SHOWN_TOKENS // 2)
                while self.continues[shard.tokens[begin]] and begin < end - 1:
                    begin += 1
        shown = min(end, begin + SHOWN_TOKENS)
        return self._decode(np.asarray(shard.tokens[begin:shown]), goes_on=shown < end)

    def sentences(self, locations: list[Location], around: np.ndarray | None = None) -> list[str]:
        """The sentences at several locations, without repeated texts."""
        return list(dict.fromkeys(self.sentence(location, around) for location in locations))

    def document(self, location: Location) -> str:
        """The beginning of a document."""
        split, number, document = location
        shard = self.corpus.splits[split].shards[number]
        return self.sentence((split, number, int(shard.document_ends[document - 1]) if document else 0))

    def _decode(self, tokens: np.ndarray, goes_on: bool) -> str:
        return one_line(self.corpus.tokenizer.decode(tokens, skip_special_tokens=False), goes_on)


def one_line(text: str, goes_on: bool = False) -> str:
    """A text on one line, truncated, with � for characters that are not printable."""
    text = " ".join(text.split())
    if len(text) > SHOWN_CHARACTERS:
        text, goes_on = text[:SHOWN_CHARACTERS].rstrip(), True
    text = "".join(character if character.isprintable() else "�" for character in text)
    return text + (" …" if goes_on else "")
