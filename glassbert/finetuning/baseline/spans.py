"""The baseline of extractive answers, without learning: a good answer stands near the words of the question.

The sentence that shares most with the question is taken, rare words counting more, and of it the longest run of words
that the question does not have; a run with a capital letter or a digit comes first, since names and numbers answer most
questions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from glassbert.finetuning.spans import SpanAnswer
from glassbert.tasks.data import TaskData

SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*")
WORD = re.compile(r"\w+(?:['’.-]\w+)*")
SMALL = frozenset(re.findall(r"\w+", "a an the of in on at to for by with and or is are was were be been as that it"))
LONGEST = 6  # words


def odd_words(data: TaskData) -> list[list[SpanAnswer]]:
    """One answer for each question, in the form of a span head's outputs."""
    assert data.pairs is not None
    documents = Counter(word for text in data.pairs for word in {match[0].lower() for match in WORD.finditer(text)})
    rarity = {word: float(np.log((1 + len(data)) / (1 + count))) for word, count in documents.items()}
    return [[_answer(question, text, rarity)] for question, text in zip(data.texts, data.pairs, strict=True)]


def _answer(question: str, text: str, rarity: dict[str, float]) -> SpanAnswer:
    asked = {match[0].lower() for match in WORD.finditer(question)}

    def nearness(sentence: re.Match[str]) -> float:
        shared = {match[0].lower() for match in WORD.finditer(sentence[0])} & asked - SMALL
        return sum(rarity.get(word, 0.0) + 1e-3 for word in shared)

    sentence = max(SENTENCE.finditer(text), key=nearness, default=None)
    runs = list(_runs(sentence, asked)) if sentence else []
    if sentence is None or not runs:
        return SpanAnswer("", 0, 0, 0.0)
    start, end = max(runs, key=lambda run: (_stands_out(text[run[0] : run[1]]), run[1] - run[0]))
    return SpanAnswer(text[start:end], start, end, nearness(sentence))


def _runs(sentence: re.Match[str], asked: set[str]) -> Iterator[tuple[int, int]]:
    """Words in a row that the question does not have, as characters of the whole text."""
    run: list[re.Match[str]] = []
    for word in [*WORD.finditer(sentence[0]), None]:
        if word is not None and word[0].lower() not in asked | SMALL and len(run) < LONGEST:
            run.append(word)
            continue
        if run:
            yield sentence.start() + run[0].start(), sentence.start() + run[-1].end()
        run = []


def _stands_out(words: str) -> bool:
    return any(sign.isdigit() or sign.isupper() for sign in words)
