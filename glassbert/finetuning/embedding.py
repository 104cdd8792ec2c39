"""Vectors of texts from any text model, and the files that hold them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from glassbert.errors import InputError, needs
from glassbert.files import atomic_write
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.predictor import Predictor
from glassbert.text.loading import load_with_tokenizer


def embedder(path: str | Path, *, engine: str = "auto", threads: int | None = None) -> Predictor:
    """A predictor of vectors: of the pooling that a model was trained with, or of the mean of its last hidden states.

    embedder("mini").predict(["A king ruled the land."]).vectors
    """
    model, tokenizer = load_with_tokenizer(path, head="embedding", engine=engine, threads=threads)
    if model.config.series is not None:
        raise InputError(f"{path} forecasts series and reads no text; give a text model")
    card = TaskCard(title=str(path), head="embedding", text="text", max_length=model.config.max_length)
    return Predictor(model, tokenizer, card)


def check_vector_file(path: Path) -> None:
    """Raise if vectors cannot be written to a file of this name."""
    if path.suffix.lower() not in VECTOR_WRITERS:
        raise InputError(f"{path}: unknown file extension; use one of {', '.join(VECTOR_WRITERS)}")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise InputError(f"{needs('writing Parquet files', 'pyarrow')}; or write .npy, .csv or .jsonl") from error


def write_vectors(path: str | Path, texts: Sequence[str], vectors: np.ndarray) -> None:
    """Write vectors [N, H] in float32: .npy holds the numbers alone, all other files the texts as well."""
    path = Path(path)
    check_vector_file(path)
    vectors = np.asarray(vectors, np.float32)
    binary = path.suffix.lower() in (".npy", ".parquet")
    with atomic_write(path, "wb" if binary else "w") as file:
        VECTOR_WRITERS[path.suffix.lower()](file, texts, vectors)


def _write_npy(file: IO[bytes], texts: Sequence[str], vectors: np.ndarray) -> None:
    np.save(file, vectors, allow_pickle=False)


def _write_table(file: IO[str], texts: Sequence[str], vectors: np.ndarray, delimiter: str = ",") -> None:
    table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    table.writerow(["text", *(f"v{number}" for number in range(vectors.shape[1]))])
    for text, vector in zip(texts, vectors, strict=True):
        table.writerow([text, *map(str, vector)])  # the shortest digits that give the same float32


def _write_json_lines(file: IO[str], texts: Sequence[str], vectors: np.ndarray) -> None:
    for text, vector in zip(texts, vectors, strict=True):
        file.write(json.dumps({"text": text, "vector": [float(str(value)) for value in vector]}, ensure_ascii=False))
        file.write("\n")


def _write_parquet(file: IO[bytes], texts: Sequence[str], vectors: np.ndarray) -> None:
    import pyarrow
    import pyarrow.parquet

    width = vectors.shape[1]
    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), width)
    pyarrow.parquet.write_table(pyarrow.table({"text": list(texts), "vector": column}), file)


VECTOR_WRITERS: dict[str, Callable[[Any, Sequence[str], np.ndarray], None]] = {
    ".npy": _write_npy,
    ".csv": _write_table,
    ".tsv": lambda file, texts, vectors: _write_table(file, texts, vectors, "\t"),
    ".jsonl": _write_json_lines,
    ".parquet": _write_parquet,
}
