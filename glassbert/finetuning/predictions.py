"""`Predictions`: the answers of a model as Python objects, rows or files. Files are written atomically."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.files import atomic_write
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.tags import marks_spans
from glassbert.metrics import sentence_spans
from glassbert.ops import unit_length

PREDICTION, PROBABILITY, PROBABILITIES, ENTITIES = "prediction", "probability", "probabilities", "entities"
MAX_LABEL_COLUMNS = 40  # with more labels, a CSV file has no probability columns


class Entity(NamedTuple):
    """A named entity: its type, its text, and its words [start, end) in the sentence."""

    type: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Predictions(Outcome):
    """The predictions for a set of examples. `truth` and `scores` are set if the true answers are known."""

    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    cut: int = 0  # texts whose vector is that of their beginning

    def answers(self) -> list[Any]:
        """Label names, lists of them, numbers, tags, texts or vectors: one per example."""
        if self.card.head == "embedding" and self.data.pairs is None:
            return [vector.tolist() for vector in self.vectors]
        return super().answers()

    @property
    def vectors(self) -> np.ndarray:
        """Embeddings of unit length: [N, H], or [N, 2, H] for pairs."""
        if self.card.head != "embedding":
            raise InputError(f"a {self.card.head} head has no vectors; only an embedding head has")
        return unit_length(np.asarray(self.outputs, np.float64))[0]

    @cached_property
    def confidence(self) -> list[float] | None:
        """The probability of each answer; the mean over words for token tasks, None for multilabel tasks."""
        probs = self.probabilities()
        if probs is None or self.card.head == "multilabel":
            return None
        if self.card.head == "token":
            return [float(words.max(-1).mean()) if len(words) else 1.0 for words in probs]
        both = np.stack([1 - probs, probs], 1) if self.card.head == "binary" else probs
        return np.take_along_axis(both, np.asarray(self.choices())[:, None], 1)[:, 0].tolist()

    @cached_property
    def entities(self) -> list[list[Entity]] | None:
        """The entities of each sentence, for token tasks with BIO tags; else None."""
        if not marks_spans(self.card) or self.data.words is None:
            return None
        tags = [[self.card.labels[int(tag)] for tag in sentence] for sentence in self.choices()]
        return [
            [Entity(span.type, " ".join(words[span.start : span.end]), span.start, span.end) for span in found]
            for words, found in zip(self.data.words, sentence_spans(tags), strict=True)
        ]

    def by_label(self) -> list[dict[str, float]] | None:
        """The probability of every label, per example; None for token tasks and heads without probabilities."""
        probs = self.probabilities()
        if probs is None or self.card.head == "token":
            return None
        table = np.stack([1 - probs, probs], 1) if self.card.head == "binary" else probs
        names = self.card.label_names
        return [dict(zip(names, np.round(row, 6).tolist(), strict=True)) for row in table]

    @property
    def per_second(self) -> float:
        return len(self) / max(self.seconds, 1e-9)

    def rows(self) -> list[dict[str, Any]]:
        """One dict per example: its input columns, then the prediction."""
        columns = self.data.table.columns
        predicted = {
            PREDICTION: self.answers(),
            PROBABILITY: None if self.confidence is None else [round(prob, 6) for prob in self.confidence],
            PROBABILITIES: self.by_label(),
            ENTITIES: None if self.entities is None else [[e._asdict() for e in found] for found in self.entities],
        }
        shown = {_unused_name(name, columns): values for name, values in predicted.items() if values is not None}
        return [
            {
                **{name: _as_json(values[i]) for name, values in columns.items()},
                **{name: values[i] for name, values in shown.items()},
            }
            for i in range(len(self))
        ]

    def save(self, path: str | Path) -> Path:
        """Write .csv, .tsv, .jsonl or .json, or vectors as .npy. The file is written atomically."""
        path = Path(path)
        writer = WRITERS.get(path.suffix.lower())
        if writer is None:
            raise InputError(f"{path}: unknown file extension; use one of {', '.join(WRITERS)}")
        if path.suffix.lower() == ".npy" and self.card.head != "embedding":
            raise InputError(f"{path}: .npy holds vectors, and a {self.card.head} head has none; use .csv or .jsonl")
        with atomic_write(path, "wb" if path.suffix.lower() == ".npy" else "w") as file:
            writer(self, file)
        return path


def _write_csv(found: Predictions, file: IO[str], delimiter: str = ",") -> None:
    """`rows` with one probability column per label; for two labels, only that of the second."""
    if found.card.head == "embedding" and found.data.pairs is None:
        raise InputError("vectors cannot be written as a table; use .npy or .jsonl")
    labels = found.card.label_names[1:] if len(found.card.labels) == 2 else found.card.label_names
    labels = labels if len(labels) <= MAX_LABEL_COLUMNS else ()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    for number, row in enumerate(found.rows()):
        probs = row.pop(_unused_name(PROBABILITIES, found.data.table.columns), {})
        row |= {_unused_name(f"p({label})", row): probs[label] for label in labels if probs}
        if number == 0:
            writer.writerow(row)
        writer.writerow([_cell(value) for value in row.values()])


def _write_json_lines(found: Predictions, file: IO[str]) -> None:
    for row in found.rows():
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_json(found: Predictions, file: IO[str]) -> None:
    json.dump(found.rows(), file, ensure_ascii=False, indent=1)
    file.write("\n")


def _write_vectors(found: Predictions, file: IO[bytes]) -> None:
    np.save(file, found.vectors.astype(np.float32), allow_pickle=False)


WRITERS: dict[str, Callable[[Predictions, Any], None]] = {
    ".csv": _write_csv,
    ".tsv": lambda found, file: _write_csv(found, file, "\t"),
    ".jsonl": _write_json_lines,
    ".json": _write_json,
    ".npy": _write_vectors,
}


def cut_notes(texts: int) -> tuple[str, ...]:
    """The note about texts that are longer than one window of an embedding model."""
    return (
        (f"{texts:,} texts are longer than the model reads at once; their vectors are of the beginning",)
        if texts
        else ()
    )


def _unused_name(name: str, taken: Any) -> str:
    """The name, with a number appended if the data has a column of that name."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name} {number}", number + 1
    return free


def _as_json(value: Any) -> Any:
    """A cell as a value that JSON can hold."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | list | dict | type(None)) else str(value)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        simple = all(isinstance(one, str) for one in value)
        return " ".join(value) if simple else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
