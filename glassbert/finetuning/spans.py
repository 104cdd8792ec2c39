"""Extractive answers: a question, a text, and the characters of the text that answer it.

    text      question                      "Who wrote it?"
    pair      the text that is searched     "It was written by Ada in 1843."
    target    the answer, or several        "Ada"; ["Ada", "Ada L."]; {"text": [...], "answer_start": [...]}

A long text is cut into windows that overlap, the question before each. A window that holds the whole answer learns its
first and last token; any other window points at [CLS]: "not here". An empty answer means that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.finetuning.card import TaskCard
from glassbert.tasks import TaskData, Windows, cut_windows
from glassbert.tasks.table import is_missing
from glassbert.text.tokenizer import Tokenizer

LONGEST_ANSWER = 30  # tokens
TRIED = 20  # of the best beginnings and ends, which are combined
KEPT = 5


class SpanAnswer(NamedTuple):
    """A part of the text, text[start:end], with its score; start and end are 0 for "there is no answer"."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class SpanRows:
    """Windows over the texts of `contexts`. `labels` [windows, 2] are first and last token."""

    windows: Windows
    contexts: list[str]
    labels: np.ndarray | None
    may_be_empty: bool

    def best(self, scores: list[np.ndarray], owner: int, windows: range) -> list[SpanAnswer]:
        """The best answers of one example, from the scores [2, T] of its windows."""
        found: dict[tuple[int, int], float] = {}
        nothing = np.inf
        for window in windows:
            begin, end = scores[window]
            nothing = min(nothing, float(begin[0] + end[0]))
            for first, last, score in _candidates(begin, end, self._searched(window)):
                offsets = self.windows.encodings[window].offsets
                place = offsets[first][0], offsets[last][1]
                found[place] = max(score, found.get(place, -np.inf))
        if self.may_be_empty or not found:
            found[0, 0] = nothing
        best = sorted(found.items(), key=lambda item: -item[1])[:KEPT]
        context = self.contexts[owner]
        return [SpanAnswer(context[start:end], start, end, score) for (start, end), score in best]

    def _searched(self, window: int) -> np.ndarray:
        """Which tokens of a window belong to the text that is searched."""
        encoding = self.windows.encodings[window]
        return (np.array(encoding.type_ids) == 1) & (np.array(encoding.special_tokens_mask) == 0)


def _candidates(begin: np.ndarray, end: np.ndarray, allowed: np.ndarray) -> list[tuple[int, int, float]]:
    firsts = [int(i) for i in np.argsort(-begin, kind="stable") if allowed[i]][:TRIED]
    lasts = [int(i) for i in np.argsort(-end, kind="stable") if allowed[i]][:TRIED]
    return [(a, b, float(begin[a] + end[b])) for a in firsts for b in lasts if a <= b < a + LONGEST_ANSWER]


def true_answers(data: TaskData, card: TaskCard) -> list[list[str]] | None:
    """For every question the texts that are right; [""] where there is no answer. None: the data has no answers."""
    if card.target is None or card.target not in data.table.columns:
        return None
    return [[text for text, _ in answers_of(value)] or [""] for value in data.table.column(card.target)]


def answers_of(value: Any) -> list[tuple[str, int | None]]:
    """The answers in a cell, each with the character at which it begins where the cell says so."""
    if isinstance(value, Mapping):
        texts = value.get("text", [])
        begins = value.get("answer_start", [])
        texts, begins = ([one] if isinstance(one, (str, int)) else list(one) for one in (texts, begins))
        padded = [*begins, *[None] * (len(texts) - len(begins))]
        return [(str(text), begin) for text, begin in zip(texts, padded, strict=False) if str(text)]
    if isinstance(value, list | tuple):
        return [(str(text), None) for text in value if str(text)]
    return [] if is_missing(value) else [(str(value), None)]


def span_rows(data: TaskData, tokenizer: Tokenizer, card: TaskCard, with_labels: bool) -> SpanRows:
    contexts = data.pairs
    if contexts is None:
        raise InputError(f"{data.source}: a span needs a question and a text; say with pair which column is searched")
    windows = cut_windows(tokenizer, data.texts, contexts, length=card.max_length, stride=card.stride)
    cells = data.table.column(card.target) if with_labels and card.target else None
    labels = None
    if cells is not None:
        places = [_place(data, row, cell) for row, cell in enumerate(cells)]
        labels = np.array([_label(windows, window, places[owner]) for window, owner in enumerate(windows.owners)])
    return SpanRows(windows, contexts, labels, bool(card.details.get("may_be_empty", False)))


def _place(data: TaskData, row: int, cell: Any) -> tuple[int, int] | None:
    """The characters of the first answer."""
    assert data.pairs is not None
    context = data.pairs[row]
    for text, begin in answers_of(cell)[:1]:
        begin = context.find(text) if begin is None else int(begin)
        if begin < 0 or context[begin : begin + len(text)] != text:
            raise InputError(
                f"{data.where(row)}: the answer {text[:60]!r} does not stand in its text"
                f"{f' at character {begin}' if begin >= 0 else ''}; answers must be copied from it to the letter"
            )
        return begin, begin + len(text)
    return None


def _label(windows: Windows, window: int, place: tuple[int, int] | None) -> tuple[int, int]:
    if place is None:
        return 0, 0
    encoding = windows.encodings[window]
    offsets = np.array(encoding.offsets)
    own = (np.array(encoding.type_ids) == 1) & (np.array(encoding.special_tokens_mask) == 0)
    inside = np.flatnonzero(own & (offsets[:, 1] > place[0]) & (offsets[:, 0] < place[1]))
    if not inside.size:
        return 0, 0
    first, last = int(inside[0]), int(inside[-1])
    whole = offsets[first, 0] <= place[0] and offsets[last, 1] >= place[1]
    return (first, last) if whole else (0, 0)
