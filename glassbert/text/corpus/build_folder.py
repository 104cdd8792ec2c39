"""The folder of a build: locking, resuming an interrupted build, and installing the finished corpus.

All temporary files are in DIR/.building. plan.json describes the build. The parts of an interrupted build are kept, and
the next build with the same plan uses them. An existing corpus stays intact until the new one replaces it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassbert.errors import DifferentCorpusError, TextError
from glassbert.files import explain_write_errors, write_json
from glassbert.locks import try_lock
from glassbert.text.corpus.reader import read_manifest
from glassbert.text.corpus.settings import DEFAULTS
from glassbert.text.corpus.storage import BUILDING, MANIFEST, is_corpus_file
from glassbert.text.wordpiece_files import FILES as TOKENIZER_FILES

PLAN = "plan.json"


class BuildFolder:
    """The paths in DIR and DIR/.building during a build."""

    def __init__(self, output: Path, overwrite: bool) -> None:
        self.output, self.overwrite = output, overwrite
        self.building = output / BUILDING
        self.parts = self.building / "parts"
        self.tokenizer = self.building / "tokenizer"
        self.ready = self.building / "ready"
        self.standard_input = self.building / "standard-input"

    def finished(self) -> dict[str, Any] | None:
        """The manifest of the finished corpus in the folder, or None."""
        return read_manifest(self.output) if (self.output / MANIFEST).exists() else None

    def earlier_plan(self) -> dict[str, Any] | None:
        """The plan of an interrupted build, or None."""
        try:
            return json.loads((self.building / PLAN).read_bytes())
        except (OSError, ValueError):
            return None

    def can_resume(self, plan: dict[str, Any]) -> bool:
        """Whether the parts of an interrupted build fit `plan`.

        The parts of a different plan are discarded with `overwrite`; otherwise they raise TextError.
        """
        earlier = self.earlier_plan()
        if earlier is None:
            self.clear()
            return False
        difference = _difference(earlier, plan)
        if not difference:
            return True
        if not self.overwrite:
            raise DifferentCorpusError(
                f"{self.output} contains an unfinished build that differs from this one: {difference}; "
                "run the earlier command again to finish it, or use --overwrite to start again",
                difference,
            )
        self.clear()
        return False

    def begin(self, plan: dict[str, Any]) -> None:
        """Create the folder of the parts and write plan.json."""
        with explain_write_errors(self.parts):
            self.parts.mkdir(parents=True, exist_ok=True)
        write_json(self.building / PLAN, plan)

    def install(self, manifest: dict[str, Any]) -> None:
        """Move the finished files into the output folder, the manifest last, and remove the build files."""
        new = {path.name for path in self.ready.iterdir()}
        with explain_write_errors(self.output):
            (self.output / MANIFEST).unlink(missing_ok=True)
            for path in list(self.output.iterdir()):
                if path.name not in new and (is_corpus_file(path) or path.name in TOKENIZER_FILES):
                    path.unlink()
            for name in sorted(new):
                os.replace(self.ready / name, self.output / name)
        write_json(self.output / MANIFEST, manifest, sealed=True)
        self.remove_build_files()

    def remove_build_files(self) -> None:
        shutil.rmtree(self.building, ignore_errors=True)

    def clear(self) -> None:
        """Remove the files of an earlier build."""
        for path in (self.parts, self.tokenizer, self.ready):
            shutil.rmtree(path, ignore_errors=True)
        (self.building / PLAN).unlink(missing_ok=True)


@contextmanager
def open_build_folder(output: Path, overwrite: bool) -> Iterator[BuildFolder]:
    """Create and lock the folder of a build. A folder with other files raises TextError without `overwrite`."""
    if output.exists() and not output.is_dir():
        raise TextError(f"{output} is a file; the output of a build must be a folder")
    is_corpus = (output / MANIFEST).exists() or (output / BUILDING).exists()
    if output.exists() and not is_corpus and not overwrite and any(output.iterdir()):
        raise TextError(f"{output} contains other files; use an empty or new folder, or --overwrite")
    folder = BuildFolder(output, overwrite)
    new = not output.exists()
    with explain_write_errors(folder.building):
        folder.building.mkdir(parents=True, exist_ok=True)
    with _locked(folder.building / "lock", output):
        try:
            yield folder
        finally:
            if folder.earlier_plan() is None:
                folder.remove_build_files()  # a later run could not use them
            if new and not any(output.iterdir()):
                output.rmdir()


@contextmanager
def _locked(path: Path, output: Path) -> Iterator[None]:
    with open(path, "w", encoding="utf-8") as file:
        if not try_lock(file):
            raise TextError(f"another build is running in {output}")
        yield


def _difference(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    """The first relevant difference between two plans as a text, or ""."""
    before, after = earlier["settings"], now["settings"]
    for name in after:
        if before.get(name, DEFAULTS.get(name)) != after[name]:
            if name == "on_bad_text" and before[name] == "error":
                continue  # the existing parts contain no bad text
            return f"{name} was {before.get(name)} and is {after[name]}"
    old = {source["name"]: source for source in earlier["sources"]}
    new = {source["name"]: source for source in now["sources"]}
    for name in (*old, *new):
        if name not in new:
            return f"{name} is no longer among the sources"
        if name not in old:
            return f"{name} was not among the sources"
        if old[name] != new[name]:
            return f"{name} has changed: it had {old[name]['bytes']:,} bytes and has {new[name]['bytes']:,}"
    for name in now:
        if name not in ("settings", "fingerprint") and earlier.get(name) != now[name]:
            return f"{name} was {earlier.get(name)} and is {now[name]}" if name != "sources" else "the order of sources"
    return ""
