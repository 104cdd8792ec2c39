"""Tags of spans: which labels are such tags, and the best tags of a sentence among those that make whole spans.

A model scores every word by itself, and the best tags of single words may not fit each other, such as I-PER after O.
Where the tags of the training examples are all consistent, so are the predicted ones: of all consistent sequences the
one with the highest sum of log-probabilities is taken (Viterbi). `WHOLE_SPANS` in the details of a card says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from glassbert.finetuning.card import TaskCard
from glassbert.metrics import broken_spans

WHOLE_SPANS = "whole_spans"
OUTSIDE = "O"


def marks_spans(card: TaskCard) -> bool:
    """Whether the labels are BIO-style tags: O, B-PER, I-PER, ..."""
    return (
        card.head == "token"
        and OUTSIDE in card.labels
        and all(label == OUTSIDE or label[:2] in ("B-", "I-", "E-", "S-", "L-", "U-") for label in card.labels)
    )


def makes_whole_spans(card: TaskCard, truth: Iterable[np.ndarray]) -> bool:
    """Whether the tags are those of spans, and all of these sentences have consistent ones."""
    return marks_spans(card) and not broken_spans([[card.labels[int(tag)] for tag in tags] for tags in truth])


def best_tags(scores: Any, labels: tuple[str, ...]) -> np.ndarray:
    """The consistent tags [words] with the highest sum of log-probabilities, from logits [words, L].

    The normalisation of a word is the same for all its tags, so the logits can be summed instead.
    """
    scores = np.asarray(scores, np.float64)
    best, follows = scores.argmax(-1), _may_follow(labels)
    outside = labels.index(OUTSIDE)  # what stands before and after a sentence
    if follows[np.concatenate([[outside], best]), np.concatenate([best, [outside]])].all():
        return best
    blocked = np.where(follows, 0.0, -np.inf)
    total, before = scores[0] + blocked[outside], []
    for row in scores[1:]:
        ways = total[:, None] + blocked  # [from, to]
        before.append(ways.argmax(0))
        total = ways.max(0) + row
    tags = [int((total + blocked[:, outside]).argmax())]
    for one in reversed(before):
        tags.append(int(one[tags[-1]]))
    return np.array(tags[::-1], np.int64)


@lru_cache(maxsize=16)
def _may_follow(labels: tuple[str, ...]) -> np.ndarray:
    """[L, L] of booleans: whether the second tag may stand after the first one."""
    marks_ends = any(label[0] in "ESLU" for label in labels)
    return np.array([[_fits(first, second, marks_ends) for second in labels] for first in labels])


def _fits(first: str, second: str, marks_ends: bool) -> bool:
    continues = second[0] in "IEL"
    open_span = first[0] in "BI"
    if continues and not (open_span and first[2:] == second[2:]):
        return False
    return continues or not (open_span and marks_ends)


def chosen_tags(outputs: Sequence[Any], card: TaskCard) -> list[np.ndarray]:
    """The tags of every sentence, from its logits [words, L]."""
    if not card.details.get(WHOLE_SPANS):
        return [np.asarray(scores).argmax(-1) for scores in outputs]
    return [best_tags(scores, card.labels) for scores in outputs]
