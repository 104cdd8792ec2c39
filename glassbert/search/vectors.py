"""`TextVectors`: texts with their vectors, computed by a model or read from a file that `glassbert embed` wrote.

A file of vectors is .npy (with its texts beside it), .parquet or .jsonl with a column "vector", a table with the
columns v0, v1, ..., or the folder of an `embed` job. Whether they are the vectors of a model is tested: a few texts are
embedded again, and their cosines with the stored vectors must be 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.files import read_json
from glassbert.finetuning.embedding import MADE_BY, check_dimensions, embedder, fingerprint, texts_beside, truncated
from glassbert.finetuning.predictions import cut_notes
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.rows import Progress
from glassbert.ops import unit_length
from glassbert.reading.cells import as_number, shown
from glassbert.reading.parquet import open_parquet
from glassbert.tasks import Table, read_table

JOB = "_job.json"  # of a folder that `glassbert embed` wrote
CHECKED, CLOSE = 8, 0.999  # texts that are embedded again, and the least cosine with their stored vectors


@dataclass(frozen=True)
class TextVectors:
    """Texts and their vectors [N, H] of unit length, with the model that made them and the file of each text."""

    texts: list[str]
    vectors: np.ndarray
    model: str
    fingerprint: str
    source: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def dimensions(self) -> int:
        return int(self.vectors.shape[1])

    def select(self, rows: list[int]) -> TextVectors:
        return replace(self, texts=[self.texts[row] for row in rows], vectors=self.vectors[rows])


def gather_vectors(
    given: str | Path,
    model: str | Path | None = None,
    *,
    dimensions: int | None = None,
    engine: str = "auto",
    threads: int | None = None,
    batch_tokens: int = 8192,
    progress: Progress | None = None,
    predictor: Predictor | None = None,
    **options: Any,
) -> TextVectors:
    """The vectors of a file of texts, or of a file of vectors. `options` are those of reading a file.

    model       default: the one that a file of vectors names, or "mini"
    predictor   that model, where it is loaded already
    """
    path = Path(given)
    stored = read_vectors(path)
    if stored is not None and model is None and predictor is None and stored.model:
        model = stored.model
    name = str(model or "mini")
    predictor = predictor or embedder(name, engine=engine, threads=threads)
    width = predictor.model.config.hidden_size
    check_dimensions(dimensions, width)
    if stored is not None:
        stored = _with_text(stored, path)
        _check_same(stored, predictor, name)
        found = replace(stored, model=name, fingerprint=fingerprint(predictor, name))
        if dimensions is not None and dimensions > found.dimensions:
            raise InputError(
                f"{path} has vectors of {found.dimensions} dimensions; --dimensions {dimensions} needs more"
            )
        return replace(found, vectors=truncated(found.vectors, dimensions))
    predicted = predictor.predict(path, batch_tokens=batch_tokens, progress=progress, **options)
    vectors = truncated(predicted.vectors, dimensions).astype(np.float32)
    texts = list(predicted.data.texts)
    notes = cut_notes(predicted.cut)
    return _with_text(TextVectors(texts, vectors, name, fingerprint(predictor, name), path.name, notes), path)


def _with_text(found: TextVectors, path: Path) -> TextVectors:
    """Without those of empty texts, with a note about them."""
    kept = [row for row, text in enumerate(found.texts) if text.strip()]
    if not kept:
        raise InputError(f"{path} has no text: all {len(found):,} rows are empty; --text names another column")
    left = len(found) - len(kept)
    return replace(found.select(kept), notes=(*found.notes, f"{left:,} empty texts are left out")) if left else found


def read_vectors(path: Path) -> TextVectors | None:
    """The vectors that a file holds; None where it is a file of texts."""
    if path.is_dir():
        return _of_job(path)
    suffix = path.suffix.lower()
    if not path.exists():
        raise InputError(f"there is no file {path}")
    if suffix == ".npy":
        return _of_array(path)
    if suffix == ".parquet":
        with open_parquet(path, str(path)) as file:
            if "vector" not in file.schema_arrow.names:
                return None
            metadata = (file.schema_arrow.metadata or {}).get(MADE_BY.encode())
        made_by = _object(metadata) if metadata else {}
        if made_by is None:
            raise InputError(
                f"{path}: the metadata {MADE_BY!r} are no JSON object; write the file again with glassbert embed"
            )
        return _of_column(read_table(path), path, str(made_by.get("model", "")), str(made_by.get("fingerprint", "")))
    if suffix in (".jsonl", ".csv", ".tsv"):
        return _of_text_file(path, suffix)
    return None


def _of_text_file(path: Path, suffix: str) -> TextVectors | None:
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline()
    if suffix == ".jsonl":
        is_vectors = isinstance((_object(first) or {}).get("vector"), list)
        return _of_column(read_table(path, as_written=["text"]), path) if is_vectors else None
    delimiter = "\t" if suffix == ".tsv" else ","
    names = first.strip().split(delimiter)
    numbers = [name for name in names if name[:1] == "v" and name[1:].isdigit()]
    if "text" not in names or numbers != [f"v{number}" for number in range(len(numbers))] or not numbers:
        return None
    table = read_table(path, as_written=names, delimiter=delimiter, quoting=True, header=True)
    for name in numbers:
        row = next((row for row, cell in enumerate(table.column(name)) if as_number(cell) is None), None)
        if row is not None:
            cell = table.column(name)[row]
            raise InputError(f"{table.where(row)}: the column {name} must hold a number, got {shown(cell)}")
    vectors = np.array([table.column(name) for name in numbers], np.float64).T
    return _checked(_texts(table), vectors, path)


def _object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a text; None where there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _texts(table: Table) -> list[str]:
    return ["" if text is None else str(text) for text in table.column("text")]


def _of_column(table: Table, path: Path, model: str = "", digest: str = "") -> TextVectors:
    vectors = table.column("vector")
    sizes = {len(vector) if isinstance(vector, list) else 0 for vector in vectors}
    if len(sizes) != 1 or sizes == {0}:
        raise InputError(f"{path}: the column 'vector' must hold lists of one length, not of {sorted(sizes)}")
    try:
        numbers = np.array(vectors, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: the column 'vector' must hold lists of numbers") from error
    return replace(_checked(_texts(table), numbers, path), model=model, fingerprint=digest)


def _of_array(path: Path) -> TextVectors:
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as an array: {error}") from error
    beside = texts_beside(path)
    if not beside.exists():
        raise InputError(f"{path} has no texts: there is no {beside.name} beside it; write both with glassbert embed")
    if vectors.ndim != 2:
        raise InputError(f"{path} must hold vectors [N, H], not an array of shape {list(vectors.shape)}")
    return _checked(_texts(read_table(beside, as_written=["text"])), vectors, path)


def _of_job(folder: Path) -> TextVectors:
    """All parts of a job in their order."""
    if not (folder / JOB).exists():
        raise InputError(f"{folder} is no folder that glassbert embed wrote: it has no {JOB}; give a file")
    job = read_json(folder / JOB, InputError)
    if job.get("kind") != "embed" or not (folder / "_done.json").exists():
        state = "holds predictions" if job.get("kind") != "embed" else "is not finished: run the same command again"
        raise InputError(f"{folder} {state}; give the output of glassbert embed")
    parts = [_of_column(read_table(path), path) for path in sorted(folder.glob("part-*.parquet"))]
    if not parts:
        raise InputError(f"{folder} has no parts; make them with the command that wrote it")
    texts = [text for part in parts for text in part.texts]
    vectors = np.concatenate([part.vectors for part in parts])
    return TextVectors(texts, vectors, str(job.get("model", "")), str(job.get("fingerprint", "")), folder.name)


def _checked(texts: list[str], vectors: Any, path: Path) -> TextVectors:
    vectors = np.asarray(vectors, np.float64)
    if len(texts) != len(vectors):
        raise InputError(f"{path} has {len(vectors):,} vectors and {len(texts):,} texts; they do not belong together")
    if not len(texts) or not np.isfinite(vectors).all():
        what = "has values that are not finite" if len(texts) else "has no vectors"
        raise InputError(f"{path} {what}; write it again with glassbert embed")
    return TextVectors(texts, unit_length(vectors)[0].astype(np.float32), "", "", path.name)


def _check_same(stored: TextVectors, predictor: Predictor, model: str) -> None:
    """Raise unless the stored vectors are those of the model."""
    width, source = predictor.model.config.hidden_size, stored.source
    remedy = (
        f"name the model that made them with --model, or embed the texts again: glassbert embed FILE --model {model}"
    )
    if stored.fingerprint and stored.fingerprint == fingerprint(predictor, model):
        return
    if stored.dimensions > width:
        raise InputError(f"{source} has vectors of {stored.dimensions} dimensions, and {model} has {width}; {remedy}")
    rows = [row for row, text in enumerate(stored.texts) if text.strip()][:CHECKED]
    again = truncated(predictor.predict([stored.texts[row] for row in rows]).vectors, stored.dimensions)
    cosines = (again * stored.vectors[rows]).sum(1)
    if rows and cosines.min() < CLOSE:
        raise InputError(
            f"the vectors of {source} are not those of {model}: the cosine of the first {len(rows)} texts with them is "
            f"{cosines.mean():.3f} and not 1; {remedy}"
        )
