"""The predictions of a piece as columns of Arrow, with types that depend on the head alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.bulk.storage import arrow
from glassbert.finetuning.embedding import truncated
from glassbert.finetuning.predictions import ENTITIES, MAX_LABEL_COLUMNS, PREDICTION, PROBABILITY, Predictions

SOURCE_FILE, SOURCE_ROW = "source_file", "source_row"  # the file of a row, and its number in it, from 1
VECTOR = "vector"


def with_answers(rows: Any, found: Predictions, file: str, start: int, dimensions: int | None = None) -> Any:
    """The rows of a piece with where they come from and what was predicted."""
    pyarrow = arrow("writing Parquet files")
    count = len(found)
    added = {
        SOURCE_FILE: pyarrow.array([file] * count, pyarrow.string()),
        SOURCE_ROW: pyarrow.array(np.arange(start + 1, start + count + 1), pyarrow.int64()),
        **_answers(found, dimensions),
    }
    for name, values in added.items():
        rows = rows.append_column(unused_name(name, rows.column_names), values)
    return rows


def vector_table(found: Predictions, file: str, start: int, dimensions: int | None) -> Any:
    """Texts and vectors, with where they come from."""
    texts = arrow("writing Parquet files").table({"text": list(found.data.texts)})
    return with_answers(texts, found, file, start, dimensions)


def _answers(found: Predictions, dimensions: int | None) -> dict[str, Any]:
    pyarrow = arrow("writing Parquet files")
    text, number = pyarrow.string(), pyarrow.float64()
    head = found.card.head
    if head == "embedding" and found.data.pairs is None:
        return {VECTOR: vector_column(truncated(found.vectors, dimensions))}
    kind = {"regression": number, "embedding": number}.get(head, text)
    kind = pyarrow.list_(text) if head in ("multilabel", "token") else kind
    columns = {PREDICTION: pyarrow.array(found.answers(), kind)}
    if found.confidence is not None:
        columns[PROBABILITY] = pyarrow.array(np.round(found.confidence, 6), number)
    shares = found.by_label()
    if shares is not None and len(found.card.label_names) <= MAX_LABEL_COLUMNS:
        for label in found.card.label_names:
            columns[f"p({label})"] = pyarrow.array([row[label] for row in shares], number)
    if found.entities is not None:
        fields = {"type": text, "text": text, "start": pyarrow.int64(), "end": pyarrow.int64()}
        entities = [[one._asdict() for one in sentence] for sentence in found.entities]
        columns[ENTITIES] = pyarrow.array(entities, pyarrow.list_(pyarrow.struct(list(fields.items()))))
    return columns


def vector_column(vectors: np.ndarray) -> Any:
    """Vectors [N, H] as a column of lists of one size, in float32."""
    pyarrow = arrow("writing Parquet files")
    vectors = np.ascontiguousarray(vectors, np.float32)
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])


def unused_name(name: str, taken: Any) -> str:
    """The name, with a number appended if there is a column of that name."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name} {number}", number + 1
    return free
