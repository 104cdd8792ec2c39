"""`VectorIndex`: nearest texts by cosine, in a folder with everything that a search needs.

    index.json             model and fingerprint, dimensions, metric, recall, and a checksum of each file
    vectors.3.usearch      the graph of neighbours with the vectors (HNSW, by USearch)
    texts.3.jsonl          the texts, one JSON object per line; offsets.3.npy: where each line begins

Texts that are added make a new generation of files. `index.json` is replaced last, so an interrupted change leaves the
index as it was. The same texts in the same order give the same files.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from glassbert.errors import GlassBertError, InputError, needs
from glassbert.files import (
    PART,
    absolute_if_here,
    atomic_write,
    explain_write_errors,
    facts_of,
    locked_folder,
    read_json,
    verifying,
    write_json,
)
from glassbert.finetuning.embedding import truncated
from glassbert.finetuning.predictor import Predictor
from glassbert.search.vectors import TextVectors

MANIFEST, FORMAT, VERSION = "index.json", "glassbert-index", 1
METRIC = "cosine"
RECALL_AT, RECALL_QUERIES = 10, 200
ENOUGH, WIDEST = 0.99, 1024  # the recall to reach, and the widest search that is tried for it
EXPANSION = 64
ATTEMPTS = 5  # to open an index that other processes change


class Hit(NamedTuple):
    """A text that was found, its cosine with the question, its number in the index, and the file it came from."""

    score: float
    text: str
    number: int
    source: str


def usearch_index() -> Any:
    """The class of USearch, or an error that says how to install it."""
    try:
        from usearch.index import Index
    except ImportError as error:
        raise InputError(needs("an index", "usearch")) from error
    return Index


@dataclass
class VectorIndex:
    """An open index."""

    folder: Path
    manifest: dict[str, Any]
    graph: Any
    offsets: np.ndarray
    lines: mmap.mmap  # the file of texts, which stays readable when another process removes it

    @property
    def model(self) -> str:
        return self.manifest["model"]

    @property
    def dimensions(self) -> int:
        return self.manifest["dimensions"]

    def __len__(self) -> int:
        return len(self.offsets)

    # ---- making ----

    @classmethod
    def build(cls, folder: str | Path, found: TextVectors, *, overwrite: bool = False) -> Self:
        """Make an index of these texts; a text that occurs several times is in it once."""
        usearch_index()
        folder = Path(folder)
        with _alone(folder):
            check_place(folder, overwrite)
            _write(folder, _new_graph(found.dimensions), [], found)
        return cls.open(folder)

    def add(self, found: TextVectors) -> Self:
        """The index with further texts; those that are in it already are left out."""
        if found.fingerprint != self.manifest["fingerprint"]:
            raise InputError(other_model(self.folder, self.model, found.model))
        if found.dimensions != self.dimensions:
            raise InputError(
                f"the index {self.folder} has {self.dimensions} dimensions and {found.source} has {found.dimensions}; "
                f"add --dimensions {self.dimensions}"
            )
        with _alone(self.folder):
            if read_json(self.folder / MANIFEST, InputError) != self.manifest:
                raise InputError(f"the index {self.folder} has changed since it was opened; run the command again")
            lines = [self.line(number) for number in range(len(self))]
            _write(self.folder, self.graph, lines, found, self.model)
        return type(self).open(self.folder)

    # ---- opening and searching ----

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open an index; raises if a file is missing or has changed. What is open stays so if files are replaced."""
        folder = Path(folder)
        manifest = _read_manifest(folder)
        for _ in range(ATTEMPTS):
            try:
                return cls(folder, manifest, *_open_files(folder, manifest))
            except GlassBertError:
                before, manifest = manifest, _read_manifest(folder)
                if manifest == before:  # no other process has replaced the files
                    raise
        raise InputError(f"the index {folder} was changed {ATTEMPTS} times while it was opened; try again later")

    def check_model(self, fingerprint: str, model: str) -> None:
        """Raise unless this is the model that the index was built with."""
        if fingerprint != self.manifest["fingerprint"]:
            raise InputError(other_model(self.folder, self.model, model))

    def ask(self, predictor: Predictor, questions: Sequence[str], count: int = 10) -> list[list[Hit]]:
        """The nearest texts of each question."""
        vectors = truncated(predictor.predict(list(questions)).vectors, self.dimensions)
        return self.search(vectors, count)

    def search(self, vectors: np.ndarray, count: int = 10, *, exact: bool = False) -> list[list[Hit]]:
        """The nearest texts of each vector [Q, dimensions], the nearest first."""
        vectors = np.ascontiguousarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimensions:
            raise InputError(
                f"the index {self.folder} has vectors of {self.dimensions} dimensions, got an array of shape "
                f"{list(vectors.shape)}"
            )
        found = []
        for vector in vectors:
            matches = self.graph.search(vector, min(count, len(self)), threads=1, exact=exact)
            numbers = [int(number) for number in matches.keys]
            scores = [1.0 - float(distance) for distance in matches.distances]
            lines = [self.line(number) for number in numbers]
            found.append(
                [
                    Hit(score, line["text"], number, line["source"])
                    for score, number, line in zip(scores, numbers, lines, strict=True)
                ]
            )
        return found

    def line(self, number: int) -> dict[str, str]:
        """Text and source of an entry."""
        start = int(self.offsets[number])
        return json.loads(self.lines[start : self.lines.find(b"\n", start)])


