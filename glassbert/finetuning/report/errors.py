"""The worst errors as text: where the model was surest of what is wrong. Often it is the label that is."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from glassbert.finetuning.outcome import Outcome
from glassbert.reports import Html, Section

SHOWN, MORE = 12, 30
LONGEST = 400  # characters of a text that are shown
Row = list[Any]


def worst_errors(page: Section, outcome: Outcome) -> None:
    make = TABLES.get(outcome.card.head)
    if make is None or outcome.truth is None:
        return
    page.heading("Worst errors")
    headers, rows, errors = make(outcome)
    if not rows:
        page.good(f"All {len(outcome):,} answers are right.")
        return
    page.text(WORDS[outcome.card.head].format(errors=errors, of=len(outcome)))
    page.table(headers, rows[:SHOWN])
    if len(rows) > SHOWN:
        with page.details(f"{len(rows) - SHOWN} more") as inside:
            inside.table(headers, rows[SHOWN:])


WORDS = {
    **dict.fromkeys(
        ("binary", "multiclass"),
        "{errors:,} of {of:,} answers are wrong. These are the ones the model was surest of: some of them say what it "
        "has not understood, others that a label is wrong.",
    ),
    "ordinal": "{errors:,} of {of:,} answers are not the true rank. These are farthest from it.",
    "multilabel": "{errors:,} of {of:,} answers differ in a label or more. In these, the model was surest of the "
    "opposite.",
    "regression": "The largest errors, in the units of the target.",
    "embedding": "The pairs whose rank by similarity is farthest from their rank by score.",
    "token": "{errors:,} of {of:,} sentences hold a wrong tag. These hold the most; behind a wrong word stands what "
    "the model said, and in brackets what is true.",
    "span": "{errors:,} of {of:,} answers are not one of the true ones to the letter.",
}


def _text(outcome: Outcome, row: int) -> Any:
    """The text as it was given, cut, both parts of a pair."""
    text = _cut(outcome.data.texts[row])
    if outcome.data.pairs is None:
        return text
    return Html(f"{escape(text)}<br>{escape(_cut(outcome.data.pairs[row]))}")


def _whole(label: str) -> Any:
    """A label on one line, unless it is a long one."""
    return Html(f'<span style="white-space: nowrap">{escape(label)}</span>') if len(label) <= 20 else label


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _class_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    """Wrong labels, the surest first; wrong ranks, the farthest first."""
    chosen, truth, chances = outcome.choices(), np.asarray(outcome.truth), outcome.probabilities()
    both = np.stack([1 - chances, chances], 1) if outcome.card.head == "binary" else chances
    sure = both[np.arange(len(both)), chosen]
    wrong = np.flatnonzero(chosen != truth)
    far = np.abs(chosen - truth) if outcome.card.head == "ordinal" else np.zeros(len(chosen))
    order = sorted(wrong.tolist(), key=lambda row: (-far[row], -sure[row]))[: SHOWN + MORE]
    names = outcome.card.label_names
    rows: list[Row] = [
        [_whole(names[truth[row]]), _whole(names[chosen[row]]), f"{sure[row]:.0%}", _text(outcome, row)]
        for row in order
    ]
    return ["true", "model", "how sure", "text"], rows, len(wrong)


def _label_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    chosen, truth, chances = outcome.choices(), np.asarray(outcome.truth).astype(np.int64), outcome.probabilities()
    loss = -np.log(np.clip(np.where(truth == 1, chances, 1 - chances), 1e-12, 1)).max(1)
    wrong = np.flatnonzero((chosen != truth).any(1))
    names = np.array(outcome.card.label_names)
    rows: list[Row] = []
    for row in sorted(wrong.tolist(), key=lambda row: -loss[row])[: SHOWN + MORE]:
        missed = [f"{names[i]} ({chances[row, i]:.0%})" for i in np.flatnonzero(truth[row] > chosen[row])]
        claimed = [f"{names[i]} ({chances[row, i]:.0%})" for i in np.flatnonzero(chosen[row] > truth[row])]
        right = list(names[np.flatnonzero(truth[row] & chosen[row])])
        rows.append([", ".join(missed) or "–", ", ".join(claimed) or "–", ", ".join(right) or "–", _text(outcome, row)])
    return ["missed", "claimed wrongly", "found", "text"], rows, len(wrong)


def _number_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    predicted, truth = np.asarray(outcome.choices()), np.asarray(outcome.truth)
    errors = predicted - truth
    order = np.argsort(-np.abs(errors), kind="stable")[: SHOWN + MORE]
    rows: list[Row] = [
        [_three(truth[row]), _three(predicted[row]), f"{errors[row]:+.3g}".replace("-", "−"), _text(outcome, row)]
        for row in order.tolist()
    ]
    return ["true", "model", "error", "text"], rows, len(truth)


def _similarity_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    similarity, truth = np.asarray(outcome.choices()), np.asarray(outcome.truth)
    places = [np.argsort(np.argsort(values, kind="stable")) for values in (similarity, truth)]
    off = (places[0] - places[1]) / max(1, len(truth) - 1)
    order = np.argsort(-np.abs(off), kind="stable")[: SHOWN + MORE]
    rows: list[Row] = [
        [_three(truth[row]), f"{similarity[row]:.3f}", f"{off[row]:+.0%}".replace("-", "−"), _text(outcome, row)]
        for row in order.tolist()
    ]
    return ["score", "cosine", "rank too high by", "texts"], rows, len(truth)


def _sentence_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    assert outcome.data.words is not None
    said, truth = outcome.answers(), outcome.true_answers()
    wrong = [sum(a != b for a, b in zip(one, other, strict=True)) for one, other in zip(said, truth, strict=True)]
    order = sorted(np.flatnonzero(wrong).tolist(), key=lambda row: -wrong[row])[: SHOWN + MORE]
    rows: list[Row] = [
        [_whole(f"{wrong[row]} of {len(said[row])}"), Html(_marked(outcome.data.words[row], said[row], truth[row]))]
        for row in order
    ]
    return ["wrong", "sentence"], rows, int(np.count_nonzero(wrong))


def _marked(words: list[str], said: list[str], truth: list[str]) -> str:
    """Words in a row, the wrong ones with both tags behind them."""
    parts = []
    for word, claimed, real in zip(words, said, truth, strict=True):
        text = escape(word)
        if claimed != real:
            text = f"<b>{text}</b>&nbsp;<small>{escape(claimed)}&nbsp;[{escape(real)}]</small>"
        parts.append(text)
    return " ".join(parts)


def _answer_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    said = outcome.answers()
    wrong = [row for row, text in enumerate(said) if text not in outcome.truth[row]]
    rows: list[Row] = [
        [" / ".join(outcome.truth[row][:3]) or "no answer", said[row] or "no answer", _cut(outcome.data.texts[row])]
        for row in wrong[: SHOWN + MORE]
    ]
    return ["true", "model", "question"], rows, len(wrong)


def _three(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


TABLES: dict[str, Callable[[Outcome], tuple[list[str], list[Row], int]]] = {
    **dict.fromkeys(("binary", "multiclass", "ordinal"), _class_table),
    "multilabel": _label_table,
    "regression": _number_table,
    "embedding": _similarity_table,
    "token": _sentence_table,
    "span": _answer_table,
}
