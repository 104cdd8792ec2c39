"""`run_job`: predict or embed all rows of the input files, a part file for each piece.

The output folder has `_job.json`, which says what is computed from what, one part for each piece, and `_done.json` when
all parts are there. A job that was interrupted goes on with the pieces that have no part; a part of the wrong number of
rows is made again. Another job in the same folder is an error.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from glassbert.bulk.answers import vector_table, with_answers
from glassbert.bulk.inputs import Inputs, Piece, Reader, find_inputs
from glassbert.bulk.storage import Storage, arrow
from glassbert.errors import GlassBertError, InputError
from glassbert.files import PART, absolute_if_here
from glassbert.finetuning.embedding import check_dimensions, embedder, fingerprint
from glassbert.finetuning.predictions import cut_notes
from glassbert.finetuning.predictor import Predictor
from glassbert.locks import try_lock

JOB, DONE, LOCK = "_job.json", "_done.json", "_lock"  # readers of Parquet folders leave out names with an underscore
FORMAT, VERSION = "glassbert-bulk", 1
PART_NAME = re.compile(r"part-\d{6,}\.parquet")
OPENERS: dict[str, Callable[..., Predictor]] = {"predict": Predictor.load, "embed": embedder}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Work:
    """What every worker needs: which model, how it computes, and what it reads and writes."""

    kind: str  # predict or embed
    model: str
    fingerprint: str
    inputs: Inputs
    output: Storage
    engine: str = "auto"
    threads: int | None = None
    batch_tokens: int = 8192
    dimensions: int | None = None

    def description(self, rows: int) -> dict[str, Any]:
        """What determines the output: the content of `_job.json`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "dimensions": self.dimensions,
            "reading": json.loads(json.dumps(dict(self.inputs.options), default=str)),
            "rows_per_part": rows,
            "files": [asdict(one) for one in self.inputs.files],
        }


class Part(NamedTuple):
    """A part that was written: the number of its piece, its rows, and how many have no text or one that was cut."""

    number: int
    rows: int
    empty: int
    cut: int = 0


class Worker:
    """Loads the model once; `make` reads a piece, computes, and writes its part."""

    def __init__(self, work: Work, predictor: Predictor | None = None):
        self.work = work
        self.predictor = predictor or self._open()
        self.reader = Reader(work.inputs, self.predictor)

    def _open(self) -> Predictor:
        work = self.work
        predictor = OPENERS[work.kind](work.model, engine=work.engine, threads=work.threads)
        if fingerprint(predictor, work.model) != work.fingerprint:
            raise InputError(
                f"a worker found another model at {work.model} than this process; put the model into a folder that all "
                "machines share, or install the same files on each"
            )
        return predictor

    def make(self, piece: Piece) -> Part:
        work, name = self.work, self.work.inputs.files[piece.file].name
        data, rows = self.reader.read(piece)
        found = self.predictor.predict(data, batch_tokens=work.batch_tokens)
        if work.kind == "embed":
            table = vector_table(found, name, piece.start, work.dimensions)
        else:
            table = with_answers(rows, found, name, piece.start)
        work.output.write(piece.name, table)
        return Part(piece.number, len(found), sum(not text.strip() for text in data.texts), found.cut)


Make = Callable[[list[Piece]], Iterable[Part]]
Executor = Callable[[Work, Predictor], AbstractContextManager[Make]]  # the predictor is that of this process


@contextmanager
def here(work: Work, predictor: Predictor) -> Iterator[Make]:
    """An executor that makes all parts in this process."""
    yield lambda pieces: map(Worker(work, predictor).make, pieces)


@dataclass
class Finished:
    """A complete job: rows, parts, and what was there before."""

    folder: str
    rows: int
    parts: int
    made_rows: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.made_rows / max(self.seconds, 1e-9)


