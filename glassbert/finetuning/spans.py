"""Extractive question answering: the answer is a character range of the context.

    text      question                      "Who wrote it?"
    pair      context                       "It was written by Ada in 1843."
    target    one or several answers        "Ada"; ["Ada", "Ada L."]; {"text": [...], "answer_start": [...]}

A long context is split into overlapping windows, each after the question. The labels of a window with the whole answer
are its first and last token, those of any other window are [CLS]. An empty answer means that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.finetuning.card import TaskCard
from glassbert.reading.cells import is_missing
from glassbert.tasks import TaskData, Windows, cut_windows
from glassbert.text.tokenizer import Tokenizer

LONGEST_ANSWER = 30  # tokens
CANDIDATES = 20  # best starts and best ends that are combined
MAX_ANSWERS = 5


class SpanAnswer(NamedTuple):
    """The range [start, end) of the context with its score; start and end are 0 for no answer."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class SpanRows:
    """Windows over `contexts`. `labels` [windows, 2] are the first and last token of the answer."""

    windows: Windows
    contexts: list[str]
    labels: np.ndarray | None
    may_be_empty: bool

    def best(self, scores: list[np.ndarray], owner: int, windows: range) -> list[SpanAnswer]:
        """The best answers of example `owner`, from the scores [2, T] of its windows."""
        found: dict[tuple[int, int], float] = {}
        no_answer_score = np.inf
        for window in windows:
            begin, end = scores[window]
            no_answer_score = min(no_answer_score, float(begin[0] + end[0]))
            for first, last, score in _candidates(begin, end, self._context_mask(window)):
                offsets = self.windows.encodings[window].offsets
                span = offsets[first][0], offsets[last][1]
                found[span] = max(score, found.get(span, -np.inf))
        if self.may_be_empty or not found:
            found[0, 0] = no_answer_score
        best = sorted(found.items(), key=lambda item: -item[1])[:MAX_ANSWERS]
        context = self.contexts[owner]
        return [SpanAnswer(context[start:end], start, end, score) for (start, end), score in best]

    def _context_mask(self, window: int) -> np.ndarray:
        """Mask of the tokens of a window that belong to the context."""
        encoding = self.windows.encodings[window]
        return (np.array(encoding.type_ids) == 1) & (np.array(encoding.special_tokens_mask) == 0)


def _candidates(begin: np.ndarray, end: np.ndarray, allowed: np.ndarray) -> list[tuple[int, int, float]]:
    firsts = [int(i) for i in np.argsort(-begin, kind="stable") if allowed[i]][:CANDIDATES]
    lasts = [int(i) for i in np.argsort(-end, kind="stable") if allowed[i]][:CANDIDATES]
    return [(a, b, float(begin[a] + end[b])) for a in firsts for b in lasts if a <= b < a + LONGEST_ANSWER]


def true_answers(data: TaskData, card: TaskCard) -> list[list[str]] | None:
    """The correct texts of every question, [""] for no answer; None if the data has no answer column."""
    if card.target is None or card.target not in data.table.columns:
        return None
    return [[text for text, _ in answers_of(value)] or [""] for value in data.table.column(card.target)]


def answers_of(value: Any) -> list[tuple[str, int | None]]:
    """The answers in a cell, each with its first character if the cell gives it."""
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
        raise InputError(
            f"{data.source}: a span head needs a question and a context; name the context column with --pair"
        )
    windows = cut_windows(tokenizer, data.texts, contexts, length=card.max_length, stride=card.stride)
    cells = data.table.column(card.target) if with_labels and card.target else None
    labels = None
    if cells is not None:
        spans = [_answer_range(data, row, cell) for row, cell in enumerate(cells)]
        labels = np.array([_window_label(windows, window, spans[owner]) for window, owner in enumerate(windows.owners)])
    return SpanRows(windows, contexts, labels, bool(card.details.get("may_be_empty", False)))


def _answer_range(data: TaskData, row: int, cell: Any) -> tuple[int, int] | None:
    """The character range of the first answer."""
    assert data.pairs is not None
    context = data.pairs[row]
    for text, begin in answers_of(cell)[:1]:
        begin = context.find(text) if begin is None else int(begin)
        if begin < 0 or context[begin : begin + len(text)] != text:
            raise InputError(
                f"{data.where(row)}: the answer {text[:60]!r} is not in its context"
                f"{f' at character {begin}' if begin >= 0 else ''}; answers must be exact copies from it"
            )
        return begin, begin + len(text)
    return None


def _window_label(windows: Windows, window: int, span: tuple[int, int] | None) -> tuple[int, int]:
    if span is None:
        return 0, 0
    encoding = windows.encodings[window]
    offsets = np.array(encoding.offsets)
    in_context = (np.array(encoding.type_ids) == 1) & (np.array(encoding.special_tokens_mask) == 0)
    inside = np.flatnonzero(in_context & (offsets[:, 1] > span[0]) & (offsets[:, 0] < span[1]))
    if not inside.size:
        return 0, 0
    first, last = int(inside[0]), int(inside[-1])
    whole = offsets[first, 0] <= span[0] and offsets[last, 1] >= span[1]
    return (first, last) if whole else (0, 0)
