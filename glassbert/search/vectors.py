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
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.rows import Progress
from glassbert.ops import unit_length
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
        _check_same(stored, predictor, name)
        found = replace(stored, model=name, fingerprint=fingerprint(predictor, name))
        if dimensions is not None and dimensions > found.dimensions:
            raise InputError(
                f"{path} has vectors of {found.dimensions} dimensions; --dimensions {dimensions} needs more"
            )
        return replace(found, vectors=truncated(found.vectors, dimensions))
    predicted = predictor.predict(path, batch_tokens=batch_tokens, progress=progress, **options)
    texts = predicted.data.texts
    kept = [row for row, text in enumerate(texts) if text.strip()]
    if not kept:
        raise InputError(f"{path} has no text: all {len(texts):,} rows are empty; --text names another column")
    notes = (f"{len(texts) - len(kept):,} empty texts are left out",) if len(kept) < len(texts) else ()
    vectors = truncated(predicted.vectors, dimensions).astype(np.float32)
    found = TextVectors(list(texts), vectors, name, fingerprint(predictor, name), path.name, notes)
    return found.select(kept) if notes else found


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
        made_by = json.loads(metadata) if metadata else {}
        return _of_column(read_table(path), path, str(made_by.get("model", "")), str(made_by.get("fingerprint", "")))
    if suffix in (".jsonl", ".csv", ".tsv"):
        return _of_text_file(path, suffix)
    return None


def _of_text_file(path: Path, suffix: str) -> TextVectors | None:
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline()
    if suffix == ".jsonl":
        return _of_column(read_table(path), path) if '"vector"' in first else None
    names = first.strip().split("\t" if suffix == ".tsv" else ",")
    numbers = [name for name in names if name[:1] == "v" and name[1:].isdigit()]
    if "text" not in names or numbers != [f"v{number}" for number in range(len(numbers))] or not numbers:
        return None
    table = read_table(path)
    vectors = np.array([[float(value) for value in table.columns[name]] for name in numbers]).T
    return _checked([str(text) for text in table.columns["text"]], vectors, path)


def _of_column(table: Table, path: Path, model: str = "", digest: str = "") -> TextVectors:
    vectors = table.column("vector")
    sizes = {len(vector) if isinstance(vector, list) else 0 for vector in vectors}
    if len(sizes) != 1 or sizes == {0}:
        raise InputError(f"{path}: the column 'vector' must hold lists of one length, not of {sorted(sizes)}")
    try:
        numbers = np.array(vectors, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: the column 'vector' must hold lists of numbers") from error
    return replace(
        _checked([str(text) for text in table.column("text")], numbers, path), model=model, fingerprint=digest
    )


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
    return _checked([str(text) for text in read_table(beside).column("text")], vectors, path)


def _of_job(folder: Path) -> TextVectors:
    """All parts of a job in their order."""
    if not (folder / JOB).exists():
        raise InputError(f"{folder} is no folder that glassbert embed wrote: it has no {JOB}; give a file")
    job = read_json(folder / JOB, InputError)
    if job.get("kind") != "embed" or not (folder / "_done.json").exists():
        state = "holds predictions" if job.get("kind") != "embed" else "is not finished: run the same command again"
        raise InputError(f"{folder} {state}; give the output of glassbert embed")
    parts = [_of_column(read_table(path), path) for path in sorted(folder.glob("part-*.parquet"))]
    texts = [text for part in parts for text in part.texts]
    vectors = np.concatenate([part.vectors for part in parts])
    return TextVectors(texts, vectors, str(job["model"]), str(job["fingerprint"]), folder.name)


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
