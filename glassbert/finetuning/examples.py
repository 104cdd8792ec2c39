"""Encoded examples: rows of token ids, their labels, and the true targets.

    data = card.read("reviews.csv", with_targets=True)
    examples = encode_examples(data, tokenizer, card)
    examples.inputs(np.array([0, 1, 2]))      input_ids, attention_mask, labels of three units

Batches consist of units: single rows or, for embeddings of pairs, the two rows of a pair. A long text has several units
with the same label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassbert.finetuning.card import CLASS_HEADS, TaskCard
from glassbert.finetuning.rows import Progress, Rows, rows_of_segments, rows_of_texts, rows_of_windows
from glassbert.finetuning.spans import SpanRows, span_rows, true_answers
from glassbert.ops import IGNORED
from glassbert.tasks import TaskData, WordPieces, align_words
from glassbert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Examples:
    """N encoded examples. `labels` and `truth` are None if the targets are unknown.

    labels   targets of the loss per row: [rows] or [rows, ...]; for token tasks one per token, flat like `rows.ids`
    truth    true targets per example, see `truth_of`
    pieces   token tasks: the first token of each word
    spans    span tasks: the character offsets of each token
    """

    card: TaskCard
    rows: Rows
    count: int
    pad_id: int
    labels: np.ndarray | None = None
    truth: Any = None
    pieces: WordPieces | None = None
    spans: SpanRows | None = None
    scores: np.ndarray | None = None  # of a teacher: [rows, outputs], or of each token [tokens, outputs]
    group: int = 1  # rows per unit
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.count

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of the longest row of every unit, [units]."""
        return self.rows.lengths.reshape(-1, self.group).max(1)

    def inputs(self, units: np.ndarray, multiple: int = 1) -> dict[str, np.ndarray]:
        """A padded batch of these units, as arguments of `model.loss`.

        Its length is a multiple of `multiple`, but not beyond the longest row that the model reads.
        """
        rows = (np.asarray(units)[:, None] * self.group + np.arange(self.group)).reshape(-1)
        lengths = self.rows.lengths[rows]
        longest = int(lengths.max())
        length = min(-(-longest // multiple) * multiple, max(longest, self.card.max_length))
        batch = {
            "input_ids": self.rows.padded(self.rows.ids, rows, self.pad_id, length),
            "attention_mask": (np.arange(length) < lengths[:, None]).astype(np.int32),
        }
        if self.rows.types is not None and self.card.aligned:
            batch["segment_ids"] = self.rows.padded(self.rows.types + 1, rows, 0, length)
        elif self.rows.types is not None:
            batch["token_type_ids"] = self.rows.padded(self.rows.types, rows, 0, length)
        if self.rows.fields is not None and self.rows.values is not None:
            batch["fields"] = self.rows.padded(self.rows.fields, rows, 0, length)
            batch["values"] = self.rows.padded(self.rows.values, rows, 0, length)
        if self.labels is not None:
            by_token = self.card.head == "token"
            batch["labels"] = self.rows.padded(self.labels, rows, IGNORED, length) if by_token else self.labels[rows]
        if self.scores is not None:
            by_token = self.card.head == "token"
            batch["scores"] = self.rows.padded(self.scores, rows, np.nan, length) if by_token else self.scores[rows]
        return batch


def encode_examples(
    data: TaskData,
    tokenizer: Tokenizer,
    card: TaskCard,
    *,
    token_types: bool = True,
    progress: Progress | None = None,
) -> Examples:
    """Tokenize examples. `token_types`: whether the model has token types, which mark the second text of a pair."""
    truth = truth_of(data, card)
    make = {"token": _token_examples, "span": _span_examples, "embedding": _embedding_examples}
    examples = make.get(card.head, _sequence_examples)(data, tokenizer, card, truth, progress)
    if token_types or card.aligned or examples.rows.types is None:
        return examples
    return replace(examples, rows=replace(examples.rows, types=None))


def truth_of(data: TaskData, card: TaskCard) -> Any:
    """The true targets, or None if the data has none.

    binary, multiclass, ordinal   [N] int64: label index             regression   [N] float64
    multilabel                    [N, L] of 0 and 1                  token        per sentence [words] int64
    embedding                     [N] float64, the scores of pairs   span         per question a list of texts
    """
    if card.head == "span":
        return true_answers(data, card)
    if data.targets is None:
        return None
    return data.encoded(card.label_map if card.labels else None).values


def _sequence_examples(
    data: TaskData, tokenizer: Tokenizer, card: TaskCard, truth: Any, progress: Progress | None
) -> Examples:
    windows: dict[str, Any] = {"length": card.max_length, "stride": card.stride, "max_windows": card.max_windows}
    if card.reads_numbers:
        assert card.template is not None
        columns = {name: data.table.column(name) for name in card.template.columns}
        cells = [{name: values[row] for name, values in columns.items()} for row in range(len(data))]
        segments = [card.template.segments(one) for one in cells]
        rows = rows_of_segments(tokenizer, segments, **windows, progress=progress)
    else:
        windows["separate"] = card.aligned
        rows = rows_of_texts(tokenizer, data.texts, data.pairs, **windows, progress=progress)
    labels = None if truth is None else truth[rows.owners]
    if labels is not None and card.head in CLASS_HEADS:
        labels = labels.astype(np.float32 if card.head == "binary" else np.int64)
    return Examples(card, rows, len(data), tokenizer.pad_id, labels, truth)


def _token_examples(
    data: TaskData, tokenizer: Tokenizer, card: TaskCard, truth: Any, progress: Progress | None
) -> Examples:
    sentences = data.words if data.words is not None else [text.split() for text in data.texts]
    pieces = align_words(tokenizer, sentences, length=card.max_length, stride=card.stride)
    if progress is not None:
        progress(len(data), len(data))
    labels = np.concatenate(pieces.labels(truth)) if truth is not None else None
    notes = []
    if pieces.lost:
        row, word = pieces.lost[0]
        notes.append(
            f"the tokenizer gives no token for {len(pieces.lost):,} words, the first is word {word + 1} of "
            f"{data.where(row)}; they count as errors"
        )
    rows = rows_of_windows(pieces.windows, paired=False)
    return Examples(card, rows, len(data), tokenizer.pad_id, labels, truth, pieces, notes=tuple(notes))


def _span_examples(
    data: TaskData, tokenizer: Tokenizer, card: TaskCard, truth: Any, progress: Progress | None
) -> Examples:
    spans = span_rows(data, tokenizer, card, truth is not None)
    if progress is not None:
        progress(len(data), len(data))
    rows = rows_of_windows(spans.windows, paired=True)
    return Examples(card, rows, len(data), tokenizer.pad_id, spans.labels, truth, spans=spans)


def _embedding_examples(
    data: TaskData, tokenizer: Tokenizer, card: TaskCard, truth: Any, progress: Progress | None
) -> Examples:
    """The two rows of a pair are adjacent. An embedding uses only the first window of a text."""
    texts = data.texts
    if data.pairs is not None:
        texts = [text for both in zip(data.texts, data.pairs, strict=True) for text in both]
    rows = rows_of_texts(tokenizer, texts, length=card.max_length, max_windows=1, progress=progress)
    if data.pairs is None:
        return Examples(card, rows, len(data), tokenizer.pad_id, None, truth)
    labels = np.ones(len(rows))
    if truth is not None:
        low, high = card.details.get("score_range", (0.0, 1.0))
        labels = np.repeat(np.clip((truth - low) / (high - low), 0.0, 1.0), 2)
    return Examples(card, rows, len(data), tokenizer.pad_id, labels, truth, group=2)
