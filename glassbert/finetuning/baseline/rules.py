"""Baselines without features, for token and span tasks.

Token tasks: every word gets its most frequent tag in training. An unknown word is looked up in lower case, then by its
suffix: the tags of rare training words with the same last four letters, else three, two, one or none. The suffix key
also holds whether the word contains a digit or starts with a capital letter.

Span tasks, without training: take the sentence that shares most words with the question, weighted by rarity, and in it
the longest run of words that are not in the question. Runs with a capital letter or a digit come first, because names
and numbers answer most questions.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from glassbert.finetuning.spans import SpanAnswer
from glassbert.tasks.data import TaskData

LONGEST_SUFFIX = 4
RARE = 3  # words that occur at most this often count for the suffixes
SMOOTHING = 0.1

SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*")
WORD = re.compile(r"\w+(?:['’.-]\w+)*")
STOP_WORDS = frozenset(
    re.findall(r"\w+", "a an the of in on at to for by with and or is are was were be been as that it")
)
LONGEST_ANSWER = 6  # words


class TagCounts:
    """Counts of tags per word, per lower-case word and per suffix."""

    def __init__(self, sentences: Sequence[Sequence[str]], tags: Sequence[np.ndarray], labels: int):
        self.words: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(labels))
        self.suffixes: dict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(labels))
        for words, numbers in zip(sentences, tags, strict=True):
            for word, tag in zip(words, numbers, strict=True):
                self.words[word][tag] += 1
        lowered: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(labels))
        total = np.full(labels, SMOOTHING)
        for word, counts in self.words.items():
            lowered[word.lower()] += counts
            total += counts
            if counts.sum() <= RARE:
                for suffix in _suffixes(word):
                    self.suffixes[suffix] += counts
        self.lowered, self.total = dict(lowered), total

    def counts_of(self, word: str) -> np.ndarray:
        for table, keys in ((self.words, [word]), (self.lowered, [word.lower()]), (self.suffixes, _suffixes(word))):
            for key in keys:
                if key in table:
                    return table[key]  # type: ignore[index]
        return self.total

    def scores(self, words: Sequence[str]) -> np.ndarray:
        """Logits [words, labels]: logarithms of the smoothed counts."""
        counts = np.array([self.counts_of(word) for word in words]).reshape(len(words), len(self.total))
        return np.log(counts + SMOOTHING * self.total / self.total.sum())


def _suffixes(word: str) -> Iterator[tuple[str, str]]:
    """(shape, suffix) keys of a word, the longest suffix first."""
    shape = "digit" if any(character.isdigit() for character in word) else "capital" if word[:1].isupper() else "plain"
    for length in range(min(LONGEST_SUFFIX, len(word)), -1, -1):
        yield shape, word[len(word) - length :].lower()


def overlap_answers(data: TaskData) -> list[list[SpanAnswer]]:
    """One answer per question, in the form of the outputs of a span head."""
    assert data.pairs is not None
    documents = Counter(word for text in data.pairs for word in {match[0].lower() for match in WORD.finditer(text)})
    rarity = {word: float(np.log((1 + len(data)) / (1 + count))) for word, count in documents.items()}
    return [[_answer(question, text, rarity)] for question, text in zip(data.texts, data.pairs, strict=True)]


def _answer(question: str, text: str, rarity: dict[str, float]) -> SpanAnswer:
    question_words = {match[0].lower() for match in WORD.finditer(question)}

    def overlap(sentence: re.Match[str]) -> float:
        shared = {match[0].lower() for match in WORD.finditer(sentence[0])} & question_words - STOP_WORDS
        return sum(rarity.get(word, 0.0) + 1e-3 for word in shared)

    sentence = max(SENTENCE.finditer(text), key=overlap, default=None)
    runs = list(_runs(sentence, question_words)) if sentence else []
    if sentence is None or not runs:
        return SpanAnswer("", 0, 0, 0.0)
    start, end = max(runs, key=lambda run: (_has_name_or_number(text[run[0] : run[1]]), run[1] - run[0]))
    return SpanAnswer(text[start:end], start, end, overlap(sentence))


def _runs(sentence: re.Match[str], question_words: set[str]) -> Iterator[tuple[int, int]]:
    """Runs of words that are not in the question, as character ranges of the whole text."""
    run: list[re.Match[str]] = []
    for word in [*WORD.finditer(sentence[0]), None]:
        if word is not None and word[0].lower() not in question_words | STOP_WORDS and len(run) < LONGEST_ANSWER:
            run.append(word)
            continue
        if run:
            yield sentence.start() + run[0].start(), sentence.start() + run[-1].end()
        run = []


def _has_name_or_number(words: str) -> bool:
    return any(character.isdigit() or character.isupper() for character in words)