ENDS = {"vectors": ".usearch", "texts": ".jsonl", "offsets": ".npy"}
FILE = re.compile(r"(vectors\.\d{1,9}\.usearch|texts\.\d{1,9}\.jsonl|offsets\.\d{1,9}\.npy)")


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} is no index: it has no {MANIFEST}; make one with: glassbert index FILE -o {folder}")
    manifest = read_json(folder / MANIFEST, InputError)
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        raise InputError(f"{folder / MANIFEST} was not written by this version of GlassBERT; build the index again")
    _check_manifest(folder, manifest)
    return manifest


def _open_files(folder: Path, manifest: dict[str, Any]) -> tuple[Any, np.ndarray, mmap.mmap]:
    """The graph, the offsets and the lines of an index."""
    for name, facts in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path} is missing; build the index again")
        if verifying() and facts_of(path) != facts:
            raise InputError(f"{path} has changed since it was written; restore it, or build the index again")
    files = {name.partition(".")[0]: folder / name for name in manifest["files"]}
    graph = usearch_index()(ndim=manifest["dimensions"], metric="cos", dtype="f32")
    try:
        graph.load(str(files["vectors"]))
        offsets = np.load(files["offsets"], mmap_mode="r", allow_pickle=False)
        with open(files["texts"], "rb") as file:
            lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (RuntimeError, ValueError, OSError, EOFError) as error:
        raise InputError(f"the index {folder} is damaged: {error}; build it again") from error
    if (len(graph), graph.ndim, offsets.shape) != (manifest["texts"], manifest["dimensions"], (len(graph),)):
        raise InputError(f"the files of the index {folder} do not belong together; build it again")
    graph.expansion_search = manifest["expansion"]
    return graph, offsets, lines


def check_place(folder: Path, overwrite: bool) -> None:
    """Raise if an index cannot be written into this folder. What an interrupted `index` left there may be replaced."""
    if (folder / MANIFEST).exists() and not overwrite:
        raise InputError(f"{folder} is an index already; --add adds to it, --overwrite replaces it")
    if (folder / MANIFEST).exists() or not folder.exists():
        return
    if not folder.is_dir() or not all(_is_own(path.name) for path in folder.iterdir()):
        raise InputError(f"{folder} holds something else than an index; use a new folder")


def _is_own(name: str) -> bool:
    """Whether this is a file of an index, or a temporary file of one that was being written."""
    if name.startswith(".") and name.endswith(PART):
        name = name[1:]
    kind, _, rest = name.partition(".")
    return (kind in ENDS and ENDS[kind][1:] in rest.split(".")) or name.startswith(MANIFEST)


