"""Vectors of texts from any text model, and the files that hold them."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from glassbert.errors import InputError, needs
from glassbert.export.folder import FOLDER
from glassbert.export.runtime import OnnxModel, graph_folder
from glassbert.files import atomic_write, checksum
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.predictor import Predictor
from glassbert.ops import unit_length
from glassbert.text.loading import load_with_tokenizer

MADE_BY = "glassbert"  # the key of the metadata of a Parquet file: model and fingerprint, as JSON


def embedder(
    path: str | Path,
    *,
    engine: str = "auto",
    precision: str = "float32",
    threads: int | None = None,
    kernels: str = "fast",
) -> Predictor:
    """A predictor of vectors: of the pooling that a model was trained with, or of the mean of its last hidden states.

    embedder("mini").predict(["A king ruled the land."]).vectors
    """
    model, tokenizer = load_with_tokenizer(
        path, head="embedding", engine=engine, dtype=precision, threads=threads, kernels=kernels
    )
    if model.config.series is not None:
        raise InputError(f"{path} forecasts series and reads no text; give a text model")
    card = TaskCard(title=str(path), head="embedding", text="text", max_length=model.config.max_length)
    return Predictor(model.read_only(), tokenizer, card)


def fingerprint(predictor: Predictor, path: str | Path) -> str:
    """A digest of weights, config and tokenizer: two models with the same one give the same vectors.

    `path` is where the model was loaded from; the weights of an exported model are in its graph there.
    """
    model, digest = predictor.model, hashlib.sha256()
    if isinstance(model, OnnxModel):
        for graph in sorted((graph_folder(path) / FOLDER).iterdir()):
            digest.update(checksum(graph).encode())
    else:
        for name, array in model.parameters.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(model.engine.to_numpy(array)).tobytes())
    digest.update(repr((model.config, model.head and model.head.kind, predictor.tokenizer.fingerprint)).encode())
    return digest.hexdigest()


def check_dimensions(dimensions: int | None, width: int) -> None:
    """Raise unless vectors of this width can be cut to so many dimensions."""
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InputError(f"--dimensions must be from 1 to {width}, the width of this model; got {dimensions}")


def truncated(vectors: np.ndarray, dimensions: int | None) -> np.ndarray:
    """The first numbers of every vector, at unit length again: y = x[:n] / |x[:n]|."""
    if dimensions is None:
        return vectors
    check_dimensions(dimensions, vectors.shape[1])
    return unit_length(vectors[:, :dimensions])[0]


def check_vector_file(path: Path) -> None:
    """Raise if vectors cannot be written to a file of this name."""
    if path.suffix.lower() not in VECTOR_WRITERS:
        raise InputError(f"{path}: unknown file extension; use one of {', '.join(VECTOR_WRITERS)}")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise InputError(f"{needs('writing Parquet files', 'pyarrow')}; or write .npy, .csv or .jsonl") from error


def write_vectors(
    path: str | Path, texts: Sequence[str], vectors: np.ndarray, made_by: Mapping[str, str] | None = None
) -> None:
    """Write vectors [N, H] in float32 with their texts. An .npy file holds numbers alone: its texts stand beside it.

    `made_by` names the model and its fingerprint; a Parquet file keeps both in its metadata.
    """
    path = Path(path)
    check_vector_file(path)
    vectors = np.asarray(vectors, np.float32)
    if path.suffix.lower() == ".npy":
        with atomic_write(texts_beside(path)) as lines:
            lines.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    binary = path.suffix.lower() in (".npy", ".parquet")
    with atomic_write(path, "wb" if binary else "w") as file:
        VECTOR_WRITERS[path.suffix.lower()](file, texts, vectors, made_by or {})


def texts_beside(path: Path) -> Path:
    """The file with the texts of vectors.npy: vectors.texts.jsonl, one object per line."""
    return path.with_suffix(".texts.jsonl")


def _write_npy(file: IO[bytes], texts: Sequence[str], vectors: np.ndarray, made_by: Mapping[str, str]) -> None:
    np.save(file, vectors, allow_pickle=False)


def _write_table(
    file: IO[str], texts: Sequence[str], vectors: np.ndarray, made_by: Mapping[str, str], delimiter: str = ","
) -> None:
    table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    table.writerow(["text", *(f"v{number}" for number in range(vectors.shape[1]))])
    for text, vector in zip(texts, vectors, strict=True):
        table.writerow([text, *map(str, vector)])  # the shortest digits that give the same float32


def _write_json_lines(file: IO[str], texts: Sequence[str], vectors: np.ndarray, made_by: Mapping[str, str]) -> None:
    for text, vector in zip(texts, vectors, strict=True):
        file.write(json.dumps({"text": text, "vector": [float(str(value)) for value in vector]}, ensure_ascii=False))
        file.write("\n")


def _write_parquet(file: IO[bytes], texts: Sequence[str], vectors: np.ndarray, made_by: Mapping[str, str]) -> None:
    import pyarrow
    import pyarrow.parquet

    width = vectors.shape[1]
    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), width)
    table = pyarrow.table({"text": list(texts), "vector": column})
    pyarrow.parquet.write_table(table.replace_schema_metadata({MADE_BY: json.dumps(dict(made_by))}), file)


VECTOR_WRITERS: dict[str, Callable[[Any, Sequence[str], np.ndarray, Mapping[str, str]], None]] = {
    ".npy": _write_npy,
    ".csv": _write_table,
    ".tsv": lambda file, texts, vectors, made_by: _write_table(file, texts, vectors, made_by, "\t"),
    ".jsonl": _write_json_lines,
    ".parquet": _write_parquet,
}