def run_job(
    kind: str,
    model: str | Path,
    given: str | Path,
    output: str | Path,
    *,
    executor: Executor = here,
    engine: str = "auto",
    threads: int | None = None,
    batch_tokens: int = 8192,
    dimensions: int | None = None,
    rows: int = 4096,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Finished:
    """Predict (or embed) every row of the files `given` into the folder `output`.

    executor   where pieces are computed; `glassbert.on_ray.pieces.on_cluster` is another one
    rows       of a part
    options    of the reader: the column `text`, `format`, and those of `read_table`
    """
    predictor = OPENERS[kind](model, engine=engine, threads=threads)
    if kind == "embed":
        check_dimensions(dimensions, predictor.model.config.hidden_size)
    storage = Storage(str(output))
    inputs = find_inputs(given, predictor, options, storage)
    digest, name = fingerprint(predictor, model), absolute_if_here(model)  # a worker has another working folder
    work = Work(kind, name, digest, inputs, storage, engine, threads, batch_tokens, dimensions)
    pieces = inputs.pieces(rows)
    with _locked(storage):
        missing = _missing(work, pieces, rows, overwrite)
        finished = Finished(str(output), inputs.rows, len(pieces))
        if missing:
            with executor(work, predictor) as make:  # a cluster answers before anything changes
                _begin(work, rows, overwrite)
                _make(work, pieces, missing, make, finished, progress)
        facts = {"rows": inputs.rows, "parts": len(pieces)}
        storage.write(DONE, (json.dumps(facts, indent=2) + "\n").encode())
    return finished


def _make(
    work: Work,
    pieces: list[Piece],
    missing: list[Piece],
    make: Make,
    finished: Finished,
    progress: Progress | None,
) -> None:
    start, empty, cut = time.perf_counter(), 0, 0
    done = finished.rows - sum(piece.rows for piece in missing)
    for part in make(missing):
        finished.made_rows += part.rows
        empty += part.empty
        cut += part.cut
        if progress is not None:
            progress(done + finished.made_rows, finished.rows)
    finished.seconds = time.perf_counter() - start
    if empty:
        finished.notes.append(f"{empty:,} texts are empty; what is predicted for them has no meaning")
    finished.notes += cut_notes(cut)
    left = _without_part(work.output, pieces)
    if left:
        raise GlassBertError(f"{len(left):,} parts are missing in {work.output.place}; run the same command again")


def _missing(work: Work, pieces: list[Piece], rows: int, overwrite: bool) -> list[Piece]:
    """The pieces that have no part yet. Raises where the folder holds something else; changes nothing."""
    storage = work.output
    there = [one.name for one in storage.files() if one.name != LOCK and not one.name.endswith(PART)]
    if JOB in there:
        difference = _difference(_read_description(storage), work.description(rows))
        if difference and not overwrite:
            raise InputError(
                f"{storage.place} holds the output of another job: {difference}; use another folder, or --overwrite"
            )
        return pieces if overwrite else _without_part(storage, pieces)
    other = next((name for name in there if name != DONE and not PART_NAME.fullmatch(name)), None)
    if other is not None:
        raise InputError(
            f"{storage.place} holds other files, such as {other}; use an empty or a new folder for the output"
        )
    if there and not overwrite:
        raise InputError(f"{storage.place} holds {there[0]} without {JOB}; use another folder, or --overwrite")
    return pieces


def _begin(work: Work, rows: int, overwrite: bool) -> None:
    """Prepare the output folder. If the process is killed here, the same command can be given again."""
    storage = work.output
    there = {one.name for one in storage.files()}
    if DONE in there:
        storage.remove(DONE)
    for name in sorted(there) if overwrite else ():
        if PART_NAME.fullmatch(name):
            storage.remove(name)
    if overwrite or JOB not in there:
        content = json.dumps({**work.description(rows), "model": work.model}, indent=2) + "\n"
        storage.write(JOB, content.encode())


def _read_description(storage: Storage) -> dict[str, Any]:
    try:
        found = json.loads(storage.read(JOB))
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{storage.place}/{JOB} is damaged; remove the folder, or use another one")
    return found


def _difference(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing in which two jobs differ, in words; an empty text where they are the same."""
    for name in now:
        if earlier.get(name) == now[name]:
            continue
        if name == "fingerprint":
            return f"it was made with another model ({earlier.get('model')})"
        if name == "files":
            return "its input files were others, or have changed since"
        return f"{name} was {earlier.get(name)} and is {now[name]}"
    return ""


def _without_part(storage: Storage, pieces: list[Piece]) -> list[Piece]:
    """The pieces whose part is missing, cannot be read, or has another number of rows."""
    pyarrow = arrow("reading Parquet files")
    there = {one.name for one in storage.files()}

    def is_complete(piece: Piece) -> bool:
        if piece.name not in there:
            return False
        try:
            with storage.open(piece.name) as file:
                return pyarrow.parquet.read_metadata(file).num_rows == piece.rows
        except (pyarrow.ArrowException, OSError, GlassBertError):
            return False

    return [piece for piece in pieces if not is_complete(piece)]


@contextmanager
def _locked(storage: Storage) -> Iterator[None]:
    """One job at a time in a folder on a disk."""
    if storage.local is None:
        yield
        return
    if storage.local.exists() and not storage.local.is_dir():
        raise InputError(f"{storage.place} is a file; the output of a job is a folder")
    new = not storage.local.exists()
    storage.local.mkdir(parents=True, exist_ok=True)
    with open(storage.local / LOCK, "w", encoding="utf-8") as file:
        if not try_lock(file):
            raise InputError(f"another job is writing into {storage.place}")
        try:
            yield
        finally:
            (storage.local / LOCK).unlink(missing_ok=True)
            if new and not any(storage.local.iterdir()):
                storage.local.rmdir()
