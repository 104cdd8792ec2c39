"""Comparing checksums: those of a run's corpora, in the background while it trains, and all of a folder.

A run, a corpus and a model have their checksums in different places; `glassbert verify` finds all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from glassbert.checkpoints.locate import model_files
from glassbert.checkpoints.packaged import verify as verify_packaged
from glassbert.errors import GlassBertError, TrainingError
from glassbert.files import (
    CHECKSUMS,
    SEAL,
    find_changed,
    read_bytes,
    read_checksums,
    read_json,
    verifying,
    write_checksums,
    write_json,
)
from glassbert.text.corpus.reader import Corpus
from glassbert.text.corpus.storage import FORMAT, MANIFEST


class CorpusVerification:
    """Reads every file of the corpora once in a thread of its own, and remembers the first that differs.

    `check` raises if one was found so far, `finish` waits until all are compared.
    """

    def __init__(self, corpora: Sequence[Any]):
        self.corpora = [corpus for corpus in corpora if corpus.folder.is_dir()] if verifying() else []
        self.problem: str | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._verify, name="glassbert-verify", daemon=True)

    def __enter__(self) -> CorpusVerification:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped = True
        self._thread.join()

    def check(self) -> None:
        if self.problem is not None:
            raise TrainingError(f"{self.problem}. The run stops: it would train on text that is not its own")

    def finish(self) -> None:
        self._thread.join()
        self.check()

    def _verify(self) -> None:
        try:
            for corpus in self.corpora:
                corpus.verify(lambda size: self._stop_if_asked())
        except _Stopped:
            pass
        except GlassBertError as error:
            self.problem = str(error)

    def _stop_if_asked(self) -> None:
        if self._stopped:
            raise _Stopped


class _Stopped(Exception):
    """The run ended before everything was compared."""


# ---- glassbert verify ------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """A file that has a checksum, and what is wrong with it; "" where it is as it was written."""

    path: str
    bytes: int
    problem: str = ""


def verify_files(path: Path) -> Iterator[Finding]:
    """Compare every file below `path` that has a checksum.

    Checksums are in a `checksums.json`, in the manifest of a corpus or of a packaged model, or in the file itself.
    """
    if not path.exists():
        raise TrainingError(f"there is no file or folder {path}")
    for folder in _folders(path):
        yield from _listed(folder)
        for file in sorted(folder.glob("*.json")):
            if file.name != CHECKSUMS:
                yield from _sealed(file)
        if (folder / MANIFEST).is_file():
            yield from _in_manifest(folder)


def accept_changes(path: Path) -> list[str]:
    """Write new checksums for the files below `path` that differ, and return their names.

    Token shards are not accepted: a corpus is built again.
    """
    accepted: list[str] = []
    for folder in _folders(path):
        findings = list(_listed(folder))
        if any(one.problem for one in findings):
            names = [Path(one.path).relative_to(folder).as_posix() for one in findings if one.path]
            write_checksums(folder, [name for name in names if name != CHECKSUMS] or model_files(folder))
            accepted += [one.path for one in findings if one.problem]
        for file in sorted(folder.glob("*.json")):
            if file.name != CHECKSUMS and any(one.problem for one in _sealed(file)):
                write_json(file, read_json(file, verify=False), sealed=True)
                accepted.append(str(file))
    return accepted


def _folders(path: Path) -> Iterator[Path]:
    folder = path if path.is_dir() else path.parent
    yield folder
    if path.is_dir():
        for place, names, _ in os.walk(folder, onerror=_unreadable):
            names.sort()
            yield from (one for one in (Path(place) / name for name in names) if not one.is_symlink())


def _unreadable(error: OSError) -> None:
    raise TrainingError(f"{error.filename} cannot be read: {error.strerror}")


def _listed(folder: Path) -> Iterator[Finding]:
    try:
        listed = read_checksums(folder) or {}
    except GlassBertError as error:
        yield Finding(str(folder / CHECKSUMS), 0, str(error))
        return
    for name, facts in listed.items():
        yield Finding(str(folder / name), facts["bytes"], find_changed(folder, [name]) or "")


def _sealed(file: Path) -> Iterator[Finding]:
    """The finding about a JSON file that carries its own checksum; nothing for others."""
    try:
        if f'"{SEAL}"'.encode() not in read_bytes(file)[-200:]:  # the last field
            return
        read_json(file)
        yield Finding(str(file), file.stat().st_size)
    except GlassBertError as error:
        yield Finding(str(file), 0, str(error))


def _in_manifest(folder: Path) -> Iterator[Finding]:
    try:
        content = read_json(folder / MANIFEST, verify=False)
        if content.get("format") == FORMAT:
            corpus = Corpus.open(folder)
            for name, facts in corpus.files():
                yield Finding(str(folder / name), facts["bytes"], corpus.changed(name, facts))
        elif isinstance(content.get("files"), dict):
            verify_packaged(folder)
            yield from (Finding(str(folder / name), facts["bytes"]) for name, facts in content["files"].items())
    except GlassBertError as error:
        yield Finding(str(folder / MANIFEST), 0, str(error))