def _check_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Raise for a manifest that no index has: a field is missing, or has a wrong type or size."""
    files = manifest.get("files")
    numbers = [manifest.get(name) for name in ("dimensions", "texts", "expansion")]
    whole = (
        isinstance(files, dict)
        and all(FILE.fullmatch(name) for name in files)
        and sorted(name.partition(".")[0] for name in files) == sorted(ENDS)
        and all(type(number) is int and 0 < number < 2**31 for number in numbers)
        and all(isinstance(manifest.get(name), str) for name in ("model", "fingerprint"))
    )
    if not whole:
        raise InputError(f"{folder / MANIFEST} is damaged; build the index again")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Context manager: one process at a time writes into the folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; an index is a folder")
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked_folder(folder))
        except OSError as error:
            raise InputError(f"another process is writing the index {folder}; wait until it has ended") from error
        yield


def other_model(folder: Path, built_with: str, given: str) -> str:
    return (
        f"the index {folder} was built with another model ({built_with}) than {given}, so their vectors cannot be "
        f"compared; give --model {built_with}, or build the index again with --model {given}"
    )


def _next(folder: Path) -> int:
    """The number of the next generation of files; those of an interrupted process are written again."""
    if not (folder / MANIFEST).exists():
        return 1
    try:
        files = read_json(folder / MANIFEST, InputError, verify=False).get("files")
    except InputError:  # it is replaced; a process that searches may have any of the files open
        files = None
    names = files if isinstance(files, dict) else [path.name for path in folder.iterdir()]
    numbers = [name.split(".")[1] for name in names if name.count(".") == 2]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)


def _new_graph(dimensions: int) -> Any:
    return usearch_index()(ndim=dimensions, metric="cos", dtype="f32", expansion_search=EXPANSION)


def _write(folder: Path, graph: Any, lines: list[dict[str, str]], found: TextVectors, model: str | None = None) -> None:
    """Add texts to a graph, write a generation of files, then the manifest that names them; remove all others."""
    known = {line["text"] for line in lines}
    places = {text: row for row, text in reversed(list(enumerate(found.texts)))}  # the first row of each text
    rows = sorted(row for text, row in places.items() if text not in known)
    first = len(lines)
    lines = [*lines, *({"text": found.texts[row], "source": found.source} for row in rows)]
    if rows:  # by one thread, so that the graph is the same every time
        keys = np.arange(first, len(lines), dtype=np.uint64)
        graph.add(keys, np.ascontiguousarray(found.vectors[rows], np.float32), threads=1)
    recall = choose_expansion(graph, np.asarray(graph.get(np.arange(len(lines), dtype=np.uint64)), np.float32))
    encoded = [json.dumps(line).encode() + b"\n" for line in lines]
    names = {name: f"{name}.{_next(folder)}{end}" for name, end in ENDS.items()}
    with atomic_write(folder / names["vectors"], "wb") as file:
        file.write(graph.save())
    with atomic_write(folder / names["texts"], "wb") as file:
        file.writelines(encoded)
    with atomic_write(folder / names["offsets"], "wb") as file:
        np.save(file, np.cumsum([0, *map(len, encoded)])[:-1], allow_pickle=False)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "model": model or absolute_if_here(found.model),
        "fingerprint": found.fingerprint,
        "metric": METRIC,
        "dimensions": found.dimensions,
        "texts": len(lines),
        "added": len(rows),
        "left_out": len(found) - len(rows),
        "expansion": graph.expansion_search,
        "recall": recall,
        "files": {names[name]: facts_of(folder / names[name]) for name in ENDS},
    }
    write_json(folder / MANIFEST, manifest, sealed=True)
    for path in folder.iterdir():
        if path.name.partition(".")[0] in ENDS and path.name not in manifest["files"]:
            with suppress(OSError):
                path.unlink()


def choose_expansion(graph: Any, vectors: np.ndarray) -> dict[str, Any]:
    """Widen the search until its recall is ENOUGH, measured against exact search with texts of the index.

    recall = share of the nearest neighbours of a text, itself not counted, that the search finds as well
    """
    count = min(RECALL_AT, len(vectors) - 1)
    if count < 1:
        return {"at": 0, "queries": 0, "value": 1.0}
    rows = np.unique(np.linspace(0, len(vectors) - 1, RECALL_QUERIES).astype(int))
    scores = vectors[rows] @ vectors.T  # [Q, N]
    scores[np.arange(len(rows)), rows] = -np.inf
    # Texts at the same distance are equally good: what counts is the cosine of the last of the nearest ones.
    least = -np.partition(-scores, count - 1, axis=1)[:, count - 1]
    while True:
        hits = 0
        for number, row in enumerate(rows):
            keys = graph.search(vectors[row], count + 1, threads=1).keys.astype(int)
            near = keys[keys != row][:count]
            hits += int((scores[number, near] >= least[number] - 1e-6).sum())
        value = hits / (len(rows) * count)
        if value >= ENOUGH or graph.expansion_search >= WIDEST:
            return {"at": count, "queries": len(rows), "value": value}
        graph.expansion_search *= 2
