"""The folder a corpus is built in: whose it is, what an earlier run left, and how a finished corpus moves in.

All work happens in DIR/.building. plan.json there says what is being built; the parts beside it are kept when a run is
interrupted, and taken up by the next run that asks for the same. A corpus that is there already stays whole until the
new one replaces it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassbert.errors import TextError
from glassbert.files import explain_write_errors, write_json
from glassbert.text.corpus.layout import BUILDING, MANIFEST, is_corpus_file
from glassbert.text.corpus.reader import read_manifest

PLAN = "plan.json"
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json")


class Workshop:
    """DIR and DIR/.building while a build has them."""

    def __init__(self, output: Path, force: bool) -> None:
        self.output, self.force = output, force
        self.building = output / BUILDING
        self.parts = self.building / "parts"
        self.tokenizer = self.building / "tokenizer"
        self.ready = self.building / "ready"
        self.spool = self.building / "standard-input"

    def finished(self) -> dict[str, Any] | None:
        """The manifest of the corpus that is there, if one is."""
        return read_manifest(self.output) if (self.output / MANIFEST).exists() else None

    def earlier_plan(self) -> dict[str, Any] | None:
        try:
            return json.loads((self.building / PLAN).read_bytes())
        except (OSError, ValueError):
            return None

    def take_up(self, plan: dict[str, Any]) -> bool:
        """Whether parts of an earlier run can be used for `plan`. An unfinished build of something else is an error."""
        earlier = self.earlier_plan()
        if earlier is None:
            self.clear()
            return False
        difference = _difference(earlier, plan)
        if not difference:
            return True
        if not self.force:
            raise TextError(
                f"an unfinished build in {self.output} differs from this one: {difference}; "
                "run the earlier command again to finish it, or use --force to begin anew"
            )
        self.clear()
        return False

    def begin(self, plan: dict[str, Any]) -> None:
        with explain_write_errors(self.parts):
            self.parts.mkdir(parents=True, exist_ok=True)
        write_json(self.building / PLAN, plan)

    def install(self, manifest: dict[str, Any]) -> None:
        """Move everything that is ready into place, the manifest last, and tidy up."""
        new = {path.name for path in self.ready.iterdir()}
        with explain_write_errors(self.output):
            (self.output / MANIFEST).unlink(missing_ok=True)
            for path in list(self.output.iterdir()):
                if path.name not in new and (is_corpus_file(path) or path.name in TOKENIZER_FILES):
                    path.unlink()
            for name in sorted(new):
                os.replace(self.ready / name, self.output / name)
        write_json(self.output / MANIFEST, manifest)
        self.tidy()

    def tidy(self) -> None:
        shutil.rmtree(self.building, ignore_errors=True)

    def clear(self) -> None:
        """Forget what an earlier run did."""
        for path in (self.parts, self.tokenizer, self.ready):
            shutil.rmtree(path, ignore_errors=True)
        (self.building / PLAN).unlink(missing_ok=True)


@contextmanager
def workshop(output: Path, force: bool) -> Iterator[Workshop]:
    """The folder for one build alone. What belongs to somebody else is left alone."""
    if output.exists() and not output.is_dir():
        raise TextError(f"{output} is a file; a corpus needs a folder")
    ours = (output / MANIFEST).exists() or (output / BUILDING).exists()
    if output.exists() and not ours and not force and any(output.iterdir()):
        raise TextError(f"{output} holds something else already; name an empty or new folder, or use --force")
    place = Workshop(output, force)
    new = not output.exists()
    with explain_write_errors(place.building):
        place.building.mkdir(parents=True, exist_ok=True)
    with _alone(place.building / "lock", output):
        try:
            yield place
        finally:
            if place.earlier_plan() is None:
                place.tidy()  # nothing in it that a later run could use
            if new and not any(output.iterdir()):
                output.rmdir()


@contextmanager
def _alone(path: Path, output: Path) -> Iterator[None]:
    import fcntl

    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TextError(f"another build is at work in {output}") from None
        yield


def _difference(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between two plans, in words; empty if nothing does that matters."""
    before, after = earlier["settings"], now["settings"]
    for name in after:
        if before.get(name) != after[name]:
            if name == "on_bad_text" and before[name] == "error":
                continue  # no part that exists met any bad text
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
