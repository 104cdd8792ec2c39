"""The course of a build: what is there already, the tokenizer, the parts, the shards, the manifest.

The main process reads the sources and cuts them into units; workers make each unit into a part file; when all parts
are there, one pass over what is known of every document decides who stays, and the parts are poured into shards. A unit
is a function of the input alone, so one worker or ten, one run or several, give the same bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from glassbert.errors import TextError
from glassbert.files import sha256
from glassbert.text.corpus.blocks import Block, read_blocks
from glassbert.text.corpus.duplicates import near_duplicate_index
from glassbert.text.corpus.folder import Workshop
from glassbert.text.corpus.layout import FORMAT, VERSION, token_type
from glassbert.text.corpus.parts import Part, Unit, gather_units, part_path
from glassbert.text.corpus.pouring import Poured, pour
from glassbert.text.corpus.reader import Corpus
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import Source
from glassbert.text.corpus.streams import Tally
from glassbert.text.corpus.vocabulary import train_tokenizer
from glassbert.text.corpus.workers import Job, make_all

if TYPE_CHECKING:
    from glassbert.text.tokenizer import Tokenizer


@dataclass
class Progress:
    """How far a build is. `done` and `total` count bytes of the sources while reading, and parts while pouring."""

    stage: str  # "vocabulary", "reading" or "pouring"
    done: int = 0
    total: int = 0
    text: int = 0  # bytes of text handed to workers
    resumed: int = 0  # of these, bytes whose parts an earlier run had made


class Construction:
    """One build in one folder."""

    def __init__(
        self,
        place: Workshop,
        sources: list[Source],
        settings: Settings,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        lowercase: bool,
        progress: Callable[[Progress], None],
        texts: list[str] | None = None,
    ) -> None:
        self.place, self.sources, self.settings, self.texts = place, sources, settings, texts
        self.tokenizer, self.vocab_size, self.lowercase = tokenizer, vocab_size, lowercase
        self.tell = progress
        self.tallies = [Tally() for _ in sources]
        self.units = 0
        self.now = Progress("reading", total=sum(source.size for source in sources))

    def run(self, workers: int) -> Corpus:
        there = self._already_there()
        if there:
            self.place.tidy()
            return there
        bands = (0, 0)
        if self.settings.near_duplicates is not None:
            index = near_duplicate_index(self.settings.near_duplicates)
            bands = (index.b, index.r)
        plan = self._plan()
        resumed = self.place.take_up(plan)
        tokenizer = self._tokenizer(resumed)
        self.place.begin({**plan, "fingerprint": tokenizer.fingerprint})
        job = Job(self.place.parts, self.place.tokenizer, tokenizer.fingerprint, self.settings, bands)
        self.tell(self.now)
        for _ in make_all(self._missing(), job, workers):
            self.tell(self.now)
        poured = self._pour(tokenizer)
        self.place.install(self._manifest(poured, tokenizer))
        return Corpus.open(self.place.output)

    # ---- what is there already ----

    def _plan(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"vocab_size": self.vocab_size, "lowercase": self.lowercase}
        if self.tokenizer is not None:
            asked = {"fingerprint": self.tokenizer.fingerprint}
        return {
            "made_by": f"glassbert {version('glassbert')}",
            "settings": self.settings.as_dict(),
            "sources": [{"name": source.name, "kind": source.kind, "bytes": source.size} for source in self.sources],
            "tokenizer": asked,
        }

    def _already_there(self) -> Corpus | None:
        """The finished corpus, if it is what this build would make. Another one is an error, unless forced."""
        manifest = self.place.finished()
        if manifest is None or self.place.force:
            return None
        difference = self._differs(manifest)
        if not difference:
            return Corpus.open(self.place.output)
        raise TextError(
            f"{self.place.output} holds a finished corpus that differs from this one: {difference}; "
            "name another folder, or use --force to replace it"
        )

    def _differs(self, manifest: dict[str, Any]) -> str:
        for name, value in self.settings.as_dict().items():
            if manifest["settings"].get(name) != value:
                return f"{name} is {manifest['settings'].get(name)} there and {value} here"
        if self.tokenizer is not None and manifest["tokenizer"]["fingerprint"] != self.tokenizer.fingerprint:
            return "it was made with another tokenizer"
        if self.tokenizer is None and manifest["tokenizer"].get("trained") != self._plan()["tokenizer"]:
            return "its tokenizer was not trained with these settings"
        names = [source["name"] for source in manifest["sources"]]
        if names != [source.name for source in self.sources]:
            return "it has other sources"
        for source, facts in zip(self.sources, manifest["sources"], strict=True):
            if source.kind == "given" or (source.path and sha256(source.path) != facts["sha256"]):
                return f"{source.name} has changed since"
        return ""

    # ---- the tokenizer ----

    def _tokenizer(self, resumed: bool) -> Tokenizer:
        from glassbert.text.fast import load_tokenizer

        if resumed:
            kept = load_tokenizer(self.place.tokenizer)
            if kept.fingerprint == (self.place.earlier_plan() or {}).get("fingerprint"):
                return kept
            if not self.place.force:
                raise TextError(f"{self.place.tokenizer} was altered after the build began; use --force to begin anew")
            self.place.clear()
        if self.tokenizer is None:
            trained = train_tokenizer(
                self.sources,
                self.settings,
                self.vocab_size,
                self.lowercase,
                lambda done, total: self.tell(Progress("vocabulary", done, total)),
            )
            trained.save(self.place.tokenizer)
            return load_tokenizer(self.place.tokenizer)
        self.tokenizer.save(self.place.tokenizer)
        tokenizer = load_tokenizer(self.place.tokenizer)
        if tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise TextError("this tokenizer is another one after it is saved and opened again; it cannot make a corpus")
        return tokenizer

    # ---- parts ----

    def _blocks(self) -> Iterator[Block]:
        if self.texts is not None:
            for text in self.texts:
                self.tallies[0].add(text.encode("utf-8", "surrogatepass") + b"\0")
            yield Block(0, "documents", "given", self.texts)
            return
        for number, source in enumerate(self.sources):
            before = self.now.done
            for block in read_blocks(number, source, self.settings, self.tallies[number]):
                self.now.done = before + self.tallies[number].bytes
                yield block

    def _missing(self) -> Iterator[tuple[Unit, str]]:
        """The units whose parts are not there yet."""
        for unit in gather_units(self._blocks()):
            self.units += 1
            digest = unit.digest()
            self.now.text += unit.size
            if self._is_there(unit, digest):
                self.now.resumed += unit.size
                self.tell(self.now)
            else:
                yield unit, digest

    def _is_there(self, unit: Unit, digest: str) -> bool:
        path = part_path(self.place.parts, unit.number)
        if not path.exists():
            return False
        part = Part(path)
        same = part.about()["input"] == digest
        part.close()
        if not same and not self.place.force:
            names = ", ".join(dict.fromkeys(block.name for block in unit.blocks))
            raise TextError(f"{names} changed since this build began; use --force to go on with what is there now")
        return bool(same)

    # ---- shards ----

    def _pour(self, tokenizer: Tokenizer) -> Poured:
        def tell(done: int, total: int) -> None:
            self.tell(Progress("pouring", done, total))

        shutil.rmtree(self.place.ready, ignore_errors=True)
        self.place.ready.mkdir()
        dtype = token_type(tokenizer.vocab_size)
        return pour(self.place.parts, self.units, self.place.ready, dtype, self.settings, tell)

    def _manifest(self, poured: Poured, tokenizer: Tokenizer) -> dict[str, Any]:
        shards = {path.name for path in self.place.ready.iterdir()}
        tokenizer.save(self.place.ready)
        plan = self._plan()
        return {
            "format": FORMAT,
            "version": VERSION,
            "made_by": plan["made_by"],
            "sources": [
                {
                    "name": source.name,
                    "kind": source.kind,
                    "bytes": self.tallies[number].bytes,
                    "sha256": self.tallies[number].digest.hexdigest(),
                    "documents": poured.read[number],
                    "kept": poured.kept[number],
                }
                for number, source in enumerate(self.sources)
            ],
            "tokenizer": {
                "fingerprint": tokenizer.fingerprint,
                "vocab_size": tokenizer.vocab_size,
                "trained": plan["tokenizer"] if self.tokenizer is None else None,
                "files": {
                    path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
                    for path in sorted(self.place.ready.iterdir())
                    if path.name not in shards
                },
            },
            "settings": self.settings.as_dict(),
            "counts": poured.counts,
            "cleaning": poured.cleaning,
            "examples": poured.examples,
            "splits": poured.splits,
        }
