"""Excerpts: the worst places of a corpus, kept while it goes by, and decoded at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from glassbert.text.corpus.health.repeats import Place
from glassbert.text.corpus.reader import Corpus

SHOWN_TOKENS = 36
SHOWN_CHARACTERS = 180


@dataclass
class Worst:
    """The places with the highest scores so far. Ties go to the first."""

    keep: int = 5
    best: list[tuple[float, Place]] = field(default_factory=list)

    def add(self, split: str, shard: int, numbers: np.ndarray, scores: np.ndarray) -> None:
        """Sentences by number, each with its score; a score of 0 does not count."""
        top = np.argsort(-scores, kind="stable")[: self.keep] if len(scores) < 64 else _top(scores, self.keep)
        found = [(float(scores[i]), (split, shard, int(numbers[i]))) for i in top if scores[i] > 0]
        self.best = sorted(self.best + found, key=lambda one: -one[0])[: self.keep]

    def places(self) -> list[Place]:
        return [place for _, place in self.best]

    def top_score(self) -> float:
        return self.best[0][0] if self.best else 0.0


def _top(scores: np.ndarray, keep: int) -> np.ndarray:
    chosen = np.sort(np.argpartition(-scores, keep)[:keep])
    return chosen[np.argsort(-scores[chosen], kind="stable")]


class Excerpts:
    """Short pieces of the text at given places."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.continues = corpus.tokenizer.continues_word

    def sentence(self, place: Place, around: np.ndarray | None = None) -> str:
        """The beginning of a sentence, or its first token for which `around` [vocabulary] is true, with neighbours."""
        split, number, sentence = place
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

    def sentences(self, places: list[Place], around: np.ndarray | None = None) -> list[str]:
        """Those of several places, each text once."""
        return list(dict.fromkeys(self.sentence(place, around) for place in places))

    def document(self, place: Place) -> str:
        """The beginning of a document."""
        split, number, document = place
        shard = self.corpus.splits[split].shards[number]
        return self.sentence((split, number, int(shard.document_ends[document - 1]) if document else 0))

    def _decode(self, tokens: np.ndarray, goes_on: bool) -> str:
        return shown(self.corpus.tokenizer.decode(tokens, skip_special_tokens=False), goes_on)


def shown(text: str, goes_on: bool = False) -> str:
    """A text on one line, cut if it is long, with a stand-in for what cannot be printed."""
    text = " ".join(text.split())
    if len(text) > SHOWN_CHARACTERS:
        text, goes_on = text[:SHOWN_CHARACTERS].rstrip(), True
    text = "".join(character if character.isprintable() else "�" for character in text)
    return text + (" …" if goes_on else "")
