"""Extracted answers: is the text the same, or how much of it is shared?

Both are compared without case, punctuation and articles, as in the SQuAD evaluation. Of several true answers the one
that fits best counts. An empty answer stands for "there is none" and is right only where there is none.

    exact match = share of answers that are the same      F1 = mean of 2·shared words / (words + true words)
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import check_lengths, weighted_mean
from glassbert.metrics.undefined import Value

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
Truth = Sequence[str | Sequence[str]]


def exact_match(truth: Truth, predicted: Sequence[str], weights: Any = None) -> Value:
    return weighted_mean(_best(truth, predicted, lambda a, b: float(a == b)), weights)


def answer_f1(truth: Truth, predicted: Sequence[str], weights: Any = None) -> Value:
    return weighted_mean(_best(truth, predicted, _overlap), weights)


def normalised_answer(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def _overlap(a: str, b: str) -> float:
    words_a, words_b = a.split(), b.split()
    if not words_a or not words_b:
        return float(words_a == words_b)
    shared = (Counter(words_a) & Counter(words_b)).total()
    return 2 * shared / (len(words_a) + len(words_b))


def _best(truth: Truth, predicted: Sequence[str], score: Callable[[str, str], float]) -> np.ndarray:
    check_lengths(truth=truth, predicted=predicted)
    scores = np.zeros(len(predicted))
    for row, (real, claimed) in enumerate(zip(truth, predicted, strict=True)):
        answers = [real] if isinstance(real, str) else list(real)
        if not answers:
            raise InputError(f"truth[{row}] holds no answer; write an empty one, '', where there is none")
        scores[row] = max(score(normalised_answer(answer), normalised_answer(claimed)) for answer in answers)
    return scores
