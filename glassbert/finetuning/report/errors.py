"""The section of a report with the worst errors: wrong predictions with the highest confidence, as tables."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report.sections import short_number
from glassbert.reports import Html, Section
from glassbert.reports.drawing import shorten

SHOWN, MORE = 12, 30  # rows shown, and rows in the collapsed table
MAX_CHARACTERS = 400  # of a text
Row = list[Any]


def worst_errors(page: Section, outcome: Outcome) -> None:
    make_table = TABLES.get(outcome.card.head)
    if make_table is None or outcome.truth is None:
        return
    page.heading("Worst errors")
    headers, rows, errors = make_table(outcome)
    if not rows:
        page.good(f"All {len(outcome):,} predictions are correct.")
        return
    page.text(INTRODUCTIONS[outcome.card.head].format(errors=errors, of=len(outcome)))
    page.table(headers, rows[:SHOWN])
    if len(rows) > SHOWN:
        with page.details(f"{len(rows) - SHOWN} more") as inside:
            inside.table(headers, rows[SHOWN:])


INTRODUCTIONS = {
    **dict.fromkeys(
        ("binary", "multiclass"),
        "{errors:,} of {of:,} predictions are wrong. These have the highest confidence: some show what the model has "
        "not learned, others have a wrong label.",
    ),
    "ordinal": "{errors:,} of {of:,} predictions are not the true rank. These are farthest from it.",
    "multilabel": "{errors:,} of {of:,} predictions have at least one wrong label. In these, a wrong label has the "
    "highest confidence.",
    "regression": "The largest errors, in the units of the target.",
    "embedding": "The pairs whose rank by similarity is farthest from their rank by score.",
    "token": "{errors:,} of {of:,} sentences have a wrong tag. These have the most. A wrong word is followed by the "
    "predicted tag and, in brackets, the true tag.",
    "span": "{errors:,} of {of:,} predictions are not exactly equal to a true answer.",
}


def _text(outcome: Outcome, row: int) -> Any:
    """The input text, shortened; both texts of a pair."""
    text = _cut(outcome.data.texts[row])
    if outcome.data.pairs is None:
        return text
    return Html(f"{escape(text)}<br>{escape(_cut(outcome.data.pairs[row]))}")


def _no_wrap(label: str) -> Any:
    """A short text without line breaks."""
    return Html(f'<span style="white-space: nowrap">{escape(label)}</span>')


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def _class_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    """Wrong labels by confidence; wrong ranks by distance."""
    chosen, truth, probs = outcome.choices(), np.asarray(outcome.truth), outcome.probabilities()
    all_probs = np.stack([1 - probs, probs], 1) if outcome.card.head == "binary" else probs
    confidence = all_probs[np.arange(len(all_probs)), chosen]
    wrong = np.flatnonzero(chosen != truth)
    distance = np.abs(chosen - truth) if outcome.card.head == "ordinal" else np.zeros(len(chosen))
    order = sorted(wrong.tolist(), key=lambda row: (-distance[row], -confidence[row]))[: SHOWN + MORE]
    names = outcome.card.label_names
    rows: list[Row] = [
        [
            _no_wrap(shorten(names[truth[row]])),
            _no_wrap(shorten(names[chosen[row]])),
            f"{confidence[row]:.0%}",
            _text(outcome, row),
        ]
        for row in order
    ]
    return ["true", "predicted", "probability", "text"], rows, len(wrong)


def _label_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    chosen, truth, probs = outcome.choices(), np.asarray(outcome.truth).astype(np.int64), outcome.probabilities()
    loss = -np.log(np.clip(np.where(truth == 1, probs, 1 - probs), 1e-12, 1)).max(1)
    wrong = np.flatnonzero((chosen != truth).any(1))
    names = np.array(outcome.card.label_names)
    rows: list[Row] = []
    for row in sorted(wrong.tolist(), key=lambda row: -loss[row])[: SHOWN + MORE]:
        missed = [f"{names[i]} ({probs[row, i]:.0%})" for i in np.flatnonzero(truth[row] > chosen[row])]
        wrong_labels = [f"{names[i]} ({probs[row, i]:.0%})" for i in np.flatnonzero(chosen[row] > truth[row])]
        correct = list(names[np.flatnonzero(truth[row] & chosen[row])])
        rows.append(
            [", ".join(missed) or "–", ", ".join(wrong_labels) or "–", ", ".join(correct) or "–", _text(outcome, row)]
        )
    return ["missed", "wrong", "correct", "text"], rows, len(wrong)


def _number_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    predicted, truth = np.asarray(outcome.choices()), np.asarray(outcome.truth)
    errors = predicted - truth
    order = np.argsort(-np.abs(errors), kind="stable")[: SHOWN + MORE]
    rows: list[Row] = [
        [
            short_number(truth[row]),
            short_number(predicted[row]),
            f"{errors[row]:+.3g}".replace("-", "−"),
            _text(outcome, row),
        ]
        for row in order.tolist()
    ]
    return ["true", "predicted", "error", "text"], rows, len(truth)


def _similarity_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    similarity, truth = np.asarray(outcome.choices()), np.asarray(outcome.truth)
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (similarity, truth)]
    rank_error = (ranks[0] - ranks[1]) / max(1, len(truth) - 1)
    order = np.argsort(-np.abs(rank_error), kind="stable")[: SHOWN + MORE]
    rows: list[Row] = [
        [
            short_number(truth[row]),
            f"{similarity[row]:.3f}",
            f"{rank_error[row]:+.0%}".replace("-", "−"),
            _text(outcome, row),
        ]
        for row in order.tolist()
    ]
    return ["score", "cosine", "rank too high by", "texts"], rows, len(truth)


def _sentence_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    assert outcome.data.words is not None
    predicted, truth = outcome.answers(), outcome.true_answers()
    wrong = [sum(a != b for a, b in zip(one, other, strict=True)) for one, other in zip(predicted, truth, strict=True)]
    order = sorted(np.flatnonzero(wrong).tolist(), key=lambda row: -wrong[row])[: SHOWN + MORE]
    rows: list[Row] = [
        [
            _no_wrap(f"{wrong[row]} of {len(predicted[row])}"),
            Html(_marked(outcome.data.words[row], predicted[row], truth[row])),
        ]
        for row in order
    ]
    return ["wrong", "sentence"], rows, int(np.count_nonzero(wrong))


def _marked(words: list[str], predicted: list[str], truth: list[str]) -> str:
    """The sentence as HTML, wrong words followed by both tags."""
    parts = []
    for word, tag, true_tag in zip(words, predicted, truth, strict=True):
        text = escape(word)
        if tag != true_tag:
            text = f"<b>{text}</b>&nbsp;<small>{escape(tag)}&nbsp;[{escape(true_tag)}]</small>"
        parts.append(text)
    return " ".join(parts)


def _answer_table(outcome: Outcome) -> tuple[list[str], list[Row], int]:
    predicted = outcome.answers()
    wrong = [row for row, text in enumerate(predicted) if text not in outcome.truth[row]]
    rows: list[Row] = [
        [
            " / ".join(outcome.truth[row][:3]) or "no answer",
            predicted[row] or "no answer",
            _cut(outcome.data.texts[row]),
        ]
        for row in wrong[: SHOWN + MORE]
    ]
    return ["true", "predicted", "question"], rows, len(wrong)


TABLES: dict[str, Callable[[Outcome], tuple[list[str], list[Row], int]]] = {
    **dict.fromkeys(("binary", "multiclass", "ordinal"), _class_table),
    "multilabel": _label_table,
    "regression": _number_table,
    "embedding": _similarity_table,
    "token": _sentence_table,
    "span": _answer_table,
}
