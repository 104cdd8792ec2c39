"""Find the sources of a build: files, folders, globs, standard input, Hugging Face datasets, Python's documentation.

Folders are read in alphabetical order, so the same folder gives the same corpus on every machine.
"""

from __future__ import annotations

import glob
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from glassbert.errors import TextError
from glassbert.reading.streams import SUFFIXES
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.storage import MANIFEST, TOKENS

STANDARD_INPUT = "-"
DATASETS, PYTHON = "hf:", "python:"
KINDS = {
    ".txt": "text",
    ".text": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".parquet": "parquet",
}


@dataclass(frozen=True)
class Source:
    """One file, or another source of documents."""

    name: str  # for messages and the manifest
    kind: str  # one of FORMATS, or "datasets" or "python"
    path: Path | None = None

    @property
    def size(self) -> int:
        """The size of the file in bytes; 0 if there is no file."""
        return self.path.stat().st_size if self.path else 0


def find_sources(given: Sequence[str | Path], settings: Settings, standard_input: Path | None = None) -> list[Source]:
    """The sources of the arguments of a build. `standard_input` is the file that standard input ("-") was copied to."""
    sources: list[Source] = []
    for one in given or [PYTHON]:
        name = os.fspath(one)
        if name == STANDARD_INPUT:
            if standard_input is None:
                raise TextError("standard input (-) must be copied to a file first, because it can be read only once")
            sources.append(Source("standard input", settings.format or "text", standard_input))
        elif name.startswith(DATASETS):
            sources.append(Source(name, "datasets"))
        elif name.startswith(PYTHON):
            sources.append(Source(f"{PYTHON}{platform.python_version()}", "python"))
        else:
            sources += _files(name, settings)
    seen: set[Source] = set()
    for source in sources:
        if source in seen:
            raise TextError(f"{source.name} occurs twice in the sources")
        seen.add(source)
    return sources


def _files(name: str, settings: Settings) -> list[Source]:
    path = Path(name)
    if os.path.isdir(path):  # False for names that no path can have, and so is os.path.exists
        found = [
            Source(printable(file), kind, file) for file in _walk(path) if (kind := _kind(file, settings, found=True))
        ]
        if not found:
            endings = " ".join(KINDS)
            raise TextError(
                f"the folder {name} contains no text files: names must end in {endings} (may be compressed)"
            )
        return found
    if os.path.exists(path):
        if path.stat().st_size == 0 and path.is_file():
            raise TextError(f"{name} is empty")
        return [Source(printable(path), _kind(path, settings), path)]
    if glob.has_magic(name):
        matches = [Path(match) for match in sorted(glob.glob(name, recursive=True))]
        found = [Source(printable(file), _kind(file, settings), file) for file in matches if file.is_file()]
        if not found:
            raise TextError(f"no file matches {name}")
        return [source for source in found if source.size]
    raise TextError(f"there is no file or folder {printable(path)}")


def printable(path: Path) -> str:
    """The name of a file as text; bytes that are not UTF-8 are written as \\xe9."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _walk(folder: Path) -> Iterator[Path]:
    """The files that are neither hidden nor empty, in order. Folders with a built corpus are skipped."""
    if (folder / MANIFEST).exists() and any(folder.glob(f"*.{TOKENS}.npy")):
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file() and path.stat().st_size:
            yield path


def _kind(path: Path, settings: Settings, found: bool = False) -> str:
    """The kind of a file, from its name without the compression suffix. "" if `found` in a folder and not text."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in SUFFIXES:
        suffixes.pop()
    known = KINDS.get(suffixes[-1] if suffixes else "", "")
    if found and not known:
        return ""
    return settings.format or known or "text"
