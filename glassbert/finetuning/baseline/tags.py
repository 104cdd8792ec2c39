"""The baseline of token tasks: every word gets the tag it had most often in training.

A word that training never shows is looked up in small letters, and then by its ending: the tags of rare words with the
same last letters, four of them if that ending was seen, else three, two, one; whether the word begins with a capital
letter or holds a digit belongs to the ending. Rare words tell most about words nobody has seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

LONGEST_ENDING = 4
RARE = 3  # words that come at most so often teach the endings
SMOOTHING = 0.1


class TagCounts:
    """How often each word, and each ending, had each tag."""

    def __init__(self, sentences: Sequence[Sequence[str]], tags: Sequence[np.ndarray], labels: int):
        self.words: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(labels))
        self.endings: dict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(labels))
        for words, numbers in zip(sentences, tags, strict=True):
            for word, tag in zip(words, numbers, strict=True):
                self.words[word][tag] += 1
        lowered: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(labels))
        everything = np.full(labels, SMOOTHING)
        for word, counts in self.words.items():
            lowered[word.lower()] += counts
            everything += counts
            if counts.sum() <= RARE:
                for ending in _endings(word):
                    self.endings[ending] += counts
        self.lowered, self.everything = dict(lowered), everything

    def of(self, word: str) -> np.ndarray:
        for table, keys in ((self.words, [word]), (self.lowered, [word.lower()]), (self.endings, _endings(word))):
            for key in keys:
                if key in table:
                    return table[key]  # type: ignore[index]
        return self.everything

    def scores(self, words: Sequence[str]) -> np.ndarray:
        """Logits [words, labels]: the logarithm of the smoothed counts."""
        counts = np.array([self.of(word) for word in words]).reshape(len(words), len(self.everything))
        return np.log(counts + SMOOTHING * self.everything / self.everything.sum())


def _endings(word: str) -> Iterator[tuple[str, str]]:
    """The longest first, each with the look of the word."""
    look = "digit" if any(sign.isdigit() for sign in word) else "capital" if word[:1].isupper() else "plain"
    for length in range(min(LONGEST_ENDING, len(word)), -1, -1):
        yield look, word[len(word) - length :].lower()
